package turns

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
)

var boardSeq uint64

// bt makes a turn for board tests. Its open sequence follows the order of the calls.
func bt(trigger, lane string, s State) *turn {
	boardSeq++
	k := triggerd.TurnKey{Connection: "c", Trigger: trigger, EventID: fmt.Sprint(boardSeq)}
	return &turn{key: k, hash: k.Hash(), lane: lane, openSeq: boardSeq, state: s}
}

// boardWith makes a board whose triggers are configured without limits of their own.
func boardWith(limit int, triggers ...string) *board {
	b := newBoard(limit)
	for _, key := range triggers {
		b.queue(key).spec = &Spec{Key: key}
	}
	return b
}

// starts takes everything that may start at now.
func starts(b *board, now time.Time) []*turn {
	var out []*turn
	for t := b.next(now); t != nil; t = b.next(now) {
		out = append(out, t)
	}
	return out
}

func wantTurns(t *testing.T, got []*turn, want ...*turn) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("started %v, want %v", ids(got), ids(want))
	}
}

func ids(ts []*turn) []string {
	out := make([]string, len(ts))
	for i, t := range ts {
		out[i] = t.key.Trigger + "/" + t.key.EventID
	}
	return out
}

var boardNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestBoardLane(t *testing.T) {
	t.Run("runs one at a time in open order", func(t *testing.T) {
		b := boardWith(9, "a")
		t1, t2, t3 := bt("a", "L", Queued), bt("a", "L", Queued), bt("a", "L", Queued)
		for _, x := range []*turn{t2, t3, t1} {
			b.add(x)
		}
		for _, x := range []*turn{t1, t2, t3} {
			wantTurns(t, starts(b, boardNow), x)
			b.remove(x)
		}
	})
	t.Run("no lane waits for nothing", func(t *testing.T) {
		b := boardWith(9, "a")
		t1, t2 := bt("a", "", Queued), bt("a", "", Queued)
		b.add(t2)
		b.add(t1)
		wantTurns(t, starts(b, boardNow), t1, t2)
	})
	t.Run("a backoff holds its own lane and no other", func(t *testing.T) {
		b := boardWith(9, "a")
		t1, t2, other := bt("a", "L", Failed), bt("a", "L", Queued), bt("a", "M", Queued)
		t1.wake = boardNow.Add(time.Minute)
		for _, x := range []*turn{t1, t2, other} {
			b.add(x)
		}
		wantTurns(t, starts(b, boardNow), other)
		if !b.nextWake().Equal(t1.wake) {
			t.Fatalf("next wake %v, want %v", b.nextWake(), t1.wake)
		}
		wantTurns(t, starts(b, t1.wake.Add(-1)))
		wantTurns(t, starts(b, boardNow.Add(time.Minute)), t1)
		b.remove(t1)
		wantTurns(t, starts(b, boardNow), t2)
	})
	t.Run("held and parked do not hold it", func(t *testing.T) {
		b := boardWith(9, "a")
		t1, t2, t3 := bt("a", "L", Parked), bt("b", "L", Held), bt("a", "L", Queued)
		for _, x := range []*turn{t1, t2, t3} {
			b.add(x)
		}
		wantTurns(t, starts(b, boardNow), t3)
	})
}

