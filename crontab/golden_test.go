package crontab_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/triggerd/triggerd/crontab"
)

var update = flag.Bool("update", false, "write testdata/*.yaml")

// Whole crontabs become what stands beside them.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.crontab")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d crontabs: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			o := options()
			o.File, o.System = filepath.Base(file), strings.HasPrefix(filepath.Base(file), "system")
			r := read(t, contents(t, file), o)
			same(t, r)
			want := strings.TrimSuffix(file, ".crontab") + ".yaml"
			if *update {
				if err := os.WriteFile(want, r.YAML, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden(t, r, contents(t, want))
		})
	}
}

// The example of the documentation is what the command makes of its crontab, and says what it says.
func TestDocumentation(t *testing.T) {
	doc := contents(t, "../docs/crontab.md")
	o := options()
	o.File = "stdin"
	r := read(t, block(t, doc, "crontab"), o)
	same(t, r)
	golden(t, r, block(t, doc, "yaml"))
	var said []string
	for _, w := range r.Warnings {
		w.Text = "warning: " + w.Text
		said = append(said, w.At(o.File))
	}
	if got, want := strings.Join(said, "\n")+"\n", block(t, doc, "text"); got != want {
		t.Errorf("warnings:\n%s\nwant:\n%s", got, want)
	}
}

func golden(t *testing.T, r *crontab.Result, want string) {
	t.Helper()
	if got := string(r.YAML); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func contents(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// block is the first fenced block of a language.
func block(t *testing.T, doc, language string) string {
	t.Helper()
	_, after, ok := strings.Cut(doc, "```"+language+"\n")
	text, _, closed := strings.Cut(after, "```\n")
	if !ok || !closed {
		t.Fatalf("no block of %s", language)
	}
	return text
}
