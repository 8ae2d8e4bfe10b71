package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// startError is a command that could not be started.
type startError struct {
	msg       string
	transient bool
}

func (e *startError) Error() string { return e.msg }

// start runs the command with the supervisor's own standard streams and process group.
func start(s Spec) (int, error) {
	if len(s.Args) == 0 || len(s.Args[0]) == 0 {
		return 0, &startError{msg: "the command is empty"}
	}
	args, env := toStrings(s.Args), toStrings(s.Env)
	dir := string(s.Dir)
	if err := checkDir(dir); err != nil {
		return 0, err
	}
	path, err := lookPath(args[0], dir, env)
	if err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{Dir: dir, Env: env, Files: []uintptr{0, 1, 2}, Sys: childAttr()})
	if err != nil {
		return 0, execError(path, dir, err)
	}
	return pid, nil
}

func toStrings(bs [][]byte) []string {
	out := make([]string, len(bs))
	for i, b := range bs {
		out[i] = string(b)
	}
	return out
}

// checkDir looks first, because the kernel's answer to a failed start does not say whether the program or the directory is missing.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return &startError{msg: fmt.Sprintf("working directory %q: %v", dir, cause(err))}
	case !info.IsDir():
		return &startError{msg: fmt.Sprintf("working directory %q is not a directory", dir)}
	}
	return nil
}

// lookPath finds the program the way a shell would: with the command's own PATH, never in the working directory.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var denied string
	for _, d := range filepath.SplitList(getenv(env, "PATH")) {
		if !filepath.IsAbs(d) {
			continue // "" and "." would run whatever lies in the working directory
		}
		path := filepath.Join(d, name)
		info, err := os.Stat(path)
		if err != nil || info.IsDir() {
			continue
		}
		if info.Mode()&0o111 != 0 {
			return path, nil
		}
		denied = path
	}
	if denied != "" {
		return "", &startError{msg: fmt.Sprintf("start %q: %s is not executable (chmod +x)", name, denied)}
	}
	hint := ""
	if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
		hint = fmt.Sprintf(" (write ./%s for the file in the working directory)", name)
	}
	return "", &startError{msg: fmt.Sprintf("start %q: not found in PATH%s", name, hint)}
}

// getenv returns the last value of name, which is the one that counts for most programs.
func getenv(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v
		}
	}
	return ""
}

func execError(path, dir string, err error) *startError {
	e := &startError{msg: fmt.Sprintf("start %q: %v", path, err)}
	switch {
	case errors.Is(err, syscall.ENOENT) && exists(path, dir):
		e.msg += " (the file is there: does the interpreter that its first line names exist?)"
	case errors.Is(err, syscall.ENOEXEC):
		e.msg += " (not a program: does a script begin with #! and its interpreter?)"
	case errors.Is(err, syscall.EACCES):
		e.msg += " (is it executable?)"
	case errors.Is(err, syscall.E2BIG):
		e.msg += " (arguments and environment together are over the kernel's limit; use stdin)"
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ETXTBSY),
		errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.EIO), errors.Is(err, syscall.EINTR):
		e.transient = true
	}
	return e
}

func exists(path, dir string) bool {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	_, err := os.Stat(path)
	return err == nil
}

// cause strips the operation and the path, which the caller names itself.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
