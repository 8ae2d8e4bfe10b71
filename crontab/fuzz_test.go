package crontab_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/crontab"
)

// No crontab makes the import panic. What it refuses it blames on a line, and what it takes becomes the same configuration each time,
// one that loads and runs the jobs' commands byte for byte.
func FuzzImport(f *testing.F) {
	files, err := filepath.Glob("testdata/*.crontab")
	if err != nil || len(files) == 0 {
		f.Fatalf("no crontabs in testdata: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, strings.Contains(file, "system"))
	}
	for _, seed := range []string{
		"", "\n", "\x00", "\xff", "#", "@", "@reboot", "@daily x", "=", "a=", "'", "''", "'a'='b'", "\"a\" = \"b", "* * * * * x%y\\%z\\", "-* * * * * x", "* * * * root x",
		"* * * * * ${{ x }} $${{ y }} $$$ ${Z} $", "* * * * * \u2028\u0085\ufffd\U0001F600", "A=${B}\n_KEY=1\nTZ=UTC\nCRON_TZ=UTC\nSHELL=${{\nHOME=/${{\n@daily x\n", "0~3 * * * * x", "\ufeff\r\n@daily x\r",
		"# KEY=a://b:c@d\n@daily https://a:b@c", "in=a://b:c@d\n@daily x", "SHELL=a/b\n@daily x",
	} {
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, asSystem bool) {
		o := options()
		o.System = asSystem
		r, err := crontab.Import(bytes.NewReader(data), o)
		if err != nil {
			var found *crontab.Errors
			if !errors.As(err, &found) || len(found.Problems) == 0 {
				t.Fatalf("refused without a problem: %v", err)
			}
			for _, p := range found.Problems {
				if p.Text == "" || p.Line < 0 || p.Line > bytes.Count(data, []byte("\n"))+1 {
					t.Errorf("a problem without a place or a text: %+v", p)
				}
			}
			return
		}
		names := map[string]bool{"manual": true, "triggerd": true}
		for _, j := range r.Jobs {
			if err := triggerd.ValidName(j.Name); err != nil || names[j.Name] {
				t.Errorf("line %d: name %q is taken or no name: %v", j.Line, j.Name, err)
			}
			names[j.Name] = true
		}
		same(t, r)
		again, err := crontab.Import(bytes.NewReader(data), o)
		if err != nil || !bytes.Equal(again.YAML, r.YAML) {
			t.Fatalf("another result the second time: %v", err)
		}
	})
}
