// Package files watches paths and emits an event for each file that appears or changes, once it has settled.
//
// Events. `file.created` for a path that was not there before, `file.changed` for one that was; each after the file has been quiet for the
// settle time, whatever an editor does on the way: a temporary file that is renamed gives one event under the final name, a slow writer
// one event at the end, a file that is gone by then none. The payload is a [Payload]. The id is made of path, size, modification time and
// content (its first 64 MiB), so the same state of a file is the same event, however often it is noticed.
//
// Patterns are globs: `*`, `?`, `[a-z]`, `{one,two}`, `**` for any number of folders, and `{name}`, which matches a part of a name and
// shows up as match.name. Excludes without a slash are matched against the file's name alone. Names of temporary files are always left
// out: `*~`, `*.tmp`, `.*.sw?`, `.#*`, `#*#`, `4913` and everything that begins with `..`. Symbolic links to files are followed, links to
// folders are not; a change of a link's target is noticed at once when the link (or a link beside it) is replaced, as Kubernetes does,
// else at the next scan.
//
// Position. At the first start ever, the files that are there count as known. From then on the cursor remembers them, and what appeared or
// changed while the daemon was down is found at start. The cursor travels in a message header, so it lists the [maxIndex] files that
// changed last; older ones are known by being older: a file that is not listed counts as new when its status (ctime) changed after the
// newest file that is not listed. Only a wall clock that was set back can hide such a file. When the patterns change, files that match
// only now count as known if they are older than the cursor.
//
// Watches come from the system (inotify). Everything is scanned again now and then in any case, every ten seconds on network file systems
// and where the system's watch limit is reached; then the source's status says so. When the system's queue overflows, a `gap` event is
// emitted, because states that came and went unseen are lost, and everything is scanned.
package files
