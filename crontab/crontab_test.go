package crontab_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/triggerd/triggerd/configs"
	"github.com/triggerd/triggerd/crontab"
)

func TestCommand(t *testing.T) {
	for _, c := range []struct{ name, rest, command, stdin string }{
		{"plain", "/bin/backup --full", "/bin/backup --full", ""},
		{"blanks within and behind stay", "echo  a\tb ", "echo  a\tb ", ""},
		{"a percent sign starts the input", "cat%a%b", "cat", "a\nb\n"},
		{"input that ends with a line break gets no second one", "cat%a%", "cat", "a\n"},
		{"an empty input", "cat%", "cat", ""},
		{"empty lines of input", "cat%%%a", "cat", "\n\na\n"},
		{"an escaped percent sign", `date +\%F`, "date +%F", ""},
		{"an escaped percent sign of the input", `cat%10\% of%20`, "cat", "10% of\n20\n"},
		{"other backslashes stay", `printf 'a\nb\\c\' \`, `printf 'a\nb\\c\' \`, ""},
		{"a backslash that is escaped escapes nothing in a command", `a\\%b`, `a\\`, "b\n"},
		{"but it does in the input", `a%b\\%c`, "a", "b\\%c\n"},
		{"a backslash at the end of the input", `a%b\`, "a", "b\\\n"},
		{"three of them", `a\\\%b`, `a\\%b`, ""},
		{"variables are the shell's", `echo $HOME ${HOME} $$ $$$ $(id) ${x:-y} $${a} "$"`, `echo $HOME ${HOME} $$ $$$ $(id) ${x:-y} $${a} "$"`, ""},
		{"templates are text", `echo ${{ x }} $${{ x }} $$${{x}} {{ y }} ${{`, `echo ${{ x }} $${{ x }} $$${{x}} {{ y }} ${{`, ""},
		{"templates of the input too", `cat%${{ secrets.a }} ${A} $$`, "cat", "${{ secrets.a }} ${A} $$\n"},
		{"quotes", `echo "it's" 'a "b"' ''`, `echo "it's" 'a "b"' ''`, ""},
		{"signs that YAML knows", `echo # - : & * ! | > ' @ [ ] { } , ? ~`, `echo # - : & * ! | > ' @ [ ] { } , ? ~`, ""},
		{"a dash at the start", "-x", "-x", ""},
		{"a word of YAML", "null", "null", ""},
		{"a number", "1e3", "1e3", ""},
		{"unicode", "echo ä 日本 \U0001F600 \u00a0\u2028\u0085\ufeff\ufffd", "echo ä 日本 \U0001F600 \u00a0\u2028\u0085\ufeff\ufffd", ""},
		{"control characters", "printf \x01\x1b[0m\x7f\x0b", "printf \x01\x1b[0m\x7f\x0b", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := read(t, "* * * * * "+c.rest+"\n", options())
			if len(r.Jobs) != 1 || r.Jobs[0].Command != c.command || r.Jobs[0].Stdin != c.stdin {
				t.Fatalf("%+v, want the command %q and the input %q", r.Jobs, c.command, c.stdin)
			}
			same(t, r)
		})
	}
}

func TestTime(t *testing.T) {
	for _, c := range []struct{ line, schedule string }{
		{"0 3 * * 7 x", "0 3 * * 7"},
		{"*/5\t8-18/2 1,15\t\tjan-MAR  Mon,wed x", "*/5 8-18/2 1,15 jan-MAR Mon,wed"},
		{" \t0 3 * * * x", "0 3 * * *"},
		{"@hourly x", "@hourly"}, {"@daily x", "@daily"}, {"@midnight\tx", "@midnight"}, {"@weekly x", "@weekly"},
		{"@monthly x", "@monthly"}, {"@yearly x", "@yearly"}, {"@annually x", "@annually"}, {"@reboot x", "@reboot"},
		{"-0 3 * * * x", "0 3 * * *"},
	} {
		if j := one(t, c.line); j.Schedule != c.schedule || j.Command != "x" {
			t.Errorf("%q: schedule %q of %q", c.line, j.Schedule, j.Command)
		}
	}
	t.Run("a step after a value", func(t *testing.T) {
		r := read(t, "5/15 * * * * x", options())
		same(t, r)
		if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0].Text, `minute field "5/15"`) {
			t.Fatalf("%+v", r.Warnings)
		}
	})
}

func TestSetting(t *testing.T) {
	for _, c := range []struct{ line, name, value string }{
		{"A=b", "A", "b"},
		{"  A = b c \t", "A", "b c"},
		{`A=" b "`, "A", " b "},
		{`A=' "b" '  `, "A", ` "b" `},
		{`"A" = 'b'`, "A", "b"},
		{`A=b "c"`, "A", `b "c"`},
		{`A=b'`, "A", "b'"},
		{`A=""`, "A", ""},
		{`A=`, "A", ""},
		{`A=b # c`, "A", "b # c"},
		{`A=$HOME/${B}:${{ x }}\n%`, "A", `$HOME/${B}:${{ x }}\n%`},
		{`A==`, "A", "="},
		{`n=1`, "n", "1"},
		{`null=null`, "null", "null"},
	} {
		r := read(t, c.line+"\n* * * * * x\n", options())
		if len(r.Jobs) != 1 || !slices.Equal(r.Jobs[0].Env, []crontab.Variable{{Name: c.name, Value: c.value}}) {
			t.Errorf("%q: %+v", c.line, r.Jobs)
		}
		same(t, r)
	}
	t.Run("a setting holds for the jobs below it", func(t *testing.T) {
		r := read(t, "* * * * * a\nX=1\nSHELL=/bin/bash\n* * * * * b\nX=2\nHOME=/srv\n* * * * * c\n", options())
		same(t, r)
		a, b, c := r.Jobs[0], r.Jobs[1], r.Jobs[2]
		if len(a.Env) != 0 || a.Shell != "/bin/sh" || a.Home != "" {
			t.Errorf("%+v", a)
		}
		if !slices.Equal(b.Env, []crontab.Variable{{Name: "X", Value: "1"}, {Name: "SHELL", Value: "/bin/bash"}}) || b.Shell != "/bin/bash" || b.Home != "" {
			t.Errorf("%+v", b)
		}
		if !slices.Equal(c.Env, []crontab.Variable{{Name: "X", Value: "2"}, {Name: "SHELL", Value: "/bin/bash"}, {Name: "HOME", Value: "/srv"}}) || c.Home != "/srv" {
			t.Errorf("%+v", c)
		}
		cfg := load(t, r)
		if home, srv := cfg.Triggers["a"].Run.Exec.Dir, cfg.Triggers["c"].Run.Exec.Dir; home != "/home/ann" || srv != "/srv" {
			t.Errorf("start in %q and %q", home, srv)
		}
	})
	t.Run("what is cron's own goes to the jobs that use it", func(t *testing.T) {
		r := read(t, "MAILTO=ann\nCRON_TZ=UTC\n* * * * * mail $MAILTO\n* * * * * b\n", options())
		same(t, r)
		if a, b := r.Jobs[0], r.Jobs[1]; !slices.Equal(a.Env, []crontab.Variable{{Name: "MAILTO", Value: "ann"}}) || len(b.Env) != 0 {
			t.Errorf("%+v, %+v", a, b)
		}
	})
	t.Run("LOGNAME cannot be set", func(t *testing.T) {
		r := read(t, "LOGNAME=ann\n* * * * * b\n", options())
		if len(r.Jobs[0].Env) != 0 || len(r.Warnings) != 1 {
			t.Errorf("%+v", r)
		}
	})
}

func TestZone(t *testing.T) {
	r := read(t, "0 1 * * * a\nCRON_TZ=Asia/Tokyo\n0 1 * * * b\nTZ=UTC\n0 1 * * * c\n", options())
	same(t, r)
	for i, want := range []string{"Europe/Berlin", "Asia/Tokyo", "Asia/Tokyo"} {
		if got := r.Jobs[i].Timezone; got != want {
			t.Errorf("job %d is in %q, want %q", i, got, want)
		}
	}
	if !bytes.Contains(r.YAML, []byte("assumed to be in Europe/Berlin (--timezone)")) || len(r.Warnings) != 1 || r.Warnings[0].Line != 4 {
		t.Errorf("%+v\n%s", r.Warnings, r.YAML)
	}
	t.Run("TZ", func(t *testing.T) {
		r := read(t, "TZ=:Asia/Tokyo\n0 1 * * * a\nTZ=CET-1CEST\n0 1 * * * b\n", options())
		same(t, r)
		a, b := r.Jobs[0], r.Jobs[1]
		if a.Timezone != "Europe/Berlin" || b.Timezone != "Europe/Berlin" || a.Env[0].Value != ":Asia/Tokyo" || b.Env[0].Value != "CET-1CEST" {
			t.Errorf("%+v, %+v", a, b)
		}
		if len(r.Warnings) != 2 || r.Warnings[0].Line != 1 || r.Warnings[1].Line != 3 {
			t.Errorf("%+v", r.Warnings)
		}
	})
	t.Run("nothing is assumed where every job has a zone", func(t *testing.T) {
		if r := read(t, "CRON_TZ=Asia/Tokyo\n0 1 * * * b\n", options()); bytes.Contains(r.YAML, []byte("assumed")) {
			t.Errorf("%s", r.YAML)
		}
	})
}

func TestSecrets(t *testing.T) {
	const text = "DB_PASSWORD=geheim-1\n0 1 * * * a\nDB_PASSWORD = 'geheim-2'\nDATABASE_URL=postgres://ann:geheim-3@db/x\n_KEY=geheim-4\napi_token=geheim-5\nSSH_KEY=\n" +
		"# PASSWORD: geheim-6, see postgres://ann:geheim-7@db\n0 1 * * * b\nDB_PASSWORD=geheim-1\n0 1 * * * c\n"
	r := read(t, text, options())
	same(t, r)
	said := string(r.YAML)
	for _, w := range r.Warnings {
		said += w.Text
	}
	if strings.Contains(said, "geheim") {
		t.Fatalf("a secret is told:\n%s", said)
	}
	want := map[string]configs.Secret{
		"DB_PASSWORD": {Env: "DB_PASSWORD"}, "DB_PASSWORD_2": {Env: "DB_PASSWORD_2"}, "DATABASE_URL": {Env: "DATABASE_URL"}, "KEY": {Env: "_KEY"}, "api_token": {Env: "api_token"},
	}
	if got := load(t, r).Secrets; !maps.Equal(got, want) {
		t.Errorf("secrets %v, want %v", got, want)
	}
	if r.Jobs[0].Env[0].Secret != "DB_PASSWORD" || r.Jobs[1].Env[0].Secret != "DB_PASSWORD_2" || r.Jobs[2].Env[0].Secret != "DB_PASSWORD" {
		t.Errorf("%+v", r.Jobs)
	}
	t.Run("each has a name of its own", func(t *testing.T) {
		long := strings.Repeat("A", 80) + "_KEY"
		r := read(t, "_KEY=a\nKEY=b\nKEY=c\n__=a://b:c@d\nimport=a://b:c@d\n"+long+"1=a\n"+long+"2=b\n@daily x\n", options())
		same(t, r)
		short := strings.Repeat("A", 56)
		want := map[string]configs.Secret{
			"KEY": {Env: "_KEY"}, "KEY_2": {Env: "KEY"}, "KEY_3": {Env: "KEY_2"}, "secret": {Env: "__"}, "import": {Env: "import"}, short: {Env: long + "1"}, short + "_2": {Env: long + "2"},
		}
		if got := load(t, r).Secrets; !maps.Equal(got, want) {
			t.Errorf("secrets %v, want %v", got, want)
		}
	})
	t.Run("in a command it is warned of", func(t *testing.T) {
		for _, command := range []string{"PGPASSWORD=x1 psql", "tool --token=x1", "curl https://ann:x1@example.com"} {
			r := read(t, "@daily "+command, options())
			same(t, r)
			if len(r.Warnings) != 1 || strings.Contains(r.Warnings[0].Text, "x1") {
				t.Errorf("%q: %+v", command, r.Warnings)
			}
		}
		for _, command := range []string{`PGPASSWORD="$P" psql`, "sort --key=2 x", "tool --token-file /x", "curl https://example.com/a@b"} {
			if r := read(t, "@daily "+command, options()); len(r.Warnings) != 0 {
				t.Errorf("%q: %+v", command, r.Warnings)
			}
		}
	})
	t.Run("problems do not tell it", func(t *testing.T) {
		for _, line := range []string{`DB_PASSWORD="geheim`, `DB_PASSWORD='geheim' x`, "TRIGGERD_TOKEN=geheim", "export DB_PASSWORD=geheim", "export A=geheim b c d e f", "DB PASSWORD=geheim", "5 PASSWORD=geheim * * * x", "DB_PASSWORD geheim a b c d", "DB-KEY=geheim"} {
			_, err := crontab.Import(strings.NewReader(line), options())
			if err == nil || strings.Contains(err.Error(), "geheim") {
				t.Errorf("%q: %v", line, err)
			}
		}
	})
}

func TestComments(t *testing.T) {
	r := read(t, "# not of a job\n\n#\t Nightly: run\x07 it\u2028now\n##\n#  twice \n0 1 * * * a\n# of a setting\nX=1\n0 2 * * * b\n# \xff old\n0 3 * * * c\n", options())
	same(t, r)
	text := string(r.YAML)
	for _, want := range []string{"\n  # Nightly: run? it?now\n  # twice\n  a: # line 6\n", "\n\n  b: # line 9\n", "\n  # ? old\n  c: # line 11\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "not of a job") || strings.Contains(text, "of a setting") {
		t.Errorf("%s", text)
	}
}

func TestMail(t *testing.T) {
	r := read(t, "MAILTO=ann@example.com\n0 1 * * * a\nMAILTO=\"\"\n0 1 * * * b\n", options())
	same(t, r)
	if strings.Count(string(r.YAML), "# review: cron mailed its output to ann@example.com") != 1 || len(r.Warnings) != 1 || r.Warnings[0].Line != 1 || !strings.Contains(r.Warnings[0].Text, "turn.dead") {
		t.Errorf("%+v\n%s", r.Warnings, r.YAML)
	}
}

func TestSystem(t *testing.T) {
	r := read(t, "17 * * * * root cd / && run-parts /etc/cron.hourly\n@daily  www-data\tphp x.php\n5 5 * * * root b%in\n", system())
	same(t, r)
	a, b, c := r.Jobs[0], r.Jobs[1], r.Jobs[2]
	if a.User != "root" || a.Command != "cd / && run-parts /etc/cron.hourly" || b.User != "www-data" || b.Command != "php x.php" || c.Command != "b" || c.Stdin != "in\n" {
		t.Errorf("%+v", r.Jobs)
	}
	if !strings.Contains(string(r.YAML), "# review: ran as user www-data, here the daemon's own user runs it\n  x: # line 2") {
		t.Errorf("%s", r.YAML)
	}
	if len(r.Warnings) != 2 || !strings.Contains(r.Warnings[0].Text, "user root: the daemon's own user will run the jobs of the lines 1, 3") || r.Warnings[1].Line != 2 {
		t.Errorf("%+v", r.Warnings)
	}
	t.Run("read as a user's own", func(t *testing.T) {
		if r := read(t, "17 * * * * root x\n", options()); len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0].Text, "--system") {
			t.Errorf("%+v", r.Warnings)
		}
	})
}

func TestReboot(t *testing.T) {
	r := read(t, "@reboot a\n0 1 * * * b\n", options())
	same(t, r)
	if len(r.Warnings) != 1 || r.Warnings[0].Line != 1 || !strings.Contains(string(r.YAML), "# review: ran once after the machine's start") {
		t.Errorf("%+v\n%s", r.Warnings, r.YAML)
	}
}

func TestNames(t *testing.T) {
	for command, want := range map[string]string{
		"/usr/local/bin/backup.sh --full": "backup",
		"cd /srv/app && ./bin/report -x":  "report",
		"cd /":                            "cd",
		"A=1 B='x y' /opt/job":            "job",
		"test -x /usr/sbin/anacron || ( cd / && run-parts x )": "run-parts",
		"[ -d /x ] && find /x":                                 "find",
		"flock -w 5 /tmp/l nice -n 10 timeout -k 5 60 /a/b.py": "b",
		"sudo -u www-data php /srv/cron.php":                   "cron",
		"/usr/bin/env python3 /srv/report.py":                  "report",
		"python3 -m tool":                                      "python3",
		"bash -c 'x'":                                          "bash",
		`"/opt/my app/run.sh"`:                                 "run",
		"7z a x":                                               "job-7z",
		"日本":                                                   "job",
		"$HOME/bin/x":                                          "x",
		"archive.tar.gz":                                       "archive-tar",
		"manual":                                               "manual-2",
		"triggerd fire x":                                      "triggerd-2",
		"nice":                                                 "nice",
		"%x":                                                   "job",
		"'":                                                    "job",
		strings.Repeat("a", 100):                               strings.Repeat("a", 56),
	} {
		if got := one(t, "@daily "+command).Name; got != want {
			t.Errorf("%q is %q, want %q", command, got, want)
		}
	}
	t.Run("each is unique", func(t *testing.T) {
		r := read(t, "@daily x\n@daily x-2\n@daily x\n@daily /bin/x.sh\n", options())
		same(t, r)
		var got []string
		for _, j := range r.Jobs {
			got = append(got, j.Name)
		}
		if want := []string{"x", "x-2", "x-3", "x-4"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestProblems(t *testing.T) {
	long := strings.Repeat("x", 1001)
	for _, c := range []struct {
		name, text string
		o          crontab.Options
		want       []string // "line field: part of the text"
	}{
		{"every line is looked at", "61 3 * * * a\n* * * * * b\n0 24 32 13 8 c\nx\n", options(), []string{"1 minute: tab:1: ", "3 hour: tab:3: ", "3 day of month: ", "3 month: ", "3 day of week: ", "4 time: found 1 field"}},
		{"cronie's random times", "0~59 * * * * a", options(), []string{"1 minute: cronie"}},
		{"steps", "*/0 */90 * * * a", options(), []string{"1 minute: ", "1 hour: "}},
		{"a range that runs backwards", "30-10 * * * * a", options(), []string{"1 minute: "}},
		{"no such date", "0 0 30 2 * a", options(), []string{"1 time: "}},
		{"no command", "* * * * *\n* * * * * \n@daily\n", options(), []string{"1 command: no command", "2 command: no command", "3 command: no command"}},
		{"a sixth time field", "0 * * * * * a", options(), []string{"1 command: too many"}},
		{"names that are no times", "@every 5m a\n@noon b\n@Daily c\n", options(), []string{"1 time: ", "2 time: ", "3 time: "}},
		{"not ASCII", "0 0\u00a0* * * * a", options(), []string{"1 hour: "}},
		{"NUL", "a\x00\n# \x00\n", options(), []string{"1 : NUL", "2 : NUL"}},
		{"not UTF-8", "* * * * * a \xff\nA=\xff\n", options(), []string{"1 : UTF-8", "2 : UTF-8"}},
		{"too long", "* * * * * " + long + "\nA=" + long + "\n#" + long + "\n", options(), []string{"1 : 1000", "2 : 1000"}},
		{"settings", "A='b\nB='b' c\nC D=e\n1=2\nTRIGGERD_X=1\n=x\nSHELL=''\nHOME=~ann\nCRON_TZ=Mars/Olympus\nCRON_TZ=Local\n", options(), []string{
			"1 A: not closed", "2 B: closing quote", "3 time: ", "4 name: ", "5 TRIGGERD_X: ", "6 name: ", "7 SHELL: absolute", "8 HOME: absolute", "9 CRON_TZ: zone", "10 CRON_TZ: zone"}},
		{"export", "export A=1", options(), []string{"1 : shell's"}},
		{"a user's own crontab read as a system's", "0 1 * * * /bin/x y\n0 1 * * *\n0 1 * * * root\n", system(), []string{"1 user: --system", "2 user: neither", "3 command: no command"}},
		{"too large", strings.Repeat("# x\n", 70_000), options(), []string{"0 : larger"}},
		{"too much", "A=1\n" + strings.Repeat("@daily a\n", 6000), options(), []string{"4287 : split"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := crontab.Import(strings.NewReader(c.text), c.o)
			var found *crontab.Errors
			if r != nil || !errors.As(err, &found) || len(found.Problems) != len(c.want) {
				t.Fatalf("%v, want %d problems", err, len(c.want))
			}
			for i, want := range c.want {
				where, text, _ := strings.Cut(want, ": ")
				p := found.Problems[i]
				at := strings.Split(found.Error(), "\n")[i]
				if got := strings.TrimSpace(strings.Join([]string{strconv.Itoa(p.Line), p.Field}, " ")); got != strings.TrimSpace(where) || !strings.Contains(at, text) || !strings.HasPrefix(at, "tab:") {
					t.Errorf("problem %d is %q: %s, want %q", i, got, at, want)
				}
			}
		})
	}
}

func TestLines(t *testing.T) {
	want := read(t, "A=1\n# c\n0 3 * * *\tx y\n", options()).YAML
	for name, text := range map[string]string{
		"CRLF": "A=1\r\n# c\r\n0 3 * * *\tx y\r\n", "no final line end": "A=1\n# c\n0 3 * * *\tx y", "byte order mark": "\ufeffA=1\n# c\n0 3 * * *\tx y\n", "indented": "\tA=1\n  # c\n \t0 3 * * *\tx y\n",
	} {
		r := read(t, text, options())
		same(t, r)
		if !bytes.Equal(r.YAML, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, r.YAML, want)
		}
	}
	t.Run("nothing to run", func(t *testing.T) {
		for _, text := range []string{"", "\n\n", "# x", "A=1\n", "PASSWORD=geheim\n"} {
			r := read(t, text, options())
			same(t, r)
			if last := len(r.Warnings) - 1; last < 0 || r.Warnings[0].Text != "there is no job" {
				t.Errorf("%q: %+v", text, r.Warnings)
			}
		}
	})
	t.Run("a reader that fails", func(t *testing.T) {
		broken := errors.New("broken")
		_, err := crontab.Import(io.MultiReader(strings.NewReader("@daily x\n"), iotest.ErrReader(broken)), options())
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
	})
}
