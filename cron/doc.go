// Package cron reads schedules and is the source of ticks.
//
// A schedule is five fields (minute, hour, day of month, month, day of week), six with [Options.Seconds] (the second comes first), a descriptor
// (@yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly), "@every <duration>", or a list of instants ([At]). A field is `*`, a value,
// a range `a-b`, a step `*/n`, `a-b/n` or `a/n` (from a to the end), or a list of these. Months and days of the week have their English
// three-letter names; Sunday is 0 and 7; `?` stands for `*` in the two day fields. Of Quartz it has L, L-n, nW and LW in the day of month, and
// nL and n#k in the day of week.
//
// Rules where cron implementations differ; they are those of Debian's cron:
//   - When both day fields are restricted, a day counts if either matches. A field that begins with `*` (also `*/2`) is not
//     restricted: then both must match.
//   - Daylight saving: a schedule whose second, minute and hour all name times (none begins with `*`) is a fixed time. If the clock skips it,
//     it fires once, at the first instant after the gap; if the clock repeats it, it fires on the first occurrence only. [Gap] and [Fold] say
//     otherwise. Any other schedule is an interval and follows the clock on the wall: its times in the gap do not exist, those in a
//     repeated hour come twice.
//   - "@every" counts from the Unix epoch and not from the start of the daemon, so that every daemon means the same slots.
//
// Parsing and Next are our own and not robfig/cron's, whose Next fires fixed times neither after a gap nor once in a fold, and whose parser takes
// no 7 for Sunday, treats `*/2` in a day field as restricted, and panics on "TZ=UTC" (testdata holds the cases).
//
// Zone prefixes (TZ=) are refused: a zone belongs to the schedule's configuration, not to its text.
package cron
