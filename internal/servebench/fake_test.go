package servebench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// listener is a network in memory, so that a server and its client run on the fake clock of
// a synctest bubble.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (l *listener) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	}
}

// body is the body of a request as the fake server reads it.
type body struct {
	Model         string            `json:"model"`
	Prompt        json.RawMessage   `json:"prompt"`
	Messages      []json.RawMessage `json:"messages"`
	MaxTokens     int               `json:"max_tokens"`
	IgnoreEOS     bool              `json:"ignore_eos"`
	Stream        bool              `json:"stream"`
	StreamOptions map[string]bool   `json:"stream_options"`
	Temperature   *float64          `json:"temperature"`
	Content       string            `json:"content"`
	AddSpecial    bool              `json:"add_special"`
	AddTokens     bool              `json:"add_special_tokens"`
}

// received is a request with its time of arrival.
type received struct {
	body
	raw  string
	path string
	key  string
	at   time.Time
}

// fake is a server in a bubble. answer writes the answer to request n, from 0.
type fake struct {
	answer   func(w stream, n int, r received)
	tokenize func(text string) int // nil: 404
	models   string                // "": two models
	wait     string                // path without an answer

	mu      sync.Mutex
	seen    []received
	counted []received // requests of /tokenize
}

// stream is an event stream.
type stream struct {
	http.ResponseWriter
	ctx context.Context
}

// line writes a line and its end of event.
func (s stream) line(format string, args ...any) {
	fmt.Fprintf(s, format+"\n\n", args...)
	s.ResponseWriter.(http.Flusher).Flush()
}

// begin writes the header of a stream.
func (s stream) begin() { s.Header().Set("Content-Type", "text/event-stream; charset=utf-8") }

// tokens writes n tokens, one after each delay; the last delay is repeated.
func (s stream) tokens(n int, delays ...time.Duration) {
	for i := range n {
		select {
		case <-time.After(delays[min(i, len(delays)-1)]):
		case <-s.ctx.Done():
			return
		}
		s.line(`data: {"choices":[{"index":0,"text":"x","finish_reason":null}]}`)
	}
}

// end writes the end of a choice, the usage and the end of the stream.
func (s stream) end(prompt, output int) {
	s.line(`data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}`)
	s.line(`data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, prompt, output)
	s.line(`data: [DONE]`)
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var raw json.RawMessage
	rec := received{path: r.URL.Path, key: r.Header.Get("Authorization"), at: time.Now()}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&raw); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		rec.raw = string(raw)
		json.Unmarshal(raw, &rec.body)
	}
	switch rec.path {
	case f.wait:
		<-r.Context().Done()
		return
	case "/v1/models":
		fmt.Fprint(w, cmp.Or(f.models, `{"object":"list","data":[{"id":"first"},{"id":"second"}]}`))
		return
	case "/tokenize":
		if f.tokenize == nil {
			http.NotFound(w, r)
			return
		}
		f.counted = append(f.counted, rec) // they come one after the other
		json.NewEncoder(w).Encode(map[string]any{"tokens": make([]int, f.tokenize(rec.Content))})
		return
	}
	f.mu.Lock()
	n := len(f.seen)
	f.seen = append(f.seen, rec)
	f.mu.Unlock()
	f.answer(stream{w, r.Context()}, n, rec)
}

// bubble runs test with a client of the fake server, on a fake clock.
func bubble(t *testing.T, f *fake, test func(t *testing.T, o Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{Handler: f}
		served := make(chan error)
		go func() { served <- server.Serve(l) }()
		transport := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 100}
		test(t, Options{
			Target: Target{URL: "http://fake", Timeout: time.Hour, Client: &http.Client{Transport: transport}},
			Load:   Load{Rate: 1, Requests: 4, Prompt: fixed(3), Output: fixed(4), Seed: 1},
			Vocab:  100,
			Note:   func(text string) { t.Errorf("note %q", text) },
			Done:   func() {},
		})
		transport.CloseIdleConnections()
		server.Close()
		<-served
	})
}

func fixed(n int) Lengths { return Lengths{low: n, high: n} }

// mustRun runs a benchmark that must not fail.
func mustRun(t *testing.T, o Options) Report {
	t.Helper()
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}
