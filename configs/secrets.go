package configs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/triggerd/triggerd"
)

const (
	maxSecret = 64 << 10 // bytes of a secret's file
	keptOld   = 4        // values that a rotation replaced and that are still redacted
)

// Secrets resolves secrets when they are used. It is safe for concurrent use.
type Secrets struct {
	env  func(string) (string, bool)
	mu   sync.Mutex
	byID map[string]*secret
}

type secret struct {
	from  Secret
	value string
	info  os.FileInfo // the file that value was read from
	old   []string    // former values, newest last
}

// NewSecrets reads nothing yet.
func NewSecrets(m map[string]Secret) *Secrets {
	s := &Secrets{env: os.LookupEnv, byID: make(map[string]*secret, len(m))}
	for name, from := range m {
		s.byID[name] = &secret{from: from}
	}
	return s
}

// Get returns the present value of a secret. A file is read again when its time, size or identity changed; its final newline is trimmed.
// It may block on the file system. Errors never hold a value; an unknown name is [triggerd.ErrNotFound]. An empty value is an error,
// because a check against an empty secret would let everybody in.
func (s *Secrets) Get(name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sec, ok := s.byID[name]
	if !ok {
		return "", fmt.Errorf("secret %q: %w", cut(name, 64), triggerd.ErrNotFound)
	}
	if err := s.refresh(sec); err != nil {
		return "", fmt.Errorf("secret %q: %w", name, err)
	}
	return sec.value, nil
}

// Expand replaces each ${{ secrets.NAME }} of a text that is no action's, such as nats.token.
func (s *Secrets) Expand(text string) (string, error) {
	var errs []error
	out := secretRef.ReplaceAllStringFunc(text, func(ref string) string {
		v, err := s.Get(secretNames(ref)[0])
		errs = append(errs, err)
		return v
	})
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	return out, nil
}

// Values lists every value to redact: the present ones, read if need be, and the last few that a rotation replaced. Secrets that cannot be read are left out.
func (s *Secrets) Values() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, name := range sortedNames(s.byID) {
		sec := s.byID[name]
		_ = s.refresh(sec) // Get reports it to whoever needs the value
		if sec.value != "" {
			out = append(out, sec.value)
		}
		out = append(out, sec.old...)
	}
	return out
}

func (s *Secrets) refresh(sec *secret) error {
	if sec.from.File != "" {
		return sec.refreshFile()
	}
	v, ok := s.env(sec.from.Env)
	if !ok {
		return fmt.Errorf("variable %s is not set", sec.from.Env)
	}
	return sec.replace(v)
}

func (sec *secret) refreshFile() error {
	info, err := os.Stat(sec.from.File)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() { // a pipe would block, and can be read once only
		return fmt.Errorf("%s is not a regular file", sec.from.File)
	}
	if sec.info != nil && os.SameFile(sec.info, info) && sec.info.Size() == info.Size() && sec.info.ModTime().Equal(info.ModTime()) {
		return nil
	}
	f, err := os.Open(sec.from.File)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return err
	}
	if len(data) > maxSecret {
		return fmt.Errorf("%s is larger than %d bytes", sec.from.File, maxSecret)
	}
	if err := sec.replace(strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")); err != nil {
		return err
	}
	sec.info = info
	if time.Since(info.ModTime()) < racyWindow {
		sec.info = nil
	}
	return nil
}

// racyWindow: a file that changed a moment ago may change again within the resolution of its time stamp and to the same size,
// so it is read again until its time stamp is older than the coarsest one in use (2 s, FAT).
const racyWindow = 2 * time.Second

// replace sets the value and keeps the one before it.
func (sec *secret) replace(v string) error {
	if v == "" {
		return errors.New("value is empty")
	}
	if v == sec.value {
		return nil
	}
	if sec.value != "" {
		sec.old = append(slices.DeleteFunc(sec.old, func(o string) bool { return o == v }), sec.value)
		sec.old = sec.old[max(0, len(sec.old)-keptOld):]
	}
	sec.value = v
	return nil
}
