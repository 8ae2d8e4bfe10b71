package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// dialTimeout bounds connecting; the requests themselves end with their context only, since a cancel may wait long.
const dialTimeout = 5 * time.Second

// Client is a [Backend] on the other side of the admin API. It is safe for concurrent use.
//
// Errors: [*Error] when the daemon refused, [ErrUnreachable] when none answered; sentinels survive the trip.
// A connection that breaks in the middle of a change leaves it unknown whether the change was made.
type Client struct {
	address string
	base    string
	http    *http.Client
}

var _ Backend = (*Client)(nil)

// Dial makes a client for addr: "unix:<path>", a bare path of a unix socket, or an http:// or https:// URL.
// It does not connect yet: the first call does.
func Dial(addr string) (*Client, error) {
	tr := &http.Transport{DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext}
	c := &Client{address: addr, base: strings.TrimRight(addr, "/")}
	if !strings.HasPrefix(addr, "http://") && !strings.HasPrefix(addr, "https://") {
		path := strings.TrimPrefix(addr, "unix:")
		if err := checkSocketPath(path); err != nil {
			return nil, err
		}
		c.address, c.base = path, "http://triggerd"
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", path)
		}
	} else if u, err := url.Parse(addr); err != nil || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, errors.New("the admin API's URL must look like http://host:port")
	}
	c.http = &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// Close lets go of idle connections. The client can still be used after it.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Events lists events, newest first.
func (c *Client) Events(ctx context.Context, q EventQuery) ([]EventInfo, error) {
	v := params("connection", q.Connection, "type", q.Type)
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.After != 0 {
		v.Set("after", strconv.FormatUint(q.After, 10))
	}
	return list[EventInfo](ctx, c, pathEvents, v)
}

// Event shows one event.
func (c *Client) Event(ctx context.Context, ref string) (EventDetail, error) {
	return one[EventDetail](ctx, c, http.MethodGet, pathEvent, params("ref", ref), nil)
}

// Turns lists turns, newest first.
func (c *Client) Turns(ctx context.Context, q TurnQuery) ([]TurnInfo, error) {
	v := params("trigger", q.Trigger, "connection", q.Connection, "state", q.State, "after", q.After)
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return list[TurnInfo](ctx, c, pathTurns, v)
}

// Turn shows one turn. Numbers in Input are [json.Number], so that none loses digits.
func (c *Client) Turn(ctx context.Context, ref string) (TurnDetail, error) {
	return one[TurnDetail](ctx, c, http.MethodGet, pathTurn, params("ref", ref), nil)
}

// RetryTurn opens a new turn for the same event.
func (c *Client) RetryTurn(ctx context.Context, ref string) (TurnInfo, error) {
	return one[TurnInfo](ctx, c, http.MethodPost, pathTurnRetry, params("ref", ref), nil)
}

// CancelTurn blocks until the turn is final or ctx ends.
func (c *Client) CancelTurn(ctx context.Context, ref string) (TurnInfo, error) {
	return one[TurnInfo](ctx, c, http.MethodPost, pathTurnCancel, params("ref", ref), nil)
}

// Explain tells every trigger's verdict on an event.
func (c *Client) Explain(ctx context.Context, eventRef string) (Explanation, error) {
	return one[Explanation](ctx, c, http.MethodGet, pathExplain, params("event", eventRef), nil)
}

// Triggers lists the triggers.
func (c *Client) Triggers(ctx context.Context) ([]TriggerInfo, error) {
	return list[TriggerInfo](ctx, c, pathTriggers, nil)
}

// PauseTrigger pauses a trigger; safe to repeat.
func (c *Client) PauseTrigger(ctx context.Context, name string, p PauseRequest) (TriggerInfo, error) {
	return one[TriggerInfo](ctx, c, http.MethodPost, pathTriggerPause, params("name", name), &p)
}

// ResumeTrigger ends a pause; safe to repeat.
func (c *Client) ResumeTrigger(ctx context.Context, name string) (TriggerInfo, error) {
	return one[TriggerInfo](ctx, c, http.MethodPost, pathTriggerResume, params("name", name), nil)
}

// Fire fires a trigger by hand. It returns when the event is stored; safe to repeat with the same ID.
func (c *Client) Fire(ctx context.Context, r FireRequest) (FireResult, error) {
	return one[FireResult](ctx, c, http.MethodPost, pathFire, nil, &r)
}

// Backfill fires past slots of a schedule.
func (c *Client) Backfill(ctx context.Context, r BackfillRequest) (BackfillResult, error) {
	return one[BackfillResult](ctx, c, http.MethodPost, pathBackfill, nil, &r)
}

