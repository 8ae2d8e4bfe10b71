package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// A trigger with pause_on_failure is paused when so many of its turns in a row have failed, whichever daemon ran them and whatever was killed in between;
// what comes then is held, and somebody is told. Whoever resumes it gives it as many tries again.
func TestPauseOnFailure(t *testing.T) {
	const body = `
connections:
  in: { webhook: { verify: { scheme: none } } }
triggers:
  shaky: { connection: in, overlap: allow, pause_on_failure: 3, retry: { attempts: 1 }, run: { exec: { command: [env, '${{ event.payload.run }}'], stdin: '' } } }
  told: { connection: triggerd, event: trigger.paused, run: { exec: { command: [cat] } } }
`
	together(t, map[string]func(*testing.T){
		"one daemon": func(t *testing.T) {
			in := newInstallation(t, "", body)
			pausesOnFailure(t, in, in, in.run())
		},
		"two daemons": func(t *testing.T) {
			f := newFleet(t, 2, on(newNATS(t, nil).url()), body)
			pausesOnFailure(t, f.members[0].installation, f.members[1].installation, f.members[0].p)
		},
	})
}

func pausesOnFailure(t *testing.T, a, b *installation, p *process) {
	posted := 0
	post := func(in *installation, run string) {
		t.Helper()
		posted++
		id := fmt.Sprint(posted)
		in.mustPost("in", id, fmt.Appendf(nil, `{"run":%q}`, run))
		in.turn("shaky", id, map[string]string{"true": "done", "false": "dead"}[run])
	}
	paused := func(in *installation) console.TriggerInfo { t.Helper(); return in.trigger("shaky") }
	for _, run := range []string{"false", "false", "true", "false"} {
		post(a, run)
	}
	p.kill()
	a.run()
	post(a, "false")
	if x := paused(a); x.Paused {
		t.Fatalf("paused after four failures, of which two in a row: %+v", x)
	}
	post(b, "false")
	for _, in := range []*installation{a, b} {
		await(t, "the trigger is paused", 5*time.Second, func() bool { return paused(in).Paused })
		if x := paused(in); !strings.HasPrefix(x.PauseNote, "3 turns in a row have failed, the last one is ") {
			t.Errorf("note %q", x.PauseNote)
		}
	}
	a.awaitTurns("told", "the trigger that listens", 10*time.Second, allFinal(1))
	a.mustPost("in", "held", []byte(`{"run":"true"}`))
	a.turn("shaky", "held", "held")
	b.must("triggers", "resume", "shaky")
	a.turn("shaky", "held", "done")
	for range 3 {
		if x := paused(a); x.Paused {
			t.Errorf("paused too early: %+v", x)
		}
		post(a, "false")
	}
	await(t, "it is paused again", 5*time.Second, func() bool { return paused(b).Paused })
	a.awaitTurns("told", "the trigger that listens", 10*time.Second, allFinal(2))
}
