package turns

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// The checkpoint never runs ahead: whatever is unfinished, being opened or not told can be found from it.
func TestCheckpointAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := New(Options{Epoch: 7})
		defer e.stopAll()
		type write struct{ mark, seq uint64 }
		var seq uint64
		var opening, ending []write // under way: nothing of it is known
		var open []*turn
		pick := func(n int) int {
			if n == 0 {
				t.Skip("none")
			}
			return rapid.IntRange(0, n-1).Draw(t, "which")
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin to open": func(*rapid.T) { opening = append(opening, write{mark: e.mark()}) },
			"store": func(*rapid.T) {
				w := &opening[pick(len(opening))]
				if w.seq == 0 {
					seq += uint64(rapid.IntRange(1, 3000).Draw(t, "others")) // entries of turns that we do not look at
					w.seq = seq
				}
			},
			"admit": func(*rapid.T) {
				i := pick(len(opening))
				w := opening[i]
				opening = slices.Delete(opening, i, i+1)
				if w.seq > 0 {
					x := bt("a", "", Queued)
					x.openSeq, x.lastSeq = w.seq, w.seq
					open = append(open, x)
					e.mu.Lock()
					e.board.add(x)
					e.low.seen = max(e.low.seen, w.seq)
					e.mu.Unlock()
				}
				e.unmark(w.mark)
			},
			"begin to end": func(*rapid.T) {
				i := pick(len(open))
				ending = append(ending, write{mark: e.mark(), seq: uint64(i)})
				seq++
				open[i].lastSeq = seq
			},
			"told": func(*rapid.T) {
				i := pick(len(ending))
				w := ending[i]
				ending = slices.Delete(ending, i, i+1)
				x := open[w.seq]
				e.mu.Lock()
				if e.board.turns[x.hash] != nil {
					e.board.remove(x)
				}
				e.low.seen = max(e.low.seen, x.lastSeq)
				e.mu.Unlock()
				e.unmark(w.mark)
			},
			"": func(t *rapid.T) {
				c := e.checkpointNow()
				for _, w := range opening {
					if w.seq > 0 && w.seq < c.Floor {
						t.Fatalf("a turn is being opened at %d, the start would read from %d", w.seq, c.Floor)
					}
				}
				for _, w := range ending {
					if x := open[w.seq]; x.lastSeq < c.Told && e.board.turns[x.hash] != nil {
						t.Fatalf("an end at %d is not told, the start would tell from %d", x.lastSeq, c.Told)
					}
				}
				for _, x := range e.board.turns {
					if x.openSeq < c.Floor && !slices.Contains(c.Older, x.hash) {
						t.Fatalf("a turn at %d is unfinished, the start would read from %d", x.openSeq, c.Floor)
					}
				}
				if c.Floor > c.Told || c.Floor == 0 || c.Epoch != 7 {
					t.Fatalf("%+v", c)
				}
			},
		})
	})
}

func TestCheckpointIsSmall(t *testing.T) {
	fill := func(from, n uint64) *Engine {
		e := New(Options{})
		defer e.stopAll()
		for i := range n {
			x := bt("a", "", Held)
			x.openSeq = from + i
			e.board.add(x)
		}
		e.low.seen = 1_000_000
		return e
	}
	t.Run("recent turns are read again", func(t *testing.T) {
		if c := fill(1_000_000-100, 101).checkpointNow(); c.Floor != 1_000_000-100 || c.Older != nil || c.Told != 1_000_001 {
			t.Errorf("%+v", c)
		}
	})
	t.Run("few old ones are remembered", func(t *testing.T) {
		if c := fill(10, 100).checkpointNow(); c.Floor != 1_000_001 || len(c.Older) != 100 {
			t.Errorf("floor %d with %d older", c.Floor, len(c.Older))
		}
	})
	t.Run("too many old ones are read again", func(t *testing.T) {
		if c := fill(10, olderMax+1).checkpointNow(); c.Floor != 10 || c.Older != nil || c.Told != 1_000_001 {
			t.Errorf("floor %d with %d older, told %d", c.Floor, len(c.Older), c.Told)
		}
	})
}