// Reload loads the configuration again.
func (c *Client) Reload(ctx context.Context) (ReloadResult, error) {
	return one[ReloadResult](ctx, c, http.MethodPost, pathReload, nil, nil)
}

// Daemons implements [Backend].
func (c *Client) Daemons(ctx context.Context) ([]DaemonInfo, error) {
	return list[DaemonInfo](ctx, c, pathDaemons, nil)
}

// Apps lists the push connections' users.
func (c *Client) Apps(ctx context.Context) ([]AppInfo, error) {
	return list[AppInfo](ctx, c, pathApps, nil)
}

// AddApp creates a push connection's user, or changes its password.
func (c *Client) AddApp(ctx context.Context, connection string) (AppInfo, error) {
	return one[AppInfo](ctx, c, http.MethodPost, pathApps, params("connection", connection), nil)
}

// RemoveApp removes a push connection's user.
func (c *Client) RemoveApp(ctx context.Context, connection string) (AppInfo, error) {
	return one[AppInfo](ctx, c, http.MethodDelete, pathApps, params("connection", connection), nil)
}

// Ready tells whether the daemon is ready. A daemon that does not answer is not ready, and the reason says so.
func (c *Client) Ready(ctx context.Context) Readiness {
	var state Readiness
	err := c.do(ctx, http.MethodGet, pathReady, url.Values{"verbose": {""}}, nil, func(status int, body io.Reader) error {
		if status != http.StatusOK && status != http.StatusServiceUnavailable {
			return refusal(status, body)
		}
		return json.NewDecoder(body).Decode(&state)
	})
	if err != nil {
		return Readiness{Reasons: []string{err.Error()}}
	}
	return state
}

// params makes a query of name, value pairs; empty values are left out, as a filter that is not set.
func params(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return v
}

func one[T any](ctx context.Context, c *Client, method, path string, q url.Values, body any) (T, error) {
	var v T
	err := c.do(ctx, method, path, q, body, func(status int, r io.Reader) error {
		if status != http.StatusOK {
			return refusal(status, r)
		}
		dec := json.NewDecoder(r)
		dec.UseNumber()
		return dec.Decode(&v)
	})
	if err != nil {
		var none T
		return none, err
	}
	return v, nil
}

// list decodes element by element, as the server writes.
func list[T any](ctx context.Context, c *Client, path string, q url.Values) ([]T, error) {
	items := []T{}
	err := c.do(ctx, http.MethodGet, path, q, nil, func(status int, r io.Reader) error {
		if status != http.StatusOK {
			return refusal(status, r)
		}
		dec := json.NewDecoder(r)
		dec.UseNumber()
		if tok, err := dec.Token(); err != nil {
			return err
		} else if tok != json.Delim('[') {
			return errors.New("the answer is not a list")
		}
		for dec.More() {
			var item T
			if err := dec.Decode(&item); err != nil {
				return err
			}
			items = append(items, item)
		}
		_, err := dec.Token() // the closing bracket: without it the list was cut short
		return err
	})
	if err != nil {
		return nil, err
	}
	return items, nil
}

func (c *Client) do(ctx context.Context, method, path string, q url.Values, body any, read func(int, io.Reader) error) error {
	target := c.base + path
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, payload)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.explainFailure(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	err = read(res.StatusCode, res.Body)
	var refused *Error
	switch {
	case err == nil || errors.As(err, &refused):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("read the daemon's answer: %w", err)
}

// explainFailure says in an operator's words why no answer came, without the URL, whose query is the caller's business.
func (c *Client) explainFailure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return fmt.Errorf("the connection to the daemon at %s broke: %w", c.address, err)
	}
	hint := "is `triggerd serve` running?"
	if errors.Is(err, fs.ErrPermission) {
		hint = "only the user that runs the daemon may use its socket"
	}
	return fmt.Errorf("%w at %s: %w (%s)", ErrUnreachable, c.address, op.Err, hint)
}

// refusal reads an answer that is not a success.
func refusal(status int, r io.Reader) error {
	e := &Error{Status: status, Code: codeInternal, Message: fmt.Sprintf("the daemon answered %d %s", status, http.StatusText(status))}
	data, err := io.ReadAll(io.LimitReader(r, 1<<20))
	var body errorBody
	if err == nil && json.Unmarshal(data, &body) == nil && body.Error != "" {
		e.Code, e.Message = body.Code, body.Error
	}
	if e.Code == codeNoRoute {
		e.Message += " (is the daemon of another version?)"
	}
	return e
}
