package configs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
)

// writeSecret replaces a secret's file as of an hour ago plus age, so that its time stamp has settled.
func writeSecret(t *testing.T, file, value string, age time.Duration) {
	t.Helper()
	if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Hour + age)
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestSecrets(t *testing.T) {
	get := func(t *testing.T, s *Secrets, name, want string) {
		t.Helper()
		if got, err := s.Get(name); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	t.Run("come from the environment as they are", func(t *testing.T) {
		t.Setenv("TRIGGERD_TEST_SECRET", "value\n")
		get(t, NewSecrets(map[string]Secret{"s": {Env: "TRIGGERD_TEST_SECRET"}}), "s", "value\n")
	})
	t.Run("lose one final newline of their file", func(t *testing.T) {
		for text, want := range map[string]string{"v": "v", "v\n": "v", "v\r\n": "v", "v\n\n": "v\n", " v ": " v "} {
			file := filepath.Join(t.TempDir(), "s")
			writeSecret(t, file, text, 0)
			get(t, NewSecrets(map[string]Secret{"s": {File: file}}), "s", want)
		}
	})
	t.Run("are read again when time, size or file change", func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "s")
		s := NewSecrets(map[string]Secret{"s": {File: file}})
		writeSecret(t, file, "first", 0)
		get(t, s, "s", "first")
		writeSecret(t, file, "longer than it was", 0)
		get(t, s, "s", "longer than it was")
		writeSecret(t, file, "longer than it is ", time.Second)
		get(t, s, "s", "longer than it is ")
		other := filepath.Join(dir, "other")
		writeSecret(t, other, "another file, sure", time.Second)
		if err := os.Rename(other, file); err != nil {
			t.Fatal(err)
		}
		get(t, s, "s", "another file, sure")
	})
	t.Run("are read again at once when the file is too fresh for its time stamp to tell", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "s")
		now := time.Now()
		s := NewSecrets(map[string]Secret{"s": {File: file}})
		for _, v := range []string{"aaaa", "bbbb"} {
			if err := os.WriteFile(file, []byte(v), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(file, now, now); err != nil {
				t.Fatal(err)
			}
			get(t, s, "s", v)
		}
	})
	t.Run("errors say why and never what", func(t *testing.T) {
		dir := files(t, "empty", "\n", "big", strings.Repeat("sesame", maxSecret/6+1))
		s := NewSecrets(map[string]Secret{
			"unset": {Env: "TRIGGERD_TEST_NOT_SET"}, "gone": {File: filepath.Join(dir, "gone")}, "folder": {File: dir},
			"empty": {File: filepath.Join(dir, "empty")}, "big": {File: filepath.Join(dir, "big")},
		})
		for name, want := range map[string]string{
			"unset": "is not set", "gone": "no such file", "folder": "not a regular file", "empty": "value is empty", "big": "larger than", "nobody": "not found",
		} {
			v, err := s.Get(name)
			if v != "" || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
				t.Errorf("%s: got %q, %v; want an error about %q", name, v, err, want)
			}
		}
		if _, err := s.Get("nobody"); !errors.Is(err, triggerd.ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if got := s.Values(); len(got) != 0 {
			t.Errorf("values are %q", got)
		}
	})
	t.Run("values hold what was rotated out", func(t *testing.T) {
		t.Setenv("TRIGGERD_TEST_SECRET", "from the environment")
		file := filepath.Join(t.TempDir(), "s")
		s := NewSecrets(map[string]Secret{"s": {File: file}, "e": {Env: "TRIGGERD_TEST_SECRET"}})
		for i, v := range []string{"one", "two", "one", "three"} {
			writeSecret(t, file, v, time.Duration(i)*time.Second)
			get(t, s, "s", v)
		}
		got := s.Values()
		slices.Sort(got)
		if want := []string{"from the environment", "one", "three", "two"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("expand in texts outside of actions", func(t *testing.T) {
		t.Setenv("TRIGGERD_TEST_SECRET", "v")
		s := NewSecrets(map[string]Secret{"s": {Env: "TRIGGERD_TEST_SECRET"}, "a-b": {Env: "TRIGGERD_TEST_SECRET"}})
		if got, err := s.Expand(`${{ secrets.s }}/${{secrets["a-b"]}}`); err != nil || got != "v/v" {
			t.Errorf("got %q, %v", got, err)
		}
		if got, err := s.Expand("x ${{ secrets.nope }}"); err == nil || got != "" {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("can be used from many goroutines", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "s")
		writeSecret(t, file, "value", 0)
		s := NewSecrets(map[string]Secret{"s": {File: file}})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					get(t, s, "s", "value")
					s.Values()
				}
			})
		}
		wg.Wait()
	})
}
