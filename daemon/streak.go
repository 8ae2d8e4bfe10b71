package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/triggers"
	"github.com/triggerd/triggerd/turns"
)

// streak is what is known of a trigger's turns that have ended dead in a row, whichever daemon ran them. Ends may be told twice, and in another order
// than they came in: what counts is where they stand in the ledger.
type streak struct {
	After  uint64   `json:"after"`            // the last end that was none, or that has paused the trigger
	Failed []uint64 `json:"failed,omitempty"` // the ends after it
}

// add takes an end in, and reports whether that changes anything.
func (s *streak) add(i turns.Info) bool {
	switch {
	case i.Since <= s.After:
		return false
	case i.State == turns.Done:
		had := len(s.Failed)
		s.Failed = slices.DeleteFunc(s.Failed, func(seq uint64) bool { return seq < i.Since })
		s.After = i.Since
		return had > 0 // else the next failure says it soon enough: most turns are done, and cost no write
	case slices.Contains(s.Failed, i.Since):
		return false
	}
	s.Failed = append(s.Failed, i.Since)
	return true
}

func streakKey(trigger string) string { return "streak." + trigger }

// pausedPayload is the payload of trigger.paused.
type pausedPayload struct {
	Trigger string `json:"trigger"`
	Reason  string `json:"reason"`
	Turn    string `json:"turn"` // hash of the last one that failed
}

// countFailures keeps the streak of a trigger that is to be paused on failure, and pauses it at its limit. It blocks until that is durable, and is safe
// to repeat for the same end.
func (d *Daemon) countFailures(ctx context.Context, i turns.Info) error {
	trigger := i.Key.Trigger
	limit := d.plan.Load().pauseAfter[trigger]
	if limit == 0 || i.State != turns.Done && i.State != turns.Dead {
		return nil
	}
	s, err := d.changeStreak(ctx, trigger, func(s *streak) bool { return s.add(i) })
	if err != nil || len(s.Failed) < limit {
		return err
	}
	reason := fmt.Sprintf("%d turns in a row have failed, the last one is %s", len(s.Failed), i.Hash)
	if _, paused := d.engine().Paused(trigger); !paused {
		if err := d.engine().Pause(ctx, trigger, turns.Pause{Since: time.Now().UTC(), Note: reason}); err != nil {
			return err
		}
		d.log.Warn().Str("trigger", d.triggerName(trigger)).Str("reason", reason).Msg("trigger is paused")
	}
	p := pausedPayload{Trigger: d.triggerName(trigger), Reason: reason, Turn: i.Hash}
	if err := d.announce(ctx, "trigger.paused", i.Hash, map[string]string{triggers.OwnTriggerHeader: trigger}, p, i.Hops+1); err != nil {
		return err
	}
	// Whoever resumes the trigger gives it as many tries again.
	_, err = d.changeStreak(ctx, trigger, func(s *streak) bool {
		s.After, s.Failed = max(s.After, slices.Max(append(s.Failed, i.Since))), nil
		return true
	})
	return err
}

// changeStreak changes what is stored of a trigger, on the condition that nobody else does meanwhile, and returns it.
func (d *Daemon) changeStreak(ctx context.Context, trigger string, change func(*streak) bool) (s streak, err error) {
	for {
		m, err := d.bus.LastControl(ctx, streakKey(trigger))
		if err != nil {
			return s, err
		}
		s = streak{}
		var revision uint64
		if m != nil {
			if err := json.Unmarshal(m.Data, &s); err != nil {
				d.log.Error().Err(err).Str("trigger", trigger).Msg("the failures of a trigger cannot be read; counting anew")
			}
			revision = m.Sequence
		}
		if !change(&s) {
			return s, nil
		}
		_, err = d.bus.SwapControl(ctx, streakKey(trigger), mustJSON(s), revision)
		switch {
		case err == nil:
			return s, d.bus.Sync(ctx)
		case !bus.Conflict(err):
			return s, fmt.Errorf("store the failures of trigger %s: %w: %w", trigger, triggerd.ErrUnavailable, err)
		case !bus.Pause(ctx, 10*time.Millisecond):
			return s, fmt.Errorf("store the failures of trigger %s: %w: %w", trigger, triggerd.ErrUnavailable, context.Cause(ctx))
		}
	}
}
