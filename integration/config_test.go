package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// cli runs the binary in a folder with exactly this environment besides PATH.
func cli(t *testing.T, dir string, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(defaultBinary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &errs, dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// P21: each file with the problems that it must be refused for, as line:column and path.
var badConfigs = []struct {
	name, text string
	want       []string
}{
	{"several problems at once", `
conections: {}
connections:
  in: { webhook: { verify: { scheme: nonne } } }
  in2: { webhook: { verify: { scheme: none } }, cron: '* * * * *' }
triggers:
  a: { connection: inn, run: { exec: { command: [x] } } }
  b: { connection: in, filter: 'event.payload.n >', run: { http: { url: 'http://x' } } }
  c: { connection: in, timeout: soon, run: { exec: { command: [] } } }
`, []string{
		"bad.yaml:2:1: conections: ", "did you mean", "bad.yaml:4:38: connections.in.webhook.verify.scheme: ", "connections.in2",
		"bad.yaml:7:20: triggers.a.connection", "triggers.b.filter: ", "bad.yaml:9:33: triggers.c.timeout: ", "triggers.c.run.exec.command: ",
	}},
	{"duplicate key", "connections:\n  in: { webhook: { verify: { scheme: none } } }\n  in: { push: {} }\n", []string{"bad.yaml:3:3: ", "connections.in"}},
	{"not YAML", "connections: [\n", []string{"bad.yaml:"}},
	{"unset variables", `
connections:
  a: { files: { paths: ['${TRIGGERD_TEST_UNSET}/x'] } }
  b: { files: { paths: ['${TRIGGERD_TEST_OTHER}/x', '${TRIGGERD_TEST_SET}/y', '${TRIGGERD_TEST_THIRD:-/z}'] } }
`, []string{"bad.yaml:3:", "connections.a.files.paths[0]: ", "TRIGGERD_TEST_UNSET", "bad.yaml:4:", "connections.b.files.paths[0]: ", "TRIGGERD_TEST_OTHER"}},
	{"a filter that YAML would swallow", `
connections:
  in: { webhook: { verify: { scheme: none } } }
triggers:
  a:
    connection: in
    filter: !event.payload.bot
    run: { exec: { command: [x] } }
  b:
    connection: in
    filter:
    run: { exec: { command: [x] } }
`, []string{"bad.yaml:7:", "triggers.a.filter", "quote", "bad.yaml:11:", "triggers.b.filter"}},
	{"schedules that cannot be", `
triggers:
  a: { cron: { schedule: '0 0 30 2 *', timezone: UTC }, run: { exec: { command: [x] } } }
  b: { cron: { schedule: '0 8 * * *', timezone: Mars/Base }, run: { exec: { command: [x] } } }
  c: { cron: { schedule: '0 0 8 * * *', timezone: UTC }, run: { exec: { command: [x] } } }
`, []string{"bad.yaml:3:", "triggers.a.cron.schedule: ", "bad.yaml:4:49: triggers.b.cron.timezone: ", "triggers.c.cron.schedule: "}},
	{"a secret that nobody defines", `
connections:
  in: { webhook: { verify: { scheme: bearer, secrets: [nobody] } } }
triggers:
  a: { connection: in, run: { http: { url: 'http://x', headers: { X: '${{ secrets.noone }}' } } } }
  b: { connection: in, filter: 'secrets.nobody == event.payload', run: { exec: { command: [x] } } }
`, []string{"bad.yaml:3:", "nobody", "bad.yaml:5:", "noone", "bad.yaml:6:", "triggers.b.filter"}},
}

func TestValidateNamesEveryProblem(t *testing.T) {
	for _, bad := range badConfigs {
		t.Run(bad.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "bad.yaml"), bad.text)
			env := []string{"TRIGGERD_TEST_SET=/set"}
			out, errs, code := cli(t, dir, env, "validate", "--config", "bad.yaml")
			if code != 1 || errs == "" {
				t.Errorf("exit code %d, stderr %q; want 1 and a summary", code, errs)
			}
			mustContain(t, "validate", out, bad.want...)
			if strings.Contains(out, "TRIGGERD_TEST_SET") || strings.Contains(out, "TRIGGERD_TEST_THIRD") {
				t.Errorf("variables that have a value are no problem:\n%s", out)
			}

			served, log, code := cli(t, dir, env, "serve", "--config", "bad.yaml")
			if code != 1 || served != "" {
				t.Errorf("serve: exit code %d, output %q", code, served)
			}
			for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
				if !strings.Contains(log, line) {
					t.Errorf("serve does not say %q:\n%s", line, log)
				}
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
				t.Errorf("serve left %v, %v", left, err)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "good.yaml"), "connections:\n  in: { webhook: { verify: { scheme: none } } }\n  f: { files: { paths: ['${TRIGGERD_TEST_UNSET}/x'] } }\n")
	writeFile(t, filepath.Join(dir, "ci.env"), "TRIGGERD_TEST_UNSET=/from/file\n")
	for _, c := range []struct {
		args string
		env  []string
		code int
	}{
		{"validate --config good.yaml", []string{"TRIGGERD_TEST_UNSET=/x"}, 0},
		{"validate --config good.yaml", nil, 1},
		{"validate --config good.yaml --allow-unset", nil, 0},
		{"validate --config good.yaml --env-file ci.env", nil, 0},
		{"validate --config absent.yaml", nil, 1},
		{"validate", nil, 2},
		{"validate --colour", nil, 2},
		{"validat", nil, 2},
		{"turns", nil, 2},
		{"serve --log-level loud --config good.yaml", nil, 2},
		{"turns show", nil, 2},
		{"turns list --limit 0 --config good.yaml", nil, 2},
		{"turns list --config good.yaml", nil, 1}, // no daemon
		{"--help", nil, 0},
		{"version", nil, 0},
		{"schema", nil, 0},
	} {
		t.Run(fmt.Sprintf("%s %v", c.args, c.env), func(t *testing.T) {
			out, errs, code := cli(t, dir, c.env, strings.Fields(c.args)...)
			if code != c.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, out, errs)
			}
			if code == 0 && out == "" || code == 2 && errs == "" {
				t.Errorf("exit code %d with output %q and errors %q", code, out, errs)
			}
		})
	}
}