// With any number of finished turns a start reads little, and finds old held ones all the same.
func TestStartReadsLittle(t *testing.T) {
	r := setup(t, trigger("a", &auto{}))
	r.openTurns(ask("gone", "old 1", ""), ask("gone", "old 2", ""))
	const n = 2200 // twice as many entries: more than the window
	var os []triggerd.Opening
	for i := range n {
		os = append(os, ask("a", fmt.Sprint(i), ""))
	}
	r.openTurns(os...)
	for range n {
		r.final()
	}
	r.until("all are off the board", func() bool { return r.engine.Counts()["a"] == Counts{} })
	if err := r.engine.saveCheckpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.restart()
	if r.recovered.Read > 10 || r.recovered.Finals > 0 || r.recovered.Unfinished != 2 {
		t.Errorf("recovered %+v", r.recovered)
	}
	if got := r.tally(); got[Held] != 2 || got[Done] != n {
		t.Errorf("turns by state: %v", got)
	}
}

// A power loss can take the newest entries and leave the checkpoint: then it does not count, and nothing is told that was told.
func TestCheckpointAheadOfTheLedger(t *testing.T) {
	r := setup(t, trigger("a", &auto{}))
	r.openTurns(ask("a", "1", ""), ask("gone", "2", ""))
	r.want("1", Done)
	data, err := json.Marshal(checkpoint{Epoch: 1, Floor: 1000, Told: 1000})
	if err != nil {
		t.Fatal(err)
	}
	r.engine.checkpoints.mu.Lock()
	if err := r.bus.PutControl(t.Context(), checkpointKey(nil), data); err != nil {
		t.Fatal(err)
	}
	r.crash()
	r.engine.checkpoints.mu.Unlock()
	r.start()
	if r.recovered.Unfinished != 1 || r.recovered.Finals != 0 {
		t.Errorf("recovered %+v", r.recovered)
	}
	r.state("gone", "2", Held)
}

// P8: whatever happens, each opened turn is in exactly one state, and replays are counted apart.
func TestConservation(t *testing.T) {
	verbs := []triggerd.Verb{triggerd.Done, triggerd.Dead, triggerd.Retry, triggerd.Parked, triggerd.Done}
	act := &auto{f: func(a *Attempt) triggerd.Outcome {
		return triggerd.Outcome{Verb: verbs[len(a.Event.Payload)%len(verbs)], Cause: "as told"}
	}}
	skip := trigger("skip", act)
	skip.Overlap = OverlapSkip
	r := setup(t, trigger("a", act), skip, trigger("paused", act))
	r.pause("paused", Pause{})
	opened := 0
	open := func() {
		var os []triggerd.Opening
		for i := range 60 {
			for _, k := range []string{"a", "skip", "paused", "gone"} {
				o := ask(k, fmt.Sprint(opened, "-", i), fmt.Sprint(k, i%7))
				o.Event.Payload = make([]byte, i)
				os = append(os, o)
			}
		}
		r.openTurns(os...)
		r.openTurns(os[:50]...) // duplicates
		opened += len(os)
	}
	open()
	r.restart()
	open()
	if err := r.engine.Cancel(t.Context(), hashOf("gone", "0-0")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.engine.Retry(t.Context(), hashOf("gone", "0-0")); err != nil {
		t.Fatal(err)
	}
	r.until("nothing moves", func() bool {
		for _, c := range r.engine.Counts() {
			if c.Queued+c.Running > 0 {
				return false
			}
		}
		return true
	})
	first, replays := map[State]int{}, 0
	seen := map[string]bool{}
	for _, i := range r.list() {
		if seen[i.Key.String()] {
			t.Errorf("%s is there twice", i.Key)
		}
		if seen[i.Key.String()] = true; i.Key.Replay > 0 {
			replays++
			continue
		}
		first[i.State]++
	}
	sum := 0
	for _, n := range first {
		sum += n
	}
	if sum != opened || replays != 1 || first[Queued]+first[Running]+first[Failed] > 0 {
		t.Errorf("opened %d, first turns by state %v = %d, replays %d", opened, first, sum, replays)
	}
	counts := r.engine.Counts()
	if counts["paused"].Held != 120 || counts["gone"].Held != 120 || first[Held] != 239 || first[Cancelled] != 1 {
		t.Errorf("counts %+v, by state %v", counts, first)
	}
	entries := 0
	if err := r.engine.ledger.scan(t.Context(), bus.ScanOptions{LastOnly: true}, func(*Entry) { entries++ }); err != nil || entries != opened+1 {
		t.Errorf("%d subjects, %v", entries, err)
	}
}

func (r *rig) list() []Info {
	r.Helper()
	all, err := r.engine.List(r.Context(), nil)
	if err != nil {
		r.Fatal(err)
	}
	return all
}
