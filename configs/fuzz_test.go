package configs

import (
	"os"
	"strings"
	"testing"
)

// No input makes the loader panic or hang, every problem has a place, and a configuration that is accepted is accepted again with the same meaning.
func FuzzLoad(f *testing.F) {
	for _, file := range []string{"quickstart.yaml", "examples/backup.yaml", "examples/orders.yaml", "examples/webhook-to-http.yaml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, seed := range []string{
		"", "---\n...\n", "a: 1\n---\nb: 2\n", "\ufeff\r\n", "\x00", "\xff\xfe", "\t- x", "{[", rule,
		"connections: {a: {cron: 'TZ=UTC'}}\n", "connections: {a: {cron: 'CRON_TZ= 0 0 * * *'}}\n", "connections: {a: {cron: '@every '}}\n", "connections: {a: {cron: '0 0 30 2 *'}}\n",
		"triggers:\n  a:\n    cron: */5 * * * *\n    filter: !x\n", "triggers: {a: {connection: triggerd, filter: '${{', run: {exec: {command: ['${A:-${B}}']}}}}\n",
		"a: &a [*a]\n", "server: &a {admin: *a}\n", "server: {<<: [*x]}\n", "? {a: b}\n: c\n", "&a *a : 1\n",
		"x: &x [1]\ny: &y [*x,*x,*x]\nserver: [*y,*y,*y]\n", "secrets:\n- name: a\n  id: b\n- a\n-\n", strings.Repeat("[", 2000), strings.Repeat("a: *x\n", 60),
		"history: {events: 99999999999999w, events_size: 9.9999999999TiB}\n", "connections: {f: {files: {paths: ['{', '[!']}}}\n",
		"triggers: {a: {push: {}, thread: |\n  x\n\n   y\n, run: {publish: {subject: 'a.${{ {\"a\": {}} }}'}}}}\n", "nats: {url: '%zz', token: '${{ secrets. }}'}\n",
	} {
		f.Add([]byte(seed))
	}
	o := Options{Env: func(k string) (string, bool) { return "v", k == "A" }}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("t.yaml", data, o)
		if err != nil {
			for _, p := range err.(*Errors).Problems {
				if p.File == "" || p.Msg == "" || p.Line < 0 || p.Line > 0 && p.Column < 1 {
					t.Errorf("a problem without a place or a message: %+v", p)
				}
			}
			return
		}
		again, err := Parse("t.yaml", data, o)
		if err != nil {
			t.Fatalf("refused the second time: %v", err)
		}
		if change := Diff(c, again); !change.Empty() || c.Version() != again.Version() {
			t.Fatalf("the same file differs: %+v", change)
		}
	})
}
