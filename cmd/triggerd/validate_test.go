package main

import (
	"encoding/json"
	"maps"
	"runtime/debug"
	"strings"
	"testing"
)

const goodConfig = `
secrets: { token: { env: HOOK_TOKEN } }
connections:
  orders: { push: {} }
triggers:
  hello:
    webhook: { verify: { scheme: bearer, secrets: [token] } }
    run: { exec: { command: [echo, "${GREETING}"] } }
  ship:
    connection: orders
    run: { exec: { command: [cat] } }
`

func TestValidate(t *testing.T) {
	files := func() map[string]string {
		return map[string]string{"triggerd.yaml": goodConfig, "ci.env": "GREETING=hi\nHOOK_TOKEN=geheim-geheim\n",
			"bad.yaml": "triggerz: {}\nserver: { concurrency: none }\n", "one.yaml": "connections: { a: { push: {} } }"}
	}
	t.Run("counts what it found", func(t *testing.T) {
		workIn(t, files())
		t.Setenv("GREETING", "hi")
		t.Setenv("HOOK_TOKEN", "geheim-geheim")
		expect(t, runWith(t, "", nil, "validate"), exitOK, "ok: 2 connections, 2 triggers\n")
		expect(t, runWith(t, "", nil, "validate", "--json"), exitOK, "[]\n")
		expect(t, runWith(t, "", nil, "validate", "--config", "one.yaml"), exitOK, "ok: 1 connection, 0 triggers\n")
	})
	t.Run("an unset variable is a problem unless it is allowed or in the file", func(t *testing.T) {
		workIn(t, files())
		r := runWith(t, "", nil, "validate")
		if r.code != exitFailure || !strings.Contains(r.out, "triggerd.yaml:8:") || !strings.Contains(r.out, "GREETING") {
			t.Fatalf("%+v", r)
		}
		expect(t, runWith(t, "", nil, "validate", "--allow-unset"), exitOK, "ok: 2 connections, 2 triggers\n")
		expect(t, runWith(t, "", nil, "validate", "--env-file", "ci.env"), exitOK, "ok: 2 connections, 2 triggers\n")
	})
	t.Run("prints every problem on stdout", func(t *testing.T) {
		workIn(t, files())
		r := runWith(t, "", nil, "validate", "--config", "bad.yaml")
		if r.code != exitFailure || strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out, "bad.yaml:1:1: ") || !strings.Contains(r.out, "bad.yaml:2:") || r.err != "triggerd: 2 problems\n" {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("problems as JSON", func(t *testing.T) {
		workIn(t, files())
		r := runWith(t, "", nil, "validate", "--config", "bad.yaml", "--json")
		var list []problem
		if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list) != 2 {
			t.Fatalf("%v: %+v", err, r)
		}
		if p := list[0]; r.code != exitFailure || r.err != "" || p.File != "bad.yaml" || p.Line != 1 || p.Column != 1 || p.Message == "" {
			t.Fatalf("%+v: %+v", r, p)
		}
	})
	t.Run("files that are missing", func(t *testing.T) {
		workIn(t, files())
		if r := runWith(t, "", nil, "validate", "--config", "nope.yaml"); r.code != exitFailure || !strings.Contains(r.out, "nope.yaml") {
			t.Fatalf("%+v", r)
		}
		if r := runWith(t, "", nil, "validate", "--env-file", "nope.env"); r.code != exitFailure || !strings.Contains(r.err, "nope.env") {
			t.Fatalf("%+v", r)
		}
	})
}

func TestParseEnv(t *testing.T) {
	got, err := parseEnv("\uFEFF# comment\r\n\nA=1\nexport B = two words \nC='single \"$x\" \\n'\nD=\"a\\\"b\\\\n\\nc\"\nE=\nF=a=b#c\nA=2\n")
	want := map[string]string{"A": "2", "B": "two words", "C": `single "$x" \n`, "D": "a\"b\\n\nc", "E": "", "F": "a=b#c"}
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("got %q, %v", got, err)
	}
	for text, says := range map[string]string{"A=1\nno sign secret": "line 2", "1A=secret": "line 1", "=secret": "line 1", "A=\"secret": "no closing", "A='": "no closing"} {
		if _, err := parseEnv(text); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func TestSchema(t *testing.T) {
	r := runWith(t, "", nil, "schema")
	var doc map[string]any
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil || r.code != exitOK || doc["$schema"] == nil || !strings.HasSuffix(r.out, "}\n") {
		t.Fatalf("exit %d, %v", r.code, err)
	}
}

func TestVersion(t *testing.T) {
	t.Run("from the linker", func(t *testing.T) {
		v := readVersions(&debug.BuildInfo{
			Main:     debug.Module{Version: "v1.2.3"},
			Deps:     []*debug.Module{{Path: "other"}, {Path: "github.com/nats-io/nats-server/v2", Version: "v2.15.3"}},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
		})
		if v.Version != "v1.2.3" || v.Revision != "abc-dirty" || v.NATSServer != "v2.15.3" || v.Go == "" {
			t.Fatalf("%+v", v)
		}
	})
	t.Run("from the build command, whatever else is known", func(t *testing.T) {
		version = "v9.8.7"
		defer func() { version = "" }()
		for _, info := range []*debug.BuildInfo{nil, {Main: debug.Module{Version: "v0.0.0-20260101000000-abcdef123456+dirty"}}} {
			if v := readVersions(info); v.Version != "v9.8.7" {
				t.Fatalf("%+v", v)
			}
		}
	})
	t.Run("from a build without information", func(t *testing.T) {
		for _, info := range []*debug.BuildInfo{nil, {Main: debug.Module{Version: "(devel)"}}} {
			if v := readVersions(info); v.Version != "devel" || v.Revision != "" || v.NATSServer != "unknown" {
				t.Fatalf("%+v", v)
			}
		}
	})
	t.Run("printed", func(t *testing.T) {
		var v versions
		r := runWith(t, "", nil, "version", "--json")
		if err := json.Unmarshal([]byte(r.out), &v); err != nil || v.Go == "" || v.Platform == "" {
			t.Fatalf("%v: %+v", err, r)
		}
		if r := runWith(t, "", nil, "version"); r.code != exitOK || !strings.Contains(r.out, "nats-server  ") {
			t.Fatalf("%+v", r)
		}
	})
}
