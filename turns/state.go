package turns

import (
	"math/rand/v2"
	"time"
)

// State is where a turn stands. docs/concepts.md has the diagram.
type State string

// The states of a turn. The first five are unfinished: such a turn never expires.
const (
	Queued    State = "queued"  // waits for its lane, a slot or its trigger
	Running   State = "running" // an attempt is under way
	Failed    State = "failed"  // an attempt failed; the next one comes after NotBefore
	Held      State = "held"    // waits for an operator: its trigger is paused, or is configured no more
	Parked    State = "parked"  // whether it took effect is unknown: an operator retries or cancels it
	Done      State = "done"
	Dead      State = "dead" // gave up; `turns retry` brings it back as a new turn
	Skipped   State = "skipped"
	Cancelled State = "cancelled"
)

// Final reports whether nothing happens to the turn any more.
func (s State) Final() bool {
	return s == Done || s == Dead || s == Skipped || s == Cancelled
}

func (s State) valid() bool {
	return s.Final() || s.holdsLane() || s == Held || s == Parked
}

// holdsLane reports whether a turn in this state keeps later turns of its lane waiting.
func (s State) holdsLane() bool { return s == Running || s.waits() }

// waits reports whether a turn in this state starts by itself when its turn comes.
func (s State) waits() bool { return s == Queued || s == Failed }

// LongestFloor is the longest wait that a server can ask for with Retry-After.
const LongestFloor = 24 * time.Hour

// RetryPolicy bounds the attempts of a turn.
type RetryPolicy struct {
	Attempts   int           // the first one counts
	Initial    time.Duration // upper bound of the first pause
	Max        time.Duration // upper bound of any pause
	MaxElapsed time.Duration // from the first attempt; 0 = no bound
}

// pause is the wait after attempt n (1 = the first): full jitter under an exponential ceiling, so that turns that failed together
// do not come back together. floor, a server's Retry-After, is kept whatever the jitter says.
// A floor over LongestFloor is taken for a mistake of that server, and bounded.
func (p RetryPolicy) pause(n int, floor time.Duration) time.Duration {
	floor = min(max(floor, 0), LongestFloor)
	ceiling := p.Initial
	for i := 1; i < n && ceiling < p.Max; i++ {
		if ceiling > p.Max/2 { // twice of it may not even be a duration
			ceiling = p.Max
			break
		}
		ceiling *= 2
	}
	ceiling = min(ceiling, p.Max)
	if ceiling <= 0 {
		return floor
	}
	return max(floor, rand.N(ceiling)+1)
}

// next decides what follows attempt n that failed at now: the pause before the next one, or the reason why there is none.
func (p RetryPolicy) next(n int, first, now time.Time, floor time.Duration) (wait time.Duration, over string) {
	if n >= p.Attempts {
		return 0, "no attempt left"
	}
	wait = p.pause(n, floor)
	if p.MaxElapsed > 0 && now.Add(wait).Sub(first) > p.MaxElapsed {
		return 0, "the next attempt would be later than retry.max_elapsed allows"
	}
	return wait, ""
}
