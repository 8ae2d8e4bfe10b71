package configs

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/expr"
)

var update = flag.Bool("update", false, "write schema.json")

func TestSchemaFileIsUpToDate(t *testing.T) {
	want, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("schema.json does not follow from the types: run go test ./configs -run Schema -update")
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, s *jsonschema.Schema, doc string) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(doc), &v); err != nil {
		t.Fatal(err)
	}
	if v == nil {
		v = map[string]any{}
	}
	return s.Validate(v)
}

func exampleFiles(t *testing.T) []string {
	t.Helper()
	out, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(out) < 3 {
		t.Fatalf("got examples %v, %v", out, err)
	}
	return append(out, "quickstart.yaml")
}

func TestExamples(t *testing.T) {
	schema := compileSchema(t)
	for _, file := range exampleFiles(t) {
		t.Run(file, func(t *testing.T) {
			c, err := Load(Options{Files: []string{file}, Env: env(), AllowUnset: file != "quickstart.yaml"})
			if err != nil {
				t.Fatalf("problems:\n%v", err)
			}
			if len(c.Triggers) < 1 {
				t.Error("no trigger")
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(t, schema, string(data)); err != nil {
				t.Errorf("schema: %v", err)
			}
		})
	}
}

// The expressions of the quickstart do what its comments say.
func TestQuickstartExpressions(t *testing.T) {
	c, err := Load(Options{Files: []string{"quickstart.yaml"}, Env: env()})
	if err != nil {
		t.Fatal(err)
	}
	per := c.Triggers["per-user"]
	filter, err := expr.CompileBool(per.Filter, expr.Decision)
	if err != nil {
		t.Fatal(err)
	}
	input, err := expr.CompileTemplate(*per.Input, expr.Decision)
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{"user":"ann","text":"hi"}`: "ann says hi",
		`{"user":"ann"}`:             "ann says nothing",
		`{"text":"hi"}`:              "",
		`"hi"`:                       "",
		`not JSON`:                   "",
		``:                           "",
	} {
		v := expr.NewVars(&triggerd.Event{ID: "1", Type: "webhook.received", ContentType: "application/json", Payload: []byte(body)}, "hello")
		ok, err := filter.Bool(v)
		if err != nil || ok != (want != "") {
			t.Errorf("%s: filter is %v, %v", body, ok, err)
		}
		if !ok {
			continue
		}
		if got, err := input.Render(v, nil); err != nil || got != want {
			t.Errorf("%s: input is %v, %v; want %s", body, got, err, want)
		}
	}
}

// What the schema refuses the loader refuses, and what the loader takes the schema takes.
func TestSchemaAgreesWithTheLoader(t *testing.T) {
	schema := compileSchema(t)
	good := []string{
		"", "triggers:\n", rule, "x-a: {b: c}\n",
		"connections: {a: {cron: '@every 5m'}, b: {push: {}}}\n",
		"connections: [{name: a, push: {max_bytes: 1048576}}, {id: b, push: {max_bytes: 1.5GiB}}]\n",
		rule + "    thread: event.id\n    event: a.b\n    timeout: 1h30m\n    concurrency: [{limit: 1}]\n",
		rule + "    thread: {key: event.id, scope: s}\n    event: [a.b]\n    enabled: false\n",
		rule + "    enabled: ${ON:-true}\n    timeout: ${T:-5m}\n    retry: {attempts: \"${N:-3}\"}\n    overlap: ${O:-skip}\n",
		"history: {events: 7d, events_size: 1GiB, turns: 4w}\nserver: {drain_timeout: 0}\n",
		"nats: {url: nats://x, replicas: 3}\n", "nats: {url: [nats://x, tls://y], token: x, prefix: my-app}\n",
		"secrets: {a: {file: x}}\n", "server: {labels: {host: '${NODE:-a}', \"1\": b_c-d}, metrics: {listen: '127.0.0.1:9464'}}\n",
		"nats: {url: nats://x}\n" + rule + "    runs_on: {gpu: yes}\n", rule + "    runs_on: {}\n",
	}
	bad := []string{
		"nope: 1\n", "server: {concurrency: 0}\n", "server: {concurrency: 1.5}\n", "server: []\n", "nats: {replicas: 6}\n",
		"history: {events: 5}\n", "history: {events_size: 5KB}\n", "history: {events_size: -1}\n",
		"connections: {a: {}}\n", "connections: {a: {push: {}, cron: '@daily'}}\n", "connections: {1a: {push: {}}}\n",
		"connections: {a: {webhook: {}}}\n", "connections: {a: {webhook: {verify: {scheme: nobody}}}}\n",
		"connections: [{push: {}}]\n", "connections: [{name: a, id: b, push: {}}]\n", "connections: {a: {cron: {timezone: UTC}}}\n",
		rule + "    overlap: sometimes\n", rule + "    filter: ''\n", rule + "    filter: true\n", rule + "    labels: {a: 1}\n",
		rule + "    event: []\n", rule + "    thread: 5\n", rule + "    concurrency: [{}]\n", rule + "    enabled: 1\n",
		hook + "triggers: {a: {connection: in}}\n", hook + "triggers: {a: {connection: in, run: {}}}\n",
		hook + "triggers: {a: {connection: in, run: {exec: {command: []}}}}\n",
		hook + "triggers: {a: {connection: in, run: {exec: {command: [x], exit_codes: {dead: [256]}}}}}\n",
		"server: {labels: {host: 1}}\n", "server: {labels: {a.b: c}}\n", "server: {labels: {a: b/c}}\n", "server: {labels: {a: ''}}\n", "server: {metrics: ':9464'}\n",
		rule + "    runs_on: gpu\n", rule + "    runs_on: {a: x, b: x, c: x, d: x, e: x, f: x, g: x, h: x, i: x}\n",
		"triggers: {a: {run: {exec: {command: [x]}}}}\n", "secrets: {a: {}}\n", "secrets: {a: {env: x, file: y}}\n",
	}
	for _, doc := range good {
		mustParse(t, doc)
		if err := validate(t, schema, doc); err != nil {
			t.Errorf("the schema refuses\n%s\n%v", doc, err)
		}
	}
	for _, doc := range bad {
		if _, err := Parse("t.yaml", []byte(doc), testOptions()); err == nil {
			t.Errorf("the loader takes\n%s", doc)
		}
		if err := validate(t, schema, doc); err == nil {
			t.Errorf("the schema takes\n%s", doc)
		}
	}
}

// Every key has a comment for its description, and tags that parse.
func TestTypesAreDocumented(t *testing.T) {
	comments, err := typeComments()
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range append(structTypes(reflect.TypeFor[Config]()), reflect.TypeFor[Config]()) {
		if comments[st.Name()+"."] == "" {
			t.Errorf("type %s has no comment", st.Name())
		}
		for i := range st.NumField() {
			f := st.Field(i)
			if yamlKey(f) == "" {
				continue
			}
			if comments[st.Name()+"."+f.Name] == "" {
				t.Errorf("%s.%s has no comment", st.Name(), f.Name)
			}
			typ := f.Type
			if typ.Kind() == reflect.Slice {
				typ = typ.Elem()
			}
			for _, tag := range []string{"min", "max", "default"} {
				if s := f.Tag.Get(tag); s != "" && typ.Kind() != reflect.String && typ.Kind() != reflect.Pointer {
					parseBound(typ, s) // panics on a bad tag
				}
			}
			if words := f.Tag.Get("enum"); words != "" && f.Tag.Get("default") != "" && !strings.Contains("|"+words+"|", "|"+f.Tag.Get("default")+"|") {
				t.Errorf("%s.%s: the default is not one of the words", st.Name(), f.Name)
			}
		}
	}
}
