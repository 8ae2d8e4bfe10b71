package configs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// env is a fixed environment.
func env(pairs ...string) func(string) (string, bool) {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) (string, bool) { v, ok := m[k]; return v, ok }
}

func testOptions() Options {
	return Options{Env: env("HOST", "example.com", "EMPTY", "", "TOKEN", "t0ken-value", "FIVE", "5", "STATE_DIRECTORY", "/var/lib/triggerd")}
}

// mustParse parses a document that is valid.
func mustParse(t *testing.T, doc string) *Config {
	t.Helper()
	c, err := Parse("/etc/triggerd/test.yaml", []byte(doc), testOptions())
	if err != nil {
		t.Fatalf("unexpected problems:\n%v", err)
	}
	return c
}

// problemsOf returns the problems of a document, without the file's name.
func problemsOf(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var es *Errors
	if !errors.As(err, &es) {
		t.Fatalf("error is a %T, want *Errors: %v", err, err)
	}
	var out []string
	for _, p := range es.Problems {
		if p.File != "" {
			p.File = filepath.Base(p.File)
		}
		out = append(out, p.String())
	}
	return out
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// files writes a tree of files and returns its folder.
func files(t *testing.T, pairs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i+1 < len(pairs); i += 2 {
		name := filepath.Join(dir, pairs[i])
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(pairs[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	hook = "connections:\n  in: {webhook: {verify: {scheme: none}}}\n"
	run  = "    run: {exec: {command: [cat]}}\n"
	rule = hook + "triggers:\n  a:\n    connection: in\n" + run
)

func TestLoad(t *testing.T) {
	t.Run("an empty file is a configuration of defaults", func(t *testing.T) {
		for _, doc := range []string{"", "# only a comment\n", "---\n", "\ufeff", "triggers:\nconnections: ~\n", "x-anchors: {a: !weird [1, 1, {a: 1, a: 2}]}\n"} {
			if c := mustParse(t, doc); c.Server.Concurrency != 64 || len(c.Triggers) != 0 {
				t.Errorf("%q: concurrency %d, %d triggers", doc, c.Server.Concurrency, len(c.Triggers))
			}
		}
	})
	t.Run("CRLF, a BOM and a last line without its end are fine", func(t *testing.T) {
		doc := "\ufeff" + strings.ReplaceAll(strings.TrimSuffix(rule, "\n"), "\n", "\r\n")
		if c := mustParse(t, doc); c.Triggers["a"].Run.Exec == nil {
			t.Error("the trigger's action is lost")
		}
	})
	t.Run("a folder is the union of its files", func(t *testing.T) {
		dir := files(t, "a.yaml", hook, "b.yml", "triggers:\n  a:\n    connection: in\n"+run, "c.txt", "not: [yaml", ".hidden.yaml", "nor: [this", "sub/d.yaml", "nor: that")
		c, err := Load(Options{Files: []string{dir, filepath.Join(dir, "a.yaml")}})
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Triggers) != 1 || len(c.Connections) != 1 {
			t.Errorf("got %d triggers, %d connections", len(c.Triggers), len(c.Connections))
		}
		same(t, c.Sources(), []string{dir, filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yml")})
	})
	t.Run("sources name overlays and the files of secrets", func(t *testing.T) {
		dir := files(t, "a.yaml", "secrets: {s: {file: keys/s}}\n", "o.yaml", "server: {concurrency: 3}\n")
		c, err := Load(Options{Files: []string{filepath.Join(dir, "a.yaml")}, Overlays: []string{filepath.Join(dir, "o.yaml")}})
		if err != nil {
			t.Fatal(err)
		}
		same(t, c.Sources(), []string{filepath.Join(dir, "a.yaml"), filepath.Join(dir, "o.yaml"), filepath.Join(dir, "keys/s")})
	})
	t.Run("files that cannot be read are all named", func(t *testing.T) {
		dir := files(t, "empty/x.txt", "")
		_, err := Load(Options{Files: []string{filepath.Join(dir, "nope.yaml"), filepath.Join(dir, "empty")}, Overlays: []string{filepath.Join(dir, "gone.yaml")}})
		same(t, problemsOf(t, err), []string{
			"empty: folder holds no *.yaml or *.yml file",
			"gone.yaml: cannot be read: no such file or directory",
			"nope.yaml: cannot be read: no such file or directory",
		})
	})
	t.Run("no file at all is a problem", func(t *testing.T) {
		_, err := Load(Options{})
		same(t, problemsOf(t, err), []string{"no configuration file is named"})
	})
	t.Run("a broken file does not hide the problems of another, nor make problems of its own absence", func(t *testing.T) {
		dir := files(t, "a.yaml", "connections: [\n", "b.yaml", "triggers:\n  a:\n    conection: in\n"+run)
		_, err := Load(Options{Files: []string{dir}})
		same(t, problemsOf(t, err), []string{
			"a.yaml:2:1: did not find expected node content",
			"b.yaml:3:5: triggers.a.conection: unknown key (did you mean connection?)",
		})
	})
}

func TestUnion(t *testing.T) {
	load := func(t *testing.T, a, b string) (*Config, error) {
		dir := files(t, "a.yaml", a, "b.yaml", b)
		return Load(Options{Files: []string{filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")}, Env: env()})
	}
	t.Run("sections are joined key by key", func(t *testing.T) {
		c, err := load(t, "server: {concurrency: 3}\ntriggers:\n", "server: {drain_timeout: 5s}\n"+rule)
		if err != nil {
			t.Fatal(err)
		}
		if c.Server.Concurrency != 3 || c.Server.DrainTimeout.String() != "5s" || len(c.Triggers) != 1 {
			t.Errorf("got %+v", c.Server)
		}
	})
	t.Run("a clash names both places", func(t *testing.T) {
		_, err := load(t, rule+"server: {concurrency: 3}\n", rule+"server: {concurrency: 3}\n")
		got := problemsOf(t, err)
		if len(got) != 3 {
			t.Fatalf("got %d problems: %v", len(got), err)
		}
		for i, want := range []string{"b.yaml:2:3: connections.in: set twice, also at ", "b.yaml:4:3: triggers.a: set twice, also at ", "b.yaml:7:10: server.concurrency: set twice, also at "} {
			if !strings.HasPrefix(got[i], want) || !strings.Contains(got[i], "a.yaml:") || !strings.Contains(got[i], "overlay") {
				t.Errorf("got %s\nwant %s... with the other place", got[i], want)
			}
		}
	})
	t.Run("lists with names clash by name", func(t *testing.T) {
		_, err := load(t, "connections: [{name: in, push: {}}]\n", "connections: [{id: in, push: {}}]\n")
		if got := problemsOf(t, err); len(got) != 1 || !strings.HasPrefix(got[0], "b.yaml:1:20: connections.in: set twice") {
			t.Errorf("got %v", got)
		}
	})
}

func TestOverlay(t *testing.T) {
	base := "connections:\n  in: {webhook: {verify: {scheme: none}, max_body: 2KiB}}\n  other: {push: {}}\ntriggers:\n  a:\n    connection: [in, other]\n    retry: {attempts: 2, max_elapsed: 1h}\n" + run
	load := func(t *testing.T, overlays ...string) (*Config, error) {
		o := Options{Env: env()}
		for _, text := range overlays {
			o.Overlays = append(o.Overlays, filepath.Join(files(t, "over.yaml", text), "over.yaml"))
		}
		return Parse("base.yaml", []byte(base), o)
	}
	t.Run("merges mappings, replaces lists, removes with null, in order", func(t *testing.T) {
		c, err := load(t,
			"triggers: {a: {connection: [in], retry: {attempts: 9, max_elapsed: null}}}\nconnections: {other: null}\n",
			"triggers: {a: {retry: {attempts: 7}, enabled: false}}\n")
		if err != nil {
			t.Fatal(err)
		}
		a := c.Triggers["a"]
		if a.Retry.Attempts != 7 || a.Retry.MaxElapsed.String() != "1d" || len(a.Connection) != 1 || *a.Enabled || len(c.Connections) != 1 {
			t.Errorf("got %+v", a)
		}
		if got := c.Connections["in"].Webhook.MaxBody; got != 2048 {
			t.Errorf("max_body is %d", got)
		}
	})
	t.Run("null of a key that is not set is fine, of a name that is not there is a slip", func(t *testing.T) {
		_, err := load(t, "triggers: {a: {timeout: null, filtre: null}, aa: null}\nserver: {listen: null}\n")
		same(t, problemsOf(t, err), []string{
			"over.yaml:1:31: triggers.a.filtre: unknown key (did you mean filter?)",
			"over.yaml:1:50: triggers.aa: there is nothing of this name to remove (known: a)",
		})
	})
	t.Run("problems point into the overlay, and its paths are relative to it", func(t *testing.T) {
		_, err := load(t, "triggers:\n  a:\n    overlap: skp\n")
		same(t, problemsOf(t, err), []string{`over.yaml:3:14: triggers.a.overlap: "skp" is not one of queue, skip, allow (did you mean skip?)`})
		dir := files(t, "over.yaml", "secrets: {s: {file: key}}\n")
		c, err := Parse("/etc/base.yaml", []byte(base), Options{Overlays: []string{filepath.Join(dir, "over.yaml")}})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := c.Secrets["s"].File, filepath.Join(dir, "key"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
