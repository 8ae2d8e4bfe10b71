package bus

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestReadAck(t *testing.T) {
	api := func(code jetstream.ErrorCode) func(error) bool {
		return func(err error) bool {
			var e *jetstream.APIError
			return errors.As(err, &e) && e.ErrorCode == code
		}
	}
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	for name, c := range map[string]struct {
		data string
		seq  uint64
		err  func(error) bool
	}{
		"stored":             {data: `{"stream":"triggerd_TURNS", "seq":18446744073709551615}`, seq: 1<<64 - 1},
		"with a domain":      {data: `{"stream":"triggerd_TURNS", "domain":"hub", "seq":7}`, seq: 7},
		"with another order": {data: `{"seq":7,"stream":"triggerd_TURNS"}`, seq: 7},
		"a duplicate":        {data: `{"stream":"triggerd_TURNS", "seq":7,"duplicate": true}`, seq: 7},
		"refused":            {data: `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"triggerd_TURNS","seq":0}`, err: api(codeWrongSequence)},
		"a name that mocks":  {data: `{"error":{"code":400,"err_code":10071,"description":"\", \"seq\":5}"},"stream":"x", "seq":0}`, err: api(codeWrongSequence)},
		"no stream":          {data: `{"seq":7}`, err: is(jetstream.ErrInvalidJSAck)},
		"no JSON":            {data: `+OK`, err: is(jetstream.ErrInvalidJSAck)},
		"too long a number":  {data: `{"stream":"triggerd_TURNS", "seq":18446744073709551616}`, err: is(jetstream.ErrInvalidJSAck)},
	} {
		t.Run(name, func(t *testing.T) {
			seq, err := readAck(&nats.Msg{Data: []byte(c.data)})
			if seq != c.seq || (err != nil) != (c.err != nil) || err != nil && !c.err(err) {
				t.Errorf("%d, %v", seq, err)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		if _, err := readAck(&nats.Msg{Header: nats.Header{"Status": {"503"}}}); !errors.Is(err, jetstream.ErrNoStreamResponse) {
			t.Error(err)
		}
	})
}
