// Package cron reads schedules and is the source of ticks.
//
// A schedule is five fields (minute, hour, day of month, month, day of week), a descriptor (@yearly, @annually, @monthly, @weekly,
// @daily, @midnight, @hourly) or "@every <duration>". A field is `*`, a value, a range `a-b`, a step `*/n`, `a-b/n` or `a/n`
// (from a to the end), or a list of these. Months and days of the week have their English three-letter names; Sunday is 0 and 7;
// `?` stands for `*` in the two day fields.
//
// Rules where cron implementations differ; they are those of Debian's cron:
//   - When both day fields are restricted, a day counts if either matches. A field that begins with `*` (also `*/2`) is not
//     restricted: then both must match.
//   - Daylight saving: a schedule whose minute and hour both name times (neither begins with `*`) is a fixed time. If the clock skips it,
//     it fires once, at the first instant after the gap; if the clock repeats it, it fires on the first occurrence only. Any other
//     schedule is an interval and follows the clock on the wall: its times in the gap do not exist, those in a repeated hour come twice.
//   - "@every" counts from the Unix epoch and not from the start of the daemon, so that every daemon means the same slots.
//
// Seconds and zone prefixes (TZ=) are refused: a zone belongs to the schedule's configuration, not to its text.
package cron
