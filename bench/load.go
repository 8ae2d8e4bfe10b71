package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// load posts the events from closed-loop clients, to the URLs in turn; each event's id is the time at which its request began, so that whoever finishes it
// can tell how long it took. It returns the answer times.
func load(ctx context.Context, s settings, urls ...string) ([]time.Duration, error) {
	tr := &http.Transport{MaxIdleConnsPerHost: s.clients, MaxConnsPerHost: s.clients}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: 30 * time.Second}
	body := body(s.size)
	times := make([]time.Duration, s.events)
	var next, failed atomic.Int64
	var firstErr atomic.Pointer[error]
	var wg sync.WaitGroup
	for range s.clients {
		wg.Go(func() {
			for {
				n := next.Add(1) - 1
				if n >= int64(s.events) || failed.Load() > 0 {
					return
				}
				began := time.Now()
				if err := post(ctx, client, urls[n%int64(len(urls))], eventID(began, n), body); err != nil {
					failed.Add(1)
					firstErr.Store(&err)
					return
				}
				times[n] = time.Since(began)
			}
		})
	}
	wg.Wait()
	if err := firstErr.Load(); err != nil {
		return nil, *err
	}
	return times, nil
}

func post(ctx context.Context, client *http.Client, url, id string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", id)
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusAccepted {
		return fmt.Errorf("answer %d: %s", res.StatusCode, answer)
	}
	return nil
}

// eventID is "<unix nanoseconds>-<n>".
func eventID(t time.Time, n int64) string {
	return strconv.FormatInt(t.UnixNano(), 10) + "-" + strconv.FormatInt(n, 10)
}

func begun(id string) (time.Time, bool) {
	nanos, _, _ := bytes.Cut([]byte(id), []byte("-"))
	n, err := strconv.ParseInt(string(nanos), 10, 64)
	return time.Unix(0, n), err == nil
}

// body is JSON of exactly this size.
func body(size int) []byte {
	const head, foot = `{"text":"`, `"}`
	return fmt.Appendf(nil, "%s%s%s", head, bytes.Repeat([]byte("x"), max(size-len(head)-len(foot), 0)), foot)
}

// cpuTime is what a process has used so far, children excluded. The kernel counts it in ticks of 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("read CPU time of process %d: %d fields", pid, len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// quantile sorts ds.
func quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return ds[min(int(q*float64(len(ds))), len(ds)-1)]
}
