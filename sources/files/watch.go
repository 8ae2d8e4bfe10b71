package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watcher is what a run needs of fsnotify.
type watcher struct {
	add    func(dir string) error
	remove func(dir string) error
	close  func() error
	events <-chan fsnotify.Event
	errors <-chan error
}

func newWatcher() (*watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &watcher{add: w.Add, remove: w.Remove, close: w.Close, events: w.Events, errors: w.Errors}, nil
}

// errNoWatcher stands for every folder when there is no watcher at all.
var errNoWatcher = errors.New("no file watcher")

// openWatcher opens the watcher; without one the source lives on scans alone.
func (r *run) openWatcher() {
	w, err := r.watch()
	if err == nil {
		r.w = w
		return
	}
	r.poll = true
	r.w = &watcher{
		add:    func(string) error { return errNoWatcher },
		remove: func(string) error { return nil },
		close:  func() error { return nil },
	}
	r.report(fmt.Errorf("cannot watch files, they are scanned every %v: %w (raise fs.inotify.max_user_instances?)", pollEvery, err))
}

func (r *run) report(err error) {
	r.rt.Status.Report(err)
	r.rt.Log.Warn().Err(err).Msg("file watches are limited")
}

// scan walks over all roots, watches their folders and hands every matching file to each. It also settles when the next scan is due.
func (r *run) scan(each func(path string, s state)) {
	before := r.lost
	r.lost, r.wantScan = 0, false
	r.openRoots(each)
	for _, root := range r.match.roots() {
		if r.dirs[root] || r.lost > 0 {
			r.poll = r.poll || remote(root)
		}
	}
	if before > 0 && r.lost == 0 {
		r.rt.Status.Report(nil)
	}
	every := scanEvery
	if r.poll || r.lost > 0 {
		every = pollEvery
	}
	r.scanAt = time.Now().Add(every)
}

// rescan compares everything with the index: for changes that no watch told of.
func (r *run) rescan() {
	for dir := range r.dirs {
		delete(r.dirs, dir) // walk anew; a second watch on a folder is the first one
	}
	seen := make(map[string]bool)
	r.scan(func(path string, s state) {
		seen[path] = true
		r.noticed(path, s)
	})
	for path := range r.index {
		if !seen[path] && r.pending[path] == nil {
			r.mark(path, nil)
		}
	}
}

// noticed is for a file that a walk found: it is of interest unless it is known or settles already.
func (r *run) noticed(path string, s state) {
	if old, ok := r.index[path]; ok && old.same(s) || r.pending[path] != nil {
		return
	}
	r.mark(path, &s)
}

// openRoots walks the roots that are not watched yet. Where one does not exist, the nearest folder above it is watched until it does.
func (r *run) openRoots(each func(path string, s state)) {
	r.wantRoot = false
	missing := false
	for _, root := range r.match.roots() {
		if r.dirs[root] {
			continue
		}
		if !r.walk(root, each) {
			missing = true
			r.anchor(root)
			// It may have come between the look and the watch.
			if r.walk(root, each) {
				continue
			}
		}
	}
	if missing {
		return
	}
	for dir := range r.anchors {
		delete(r.anchors, dir)
		if !r.dirs[dir] {
			_ = r.w.remove(dir) // gone with its folder already
		}
	}
}

// anchor watches the nearest folder above root that exists.
func (r *run) anchor(root string) {
	for dir := filepath.Dir(root); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err == nil && info.IsDir() {
			if r.addWatch(dir) {
				r.anchors[dir] = true
			}
			return
		}
		if dir == filepath.Dir(dir) {
			return
		}
	}
}

// walk watches dir and the folders below that can hold matches, and hands each matching file over. It reports whether dir is a folder.
func (r *run) walk(dir string, each func(path string, s state)) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	if r.addWatch(dir) {
		r.dirs[dir] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		r.unreadable(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			if !r.dirs[path] && r.match.wants(path) {
				r.walk(path, each)
			}
			continue
		}
		r.visit(path, each)
	}
	return true
}

// visit hands a path over if it is a regular file, or a link to one, that matches.
func (r *run) visit(path string, each func(path string, s state)) {
	if _, ok := r.match.match(path); !ok {
		return
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		each(path, stateOf(info))
	}
}

func (r *run) unreadable(err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if n, ok := r.logs.Allow("unreadable"); ok {
		r.rt.Log.Warn().Err(err).Uint64("suppressed", n).Msg("folder cannot be read, its files are not seen")
	}
}

// addWatch reports whether dir is watched from now on. A limit of the system makes the source unhealthy, but not blind.
func (r *run) addWatch(dir string) bool {
	err := r.w.add(dir)
	switch {
	case err == nil:
		return true
	case errors.Is(err, errNoWatcher), errors.Is(err, fs.ErrNotExist):
		return false
	}
	r.lost++
	if r.lost > 1 {
		return false
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = errors.New("the system's limit on file watches is reached: raise fs.inotify.max_user_watches (sysctl)")
	}
	r.report(fmt.Errorf("some folders are not watched but scanned every %v: %w", pollEvery, err))
	r.scanAt = time.Now().Add(pollEvery)
	return false
}

// handle notes what an event says; files are looked at when they are quiet.
func (r *run) handle(ev fsnotify.Event) {
	path := ev.Name
	if r.anchors[filepath.Dir(path)] {
		r.wantRoot = true
	}
	if ev.Op == fsnotify.Chmod {
		return
	}
	if ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
		if r.dirs[path] {
			r.dropDir(path)
		}
	}
	_, matches := r.match.match(path)
	if matches {
		r.mark(path, nil)
	}
	if !ev.Has(fsnotify.Create) {
		return
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
	case info.IsDir() && r.match.wants(path):
		r.walk(path, r.noticed)
	case info.Mode()&fs.ModeSymlink != 0 && !matches:
		r.relink(filepath.Dir(path))
	}
}

// relink looks at a folder's links after one beside them was replaced: they may lead through it.
func (r *run) relink(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		r.unreadable(err)
		return
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			r.visit(filepath.Join(dir, e.Name()), r.noticed)
		}
	}
}

// dropDir forgets a folder that was removed or renamed. Watches of a renamed folder live on under its old name, so they are ended;
// its files are looked at, and forgotten if they are gone.
func (r *run) dropDir(dir string) {
	r.wantRoot = true
	below := dir + string(filepath.Separator)
	for d := range r.dirs {
		if d == dir || strings.HasPrefix(d, below) {
			delete(r.dirs, d)
			_ = r.w.remove(d) // gone with its folder already
		}
	}
	for path := range r.index {
		if strings.HasPrefix(path, below) {
			r.mark(path, nil)
		}
	}
}
