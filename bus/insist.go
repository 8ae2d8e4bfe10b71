package bus

import (
	"context"
	"errors"
	"time"
)

// How long the first and the last try of [Insist] wait; each waits twice as long as the one before it.
const (
	insistFirst = time.Second
	insistLast  = 4 * time.Second
)

// Insist makes a request to JetStream that is safe to repeat, and repeats it when no answer comes. It blocks until there is one, the last try has none
// either, or ctx ends. What is made with one replica has to get a new name each time: its replica may be on the very server that is gone.
//
// A cluster whose leader was lost answers nobody, forgets what it was asked meanwhile, and has a new leader in a few seconds. Who waits five seconds, as
// the client library does, for an answer to what was asked a moment too early is late by that.
func Insist[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	for patience := insistFirst; ; patience *= 2 {
		try, stop := context.WithTimeout(ctx, patience)
		answer, err := request(try)
		stop()
		if ctx.Err() != nil || patience >= insistLast || !errors.Is(err, context.DeadlineExceeded) {
			return answer, err
		}
	}
}
