package triggerd_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/triggerd/triggerd"

// importRules hold the direction of the arrows (package layout in docs/concepts.md). A package may import the ones listed, directly or not, and of ours no other.
// `daemon` is the only one that wires, so it has no rule; commands, whole-process tests and benchmarks stand on top of it.
var importRules = []struct {
	pkg   string
	allow []string
	why   string
}{
	{"", nil, "every package imports the root package, so it must import none, and only the standard library"},
	{"failpoint", nil, "kill points stand anywhere, so they may need nothing"},
	{"supervise/early", []string{"supervise"}, "it runs before everything else in the process"},
	{"supervise", nil, "it is started anew for each command: what it imports costs memory and start-up time per command"},
	{"expr", []string{""}, "a leaf, so that configs can check expressions with the code that evaluates them"},
	{"configs", []string{"", "cron", "expr", "sources"}, "it knows the shape of the files and nothing of what runs, but for the parsers that read its expressions and schedules"},
	{"bus", []string{"", "failpoint"}, "names and limits in NATS, no logic of the layers above"},
	{"cursor", []string{"", "bus", "failpoint"}, "positions must not know inbox, triggers or turns: each is tested and read alone"},
	{"inbox", []string{"", "bus", "failpoint"}, "the inbox asks a Decider and tells an Opener; it knows neither triggers nor turns"},
	{"triggers", []string{"", "expr"}, "decisions are pure: no storage, no turns"},
	{"turns", []string{"", "bus", "failpoint"}, "turns run what an interface does; which triggers exist and how they decide is not theirs"},
	{"turns/action", []string{"", "bus", "expr", "failpoint", "supervise", "turns"}, "an action needs templates and its contract, nothing that decides or stores"},
	{"sources", []string{""}, "the contract of sources must not know any source"},
	{"sources/sourcetest", []string{"", "sources"}, "the suite runs against the contract"},
	{"sources/webhook", []string{"", "expr", "sources"}, "a source emits; where events go is not its business"},
	{"sources/files", []string{"", "expr", "sources"}, "a source emits; where events go is not its business"},
	{"sources/natspush", []string{"", "expr", "sources"}, "a source emits; where events go is not its business"},
	{"cron", []string{"", "sources"}, "a schedule computes, its source emits; neither reads configuration"},
	{"crontab", []string{"", "cron", "sources"}, "it turns text into text: the parser of schedules is all that it needs, and the configuration that it writes is a file like any other"},
	{"console", []string{""}, "the API is an interface with a client; the daemon implements it"},
}

func TestImportRules(t *testing.T) {
	for _, rule := range importRules {
		t.Run(strings.Trim("triggerd/"+rule.pkg, "/"), func(t *testing.T) {
			for _, dep := range dependencies(t, rule.pkg) {
				name, ours := strings.CutPrefix(dep, module)
				name = strings.TrimPrefix(name, "/")
				if ours && name != rule.pkg && !slices.Contains(rule.allow, name) {
					t.Errorf("%q imports %q: %s", rule.pkg, name, rule.why)
				}
				if rule.pkg == "" && !ours && strings.Contains(strings.Split(dep, "/")[0], ".") {
					t.Errorf("the root package imports %s: %s", dep, rule.why)
				}
			}
		})
	}
}

func TestEveryPackageHasAnImportRule(t *testing.T) {
	top := []string{"daemon", "cmd/triggerd", "integration", "bench", "bus/bustest", "bus/bustest/disk", "console/consoletest"}
	out, err := exec.Command("go", "list", "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for _, pkg := range strings.Fields(string(out)) {
		name := strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
		ruled := slices.Contains(top, name)
		for _, rule := range importRules {
			ruled = ruled || rule.pkg == name
		}
		if !ruled {
			t.Errorf("package %q has no import rule: add one, with its reason", name)
		}
	}
}

func dependencies(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", strings.TrimSuffix("./"+pkg, "/")).CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	return strings.Fields(string(out))
}