func TestBoardLaneWhenTurnsComeBack(t *testing.T) {
	t.Run("what comes back goes to its place behind what runs", func(t *testing.T) {
		b := boardWith(9, "a")
		t1, t2, t3, t4, t5 := bt("a", "L", Parked), bt("a", "L", Parked), bt("a", "L", Queued), bt("a", "L", Parked), bt("a", "L", Queued)
		for _, x := range []*turn{t1, t2, t3, t4, t5} {
			b.add(x)
		}
		wantTurns(t, starts(b, boardNow), t3)
		for _, x := range []*turn{t4, t1, t2} { // out of order, with a head that is not the oldest
			b.settle(x, Queued)
		}
		wantTurns(t, starts(b, boardNow))
		b.remove(t3)
		for _, x := range []*turn{t1, t2, t4, t5} {
			wantTurns(t, starts(b, boardNow), x)
			b.remove(x)
		}
	})
	t.Run("a failed attempt lets an older turn that came back go first", func(t *testing.T) {
		b := boardWith(9, "a")
		t1, t2 := bt("a", "L", Parked), bt("a", "L", Queued)
		b.add(t1)
		b.add(t2)
		wantTurns(t, starts(b, boardNow), t2)
		b.settle(t1, Queued)
		t2.wake = boardNow
		b.settle(t2, Failed)
		wantTurns(t, starts(b, boardNow), t1)
		b.remove(t1)
		wantTurns(t, starts(b, boardNow), t2)
	})
}

func TestBoardTake(t *testing.T) {
	t.Run("a taken turn does not start, not even when it becomes the first of its lane", func(t *testing.T) {
		b := boardWith(9, "a")
		t1, t2, t3 := bt("a", "L", Queued), bt("a", "L", Queued), bt("a", "L", Queued)
		for _, x := range []*turn{t1, t2, t3} {
			b.add(x)
		}
		wantTurns(t, starts(b, boardNow), t1)
		b.take(t2)
		b.remove(t1)
		wantTurns(t, starts(b, boardNow))
		b.remove(t2) // cancelled
		wantTurns(t, starts(b, boardNow), t3)
	})
	t.Run("given back it starts in its turn", func(t *testing.T) {
		b := boardWith(9, "a")
		t1, t2 := bt("a", "L", Queued), bt("a", "L", Queued)
		b.add(t1)
		b.add(t2)
		b.take(t2)
		b.giveBack(t2) // not its turn yet
		b.take(t1)
		wantTurns(t, starts(b, boardNow))
		b.giveBack(t1)
		b.giveBack(t1) // twice is once
		wantTurns(t, starts(b, boardNow), t1)
		b.remove(t1)
		wantTurns(t, starts(b, boardNow), t2)
	})
	t.Run("a backoff is taken out of and put back among the delayed", func(t *testing.T) {
		b := boardWith(9, "a")
		f := bt("a", "", Failed)
		f.wake = boardNow.Add(time.Second)
		b.add(f)
		b.take(f)
		if !b.nextWake().IsZero() {
			t.Fatal("a taken turn still wakes the engine")
		}
		b.giveBack(f)
		wantTurns(t, starts(b, boardNow))
		wantTurns(t, starts(b, f.wake), f)
	})
}

func TestBoardLimits(t *testing.T) {
	t.Run("of the daemon", func(t *testing.T) {
		b := boardWith(2, "a", "b")
		t1, t2, t3 := bt("a", "", Queued), bt("b", "", Queued), bt("a", "", Queued)
		for _, x := range []*turn{t1, t2, t3} {
			b.add(x)
		}
		wantTurns(t, starts(b, boardNow), t1, t2)
		b.settle(t2, Parked)
		wantTurns(t, starts(b, boardNow), t3)
	})
	t.Run("of a trigger, and its lower value after a reload", func(t *testing.T) {
		b := boardWith(9, "a", "b")
		b.queue("a").spec.Limit = 2
		a1, a2, a3, b1 := bt("a", "", Queued), bt("a", "", Queued), bt("a", "", Queued), bt("b", "", Queued)
		for _, x := range []*turn{a1, a2, a3, b1} {
			b.add(x)
		}
		wantTurns(t, starts(b, boardNow), a1, b1, a2)
		b.queue("a").spec = &Spec{Limit: 1}
		b.remove(a1)
		wantTurns(t, starts(b, boardNow))
		b.remove(a2)
		wantTurns(t, starts(b, boardNow), a3)
	})
	t.Run("a full backoff queue does not keep the daemon's slots", func(t *testing.T) {
		b := boardWith(1, "a")
		run, f := bt("a", "", Queued), bt("a", "", Failed)
		f.wake = boardNow
		b.add(run)
		b.add(f)
		wantTurns(t, starts(b, boardNow), run)
		if !b.nextWake().IsZero() {
			t.Fatal("a backoff that is over must not wake the engine again: a free slot will")
		}
		b.remove(run)
		wantTurns(t, starts(b, boardNow), f)
	})
}

