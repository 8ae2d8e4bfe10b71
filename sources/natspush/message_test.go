package natspush

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
)

func TestEventOfAMessage(t *testing.T) {
	tests := []struct {
		name    string
		header  nats.Header
		want    func(*triggerd.Event)
		headers map[string]string
	}{
		{"nothing said", nil, func(*triggerd.Event) {}, nil},
		{"Nats-Msg-Id", nats.Header{"Nats-Msg-Id": {"m"}}, func(e *triggerd.Event) { e.ID = "m" }, nil},
		{
			"ce-id wins over Nats-Msg-Id", nats.Header{"Nats-Msg-Id": {"m"}, "CE-ID": {"c"}},
			func(e *triggerd.Event) { e.ID = "c" }, map[string]string{"ce-id": "c"},
		},
		{
			"an empty id is absent", nats.Header{"ce-id": {""}, "nats-msg-id": {"m"}},
			func(e *triggerd.Event) { e.ID = "m" }, map[string]string{"ce-id": ""},
		},
		{
			"one header in two cases: the first name in order", nats.Header{"ce-id": {"b"}, "Ce-Id": {"a"}},
			func(e *triggerd.Event) { e.ID = "a" }, map[string]string{"ce-id": "a, b"},
		},
		{
			"ce-type and ce-time", nats.Header{"ce-type": {"a.b"}, "ce-time": {"2026-01-02T04:04:05+01:00"}},
			func(e *triggerd.Event) { e.Type, e.Time = "a.b", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) },
			map[string]string{"ce-type": "a.b", "ce-time": "2026-01-02T04:04:05+01:00"},
		},
		{"a ce-time that is none", nats.Header{"ce-time": {"soon"}}, func(*triggerd.Event) {}, map[string]string{"ce-time": "soon"}},
		{
			"Content-Type wins over ce-datacontenttype", nats.Header{"content-type": {"text/csv"}, "ce-datacontenttype": {"x/y"}},
			func(e *triggerd.Event) { e.ContentType = "text/csv" }, map[string]string{"content-type": "text/csv", "ce-datacontenttype": "x/y"},
		},
		{
			"ce-datacontenttype", nats.Header{"ce-datacontenttype": {"x/y"}},
			func(e *triggerd.Event) { e.ContentType = "x/y" }, map[string]string{"ce-datacontenttype": "x/y"},
		},
		{"hops", nats.Header{"Triggerd-Hops": {"8"}}, func(e *triggerd.Event) { e.Hops = 8 }, map[string]string{"triggerd-hops": "8"}},
		{
			"NATS's own headers and credentials are left out",
			nats.Header{"Nats-Expected-Stream": {"S"}, "Authorization": {"a"}, "Cookie": {"c"}, "proxy-authorization": {"p"}, "X-A": {"1", "2"}},
			func(*triggerd.Event) {}, map[string]string{"x-a": "1, 2"},
		},
		{
			"over 16 KiB of headers the largest are left out", nats.Header{"X-Big": {strings.Repeat("x", sources.MaxHeaders)}, "X-Small": {"s"}},
			func(*triggerd.Event) {}, map[string]string{"x-small": "s"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := event("order.created", tt.header, []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			want := triggerd.Event{Type: "order.created"}
			tt.want(&want)
			if got.ID != want.ID || got.Type != want.Type || !got.Time.Equal(want.Time) || got.ContentType != want.ContentType || got.Hops != want.Hops {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if string(got.Payload) != "x" || !maps.Equal(got.Headers, tt.headers) {
				t.Errorf("payload %q, headers %v, want %v", got.Payload, got.Headers, tt.headers)
			}
		})
	}
}

func TestMessagesThatAreNoEvent(t *testing.T) {
	for name, h := range map[string]nats.Header{
		"an id that is too long":             {"ce-id": {strings.Repeat("x", 1025)}},
		"an id that is not UTF-8":            {"ce-id": {"\xff"}},
		"an id with a control character":     {"Nats-Msg-Id": {"a\tb"}},
		"a type that is too long":            {"ce-type": {strings.Repeat("x", 257)}},
		"hops that are no number":            {"Triggerd-Hops": {"1e3"}},
		"hops below zero":                    {"Triggerd-Hops": {"-1"}},
		"a bad ce-id before a good other id": {"ce-id": {"\xff"}, "Nats-Msg-Id": {"good"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := event("x", h, nil); !errors.Is(err, triggerd.ErrInvalidEvent) {
				t.Errorf("error %v", err)
			}
		})
	}
}
