package bus

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// lost is a request that nobody answers for the first n times.
func lost(n int) (request func(context.Context) (string, error), tries *int) {
	tries = new(int)
	return func(ctx context.Context) (string, error) {
		if *tries++; *tries <= n {
			<-ctx.Done()
			return "", ctx.Err()
		}
		return "answer", nil
	}, tries
}

func TestInsist(t *testing.T) {
	refused := errors.New("refused")
	for _, c := range []struct {
		what  string
		lost  int
		tries int
		took  time.Duration
		err   error
	}{
		{"answered at once", 0, 1, 0, nil},
		{"lost once", 1, 2, insistFirst, nil},
		{"lost twice", 2, 3, 3 * insistFirst, nil},
		{"never answered", 100, 3, 7 * insistFirst, context.DeadlineExceeded},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				request, tries := lost(c.lost)
				began := time.Now()
				answer, err := Insist(t.Context(), request)
				if took := time.Since(began); !errors.Is(err, c.err) || (err == nil) != (answer == "answer") || *tries != c.tries || took != c.took {
					t.Errorf("%v after %d tries and %v, want %v, %d and %v", err, *tries, took, c.err, c.tries, c.took)
				}
			})
		})
	}
	t.Run("refused", func(t *testing.T) {
		tries := 0
		if _, err := Insist(t.Context(), func(context.Context) (string, error) { tries++; return "", refused }); !errors.Is(err, refused) || tries != 1 {
			t.Errorf("%v after %d tries", err, tries)
		}
	})
	t.Run("given up by the caller", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), insistFirst/2)
			defer stop()
			request, tries := lost(100)
			if _, err := Insist(ctx, request); !errors.Is(err, context.DeadlineExceeded) || *tries != 1 {
				t.Errorf("%v after %d tries", err, *tries)
			}
		})
	})
}