func TestBoardTriggers(t *testing.T) {
	t.Run("take turns, however much one has queued", func(t *testing.T) {
		b := boardWith(1, "busy", "calm")
		for range 100 {
			b.add(bt("busy", "", Queued))
		}
		calm := bt("calm", "", Queued)
		b.add(calm)
		first := b.next(boardNow)
		b.remove(first)
		wantTurns(t, starts(b, boardNow), calm)
	})
	t.Run("that are gone or paused start nothing, and go on later", func(t *testing.T) {
		b := boardWith(9, "a")
		x, y := bt("a", "", Queued), bt("gone", "", Queued)
		b.add(x)
		b.add(y)
		b.queue("a").paused = true
		wantTurns(t, starts(b, boardNow))
		b.queue("a").paused = false
		b.queue("gone").spec = &Spec{}
		wantTurns(t, starts(b, boardNow), x, y)
	})
	t.Run("let what was held go first", func(t *testing.T) {
		b := boardWith(9, "a")
		old, late := bt("a", "L", Held), bt("a", "L", Queued)
		b.add(old)
		b.add(late)
		wantTurns(t, starts(b, boardNow))
		b.settle(old, Queued)
		wantTurns(t, starts(b, boardNow), old)
	})
	t.Run("list what they have, oldest first", func(t *testing.T) {
		b := boardWith(9, "a")
		h1, q1, h2, f1, other := bt("a", "", Held), bt("a", "", Queued), bt("a", "", Held), bt("a", "", Failed), bt("b", "", Queued)
		for _, x := range []*turn{f1, h2, q1, h1, other} {
			b.add(x)
		}
		q := b.queue("a")
		if got := b.heldOf(q); !slices.Equal(got, []*turn{h1, h2}) {
			t.Errorf("held %v", ids(got))
		}
		if got := b.waitingOf(q); !slices.Equal(got, []*turn{q1, f1}) {
			t.Errorf("waiting %v", ids(got))
		}
		if got := (Counts{Queued: 2, Held: 2}); q.n != got {
			t.Errorf("counts %+v", q.n)
		}
	})
}

func benchmarkBoard(b *testing.B, n int, lane func(int) string) {
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		bd := boardWith(64, "a")
		all := make([]*turn, n)
		for i := range all {
			all[i] = bt("a", lane(i), Queued)
		}
		b.StartTimer()
		for _, t := range all {
			bd.add(t)
		}
		var running []*turn
		for done := 0; done < n; {
			for t := bd.next(boardNow); t != nil; t = bd.next(boardNow) {
				running = append(running, t)
			}
			for _, t := range running {
				bd.remove(t)
				done++
			}
			running = running[:0]
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/turn")
}

func BenchmarkBoard(b *testing.B) {
	const n = 100_000
	b.Run("one lane", func(b *testing.B) { benchmarkBoard(b, n, func(int) string { return "L" }) })
	b.Run("a lane each", func(b *testing.B) { benchmarkBoard(b, n, func(i int) string { return fmt.Sprint(i) }) })
	b.Run("no lane", func(b *testing.B) { benchmarkBoard(b, n, func(int) string { return "" }) })
	b.Run("failing head of a long lane", func(b *testing.B) {
		bd := boardWith(64, "a")
		for range n {
			bd.add(bt("a", "L", Queued))
		}
		b.ResetTimer()
		for range b.N {
			t := bd.next(boardNow)
			t.wake = boardNow
			bd.settle(t, Failed)
		}
	})
}
