package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// longestWait is how long a test waits for what must happen. It is long because the machine may be busy.
const longestWait = time.Minute

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(longestWait); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %v: %s", longestWait, what)
}

// endless makes a backend that generates until its context ends, one token per millisecond.
func endless() *fake {
	f := newFake(strings.Repeat("a", 1<<20))
	f.context = 1 << 21
	f.step = func(ctx context.Context, _ int) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
	return f
}

const long = `"max_tokens":1000000`

// TestDisconnect: a client that leaves ends its generation, streamed or not, by the next token.
func TestDisconnect(t *testing.T) {
	for i, body := range []string{`{"prompt":"hi",` + long + `}`, `{"prompt":"hi","stream":true,` + long + `}`, `{"prompt":["a","b"],"n":3,` + long + `}`, `{"prompt":"hi",` + long + `}`} {
		f := endless()
		f.blind = i == 3
		_, url := start(t, f, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, "POST", url+textPath, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		go func() {
			if w, err := http.DefaultClient.Do(r); err == nil {
				io.Copy(io.Discard, w.Body)
				w.Body.Close()
			}
		}()
		eventually(t, "the generation runs", func() bool { return f.running.Load() > 0 })
		cancel()
		eventually(t, "the generation ends", func() bool { return f.running.Load() == 0 })
	}
}

// doNotRead sends a request and leaves its answer unread.
func doNotRead(t *testing.T, url, body string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	conn.(*net.TCPConn).SetReadBuffer(4096)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", textPath, len(body), body)
	return conn
}

// TestSlowReaderBeside: other requests are answered while a client does not read, which the server
// would permit for an hour.
func TestSlowReaderBeside(t *testing.T) {
	// Each event has the name of the model, so that a few hundred exceed the buffers of a connection.
	f := onReference(t, oneLayer(t), 1000, Options{WriteTimeout: time.Hour, Name: strings.Repeat("m", 1<<15)})
	defer f.close(t)
	other := loadRequest{textPath, `{"prompt":"hi","max_tokens":8,"seed":1,"ignore_eos":true}`}
	alone, err := f.client.whole(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	const n, tokens = 4, 200
	conn := doNotRead(t, f.http.URL, fmt.Sprintf(`{"prompt":"x","stream":true,"n":%d,"max_tokens":%d,"ignore_eos":true}`, n, tokens))
	defer conn.Close()
	for f.g.Load().GeneratedTokens < n*tokens {
		if got, err := f.client.whole(t.Context(), other); err != nil || got != alone {
			t.Fatalf("%s, error %v, alone %s", got, err, alone)
		}
	}
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	if f.server.active == 0 {
		t.Error("the client that does not read has its whole answer")
	}
}

// TestSlowReader: a client that does not read neither holds up the model nor keeps its request.
func TestSlowReader(t *testing.T) {
	f := newFake(strings.Repeat("a", 100_000))
	f.context = 1 << 20
	s, url := start(t, f, Options{WriteTimeout: 100 * time.Millisecond})
	defer doNotRead(t, url, `{"prompt":"hi","stream":true,`+long+`}`).Close()
	eventually(t, "the generation began", func() bool { return f.generated.Load() > 0 })
	eventually(t, "the generation ended", func() bool { return f.running.Load() == 0 })
	eventually(t, "the request ended", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.active == 0
	})
	if got := scrape(t, url)[`lockstep_http_requests_total{model_name="fake",path="/v1/completions",status="499"}`]; got != "1" {
		t.Errorf("%s requests with status 499, want 1", got)
	}
}

func TestAPIKeys(t *testing.T) {
	_, url := start(t, newFake("a"), Options{APIKeys: []string{"first", "second"}})
	tests := []struct {
		name, header string
		want         int
	}{
		{"none", "", 401},
		{"first", "Bearer first", 200},
		{"second", "Bearer second", 200},
		{"scheme in lower case", "bearer second", 200},
		{"wrong", "Bearer third", 401},
		{"beginning of a key", "Bearer firs", 401},
		{"longer than a key", "Bearer first1", 401},
		{"both", "Bearer first second", 401},
		{"empty", "Bearer ", 401},
		{"no scheme", "first", 401},
		{"other scheme", "Basic first", 401},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, path := range []string{"/v1/models", "/metrics"} {
				var headers []string
				if tt.header != "" {
					headers = []string{"Authorization", tt.header}
				}
				r := ask(t, "GET", url+path, "", headers...)
				if r.status != tt.want {
					t.Errorf("%s: status %d, want %d", path, r.status, tt.want)
				}
				if tt.want == 401 {
					if _, _, _, code := errorOf(t, r); code != "invalid_api_key" || r.header.Get("WWW-Authenticate") == "" {
						t.Errorf("%s: %s %v", path, r.body, r.header)
					}
				}
			}
		})
	}
	if r := ask(t, "GET", url+"/health", ""); r.status != 200 {
		t.Errorf("/health without a key: status %d", r.status)
	}
	// The key goes first: without one, nothing about the body shows.
	if r := ask(t, "POST", url+textPath, `{`); r.status != 401 {
		t.Errorf("malformed request without a key: status %d", r.status)
	}
}

func TestRefusedRequests(t *testing.T) {
	_, url := start(t, newFake("a"), Options{MaxBody: 100})
	tests := []struct {
		name, method, path, body string
		headers                  []string
		status                   int
	}{
		{"large body", "POST", textPath, `{"prompt":"` + strings.Repeat("a", 100) + `"}`, nil, 413},
		{"largest body", "POST", textPath, `{"prompt":"` + strings.Repeat("a", 87) + `"}`, nil, 200},
		{"form", "POST", textPath, `{"prompt":"a"}`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
		{"text", "POST", textPath, `{"prompt":"a"}`, []string{"Content-Type", "text/plain"}, 415},
		{"broken type", "POST", textPath, `{"prompt":"a"}`, []string{"Content-Type", "application/json; ="}, 415},
		{"charset", "POST", textPath, `{"prompt":"a"}`, []string{"Content-Type", "application/json; charset=UTF-8"}, 200},
		{"other charset", "POST", textPath, `{"prompt":"a"}`, []string{"Content-Type", "application/json; charset=latin1"}, 415},
		{"compressed", "POST", textPath, `{"prompt":"a"}`, []string{"Content-Encoding", "gzip"}, 415},
		{"get", "GET", textPath, "", nil, 405},
		{"post", "POST", "/v1/models", `{}`, nil, 405},
		{"delete", "DELETE", "/v1/models/fake", "", nil, 405},
		{"preflight", "OPTIONS", textPath, "", []string{"Origin", "https://a.example", "Access-Control-Request-Method", "POST"}, 405},
		{"other page", "POST", textPath, `{"prompt":"a"}`, []string{"Origin", "https://a.example"}, 403},
		{"other site", "POST", textPath, `{"prompt":"a"}`, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"own page", "POST", textPath, `{"prompt":"a"}`, []string{"Origin", url}, 200},
		{"head", "HEAD", "/health", "", nil, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := ask(t, tt.method, url+tt.path, tt.body, tt.headers...)
			if r.status != tt.status {
				t.Fatalf("status %d, want %d: %s", r.status, tt.status, r.body)
			}
			if tt.status != 200 {
				errorOf(t, r)
			}
			for name := range r.header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("header %s", name)
				}
			}
		})
	}
}

func TestOrigins(t *testing.T) {
	preflight := []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type"}
	tests := []struct {
		name, origin string
		allowed      []string
		want         bool
	}{
		{"listed", "https://a.example", []string{"https://a.example"}, true},
		{"not listed", "https://b.example", []string{"https://a.example"}, false},
		{"other scheme", "http://a.example", []string{"https://a.example"}, false},
		{"all", "https://b.example", []string{"*"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, url := start(t, newFake("a"), Options{Origins: tt.allowed})
			r := ask(t, "OPTIONS", url+textPath, "", append(preflight, "Origin", tt.origin)...)
			if got := r.header.Get("Access-Control-Allow-Origin"); (got == tt.origin) != tt.want || (r.status == 204) != tt.want {
				t.Errorf("preflight: status %d, allowed origin %q", r.status, got)
			}
			if tt.want && r.header.Get("Access-Control-Allow-Headers") != "authorization,content-type" {
				t.Errorf("preflight: headers %v", r.header)
			}
			r = ask(t, "POST", url+textPath, `{"prompt":"a"}`, "Origin", tt.origin)
			if got := r.header.Get("Access-Control-Allow-Origin"); (got == tt.origin) != tt.want || (r.status == 200) != tt.want {
				t.Errorf("status %d, allowed origin %q", r.status, got)
			}
		})
	}
}

// TestBodyTimeout: a body that stops arriving gets 408, and the connection closes.
func TestBodyTimeout(t *testing.T) {
	_, url := start(t, newFake("a"), Options{BodyTimeout: 50 * time.Millisecond})
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", textPath)
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 408 ")) || !bytes.Contains(answer, []byte(`"code":"body_timeout"`)) {
		t.Errorf("error %v: %s", err, answer)
	}
}

// TestKeepAlive: the deadlines of one request do not reach the next one on its connection.
func TestKeepAlive(t *testing.T) {
	_, url := start(t, newFake("a"), Options{BodyTimeout: 50 * time.Millisecond, WriteTimeout: 50 * time.Millisecond})
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	body := `{"prompt":"hi"}`
	for _, path := range []string{textPath, "/metrics", textPath, "/nowhere", textPath} {
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
		w, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _, err := io.Copy(io.Discard, w.Body); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		time.Sleep(80 * time.Millisecond)
	}
}

func TestRequestTimeout(t *testing.T) {
	_, url := start(t, endless(), Options{RequestTimeout: 30 * time.Millisecond})
	r := ask(t, "POST", url+textPath, `{"prompt":"hi",`+long+`}`)
	if _, _, _, code := errorOf(t, r); r.status != 504 || code != "timeout" {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	r = ask(t, "POST", url+textPath, `{"prompt":"hi","stream":true,`+long+`}`)
	if r.status != 200 || !strings.Contains(r.body, `"text":"a"`) || !strings.HasSuffix(r.body, "\"code\":\"timeout\"}}\n\n") {
		t.Errorf("status %d: %s", r.status, r.body)
	}
}

func TestMaxRequests(t *testing.T) {
	f := endless()
	_, url := start(t, f, Options{MaxRequests: 2})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		go func() {
			r, _ := http.NewRequestWithContext(ctx, "POST", url+textPath, strings.NewReader(`{"prompt":"hi",`+long+`}`))
			r.Header.Set("Content-Type", "application/json")
			if w, err := http.DefaultClient.Do(r); err == nil {
				w.Body.Close()
			}
		}()
	}
	eventually(t, "two requests run", func() bool { return f.running.Load() == 2 })
	r := ask(t, "POST", url+textPath, `{"prompt":"hi"}`)
	if _, kind, _, _ := errorOf(t, r); r.status != 429 || kind != typeLimit || r.header.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q: %s", r.status, r.header.Get("Retry-After"), r.body)
	}
	for _, path := range []string{"/health", "/metrics"} { // what watches the server needs no place
		if r := ask(t, "GET", url+path, ""); r.status != 200 {
			t.Errorf("%s: status %d", path, r.status)
		}
	}
	cancel()
	eventually(t, "a place is free", func() bool { return ask(t, "POST", url+textPath, `{"prompt":"hi","max_tokens":1}`).status == 200 })
}

func TestBadOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"MaxBody":        {MaxBody: -1},
		"MaxRequests":    {MaxRequests: -1},
		"BodyTimeout":    {BodyTimeout: -1},
		"WriteTimeout":   {WriteTimeout: -1},
		"RequestTimeout": {RequestTimeout: -1},
		"Grace":          {Grace: -1},
		"APIKeys[0]":     {APIKeys: []string{""}},
		"APIKeys[1]":     {APIKeys: []string{"a", "b c"}},
		"Origins[0]":     {Origins: []string{"https://a.example/"}},
		"Origins[1]":     {Origins: []string{"*", "a.example"}},
		"Hosts[0]":       {Hosts: []string{"http://a.example"}},
		"Hosts[1]":       {Hosts: []string{"*", "a.example:80"}},
	} {
		_, err := newServer(newFake("a"), o)
		if !errors.Is(err, ErrBadOptions) || !strings.Contains(err.Error(), name+":") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// logBuffer collects records in JSON.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// last returns the last record of a request.
func (l *logBuffer) last(t *testing.T, id string) map[string]any {
	t.Helper()
	var found map[string]any
	eventually(t, "the record of "+id, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for line := range bytes.Lines(l.b.Bytes()) {
			var r map[string]any
			if json.Unmarshal(line, &r) == nil && r["request"] == id {
				found = r
			}
		}
		return found != nil
	})
	return found
}

// TestLogAndRequestID: each response has the request's id, which its record in the log has too.
// The log has no text of a request.
func TestLogAndRequestID(t *testing.T) {
	logs := &logBuffer{}
	_, url := start(t, newFake("answer"), Options{Log: slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	tests := []struct {
		name, path, body, id string
		keep                 bool
		want                 map[string]any
	}{
		{"own id", textPath, `{"prompt":"secret"}`, "my-id.1", true,
			map[string]any{"level": "INFO", "method": "POST", "path": textPath, "status": 200., "prompt_tokens": 6., "completion_tokens": 6.}},
		{"no id", textPath, `{"prompt":"secret","stream":true}`, "", false, map[string]any{"status": 200., "completion_tokens": 6.}},
		{"id with a space", textPath, `{"prompt":"secret"}`, "a b", false, map[string]any{"status": 200.}},
		{"long id", textPath, `{"prompt":"secret"}`, strings.Repeat("a", 129), false, map[string]any{"status": 200.}},
		{"error", textPath, `{"prompt":"secret","n":0}`, "bad", true, map[string]any{"level": "INFO", "status": 400., "error": "n: 0, want 1 to 128"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := ask(t, "POST", url+tt.path, tt.body, "X-Request-Id", tt.id)
			id := r.header.Get("X-Request-Id")
			if (id == tt.id) != tt.keep || id == "" {
				t.Fatalf("id %q, sent %q", id, tt.id)
			}
			record := logs.last(t, id)
			for key, want := range tt.want {
				if record[key] != want {
					t.Errorf("%s: %v, want %v", key, record[key], want)
				}
			}
		})
	}
	logs.mu.Lock()
	defer logs.mu.Unlock()
	if text := logs.b.String(); strings.Contains(text, "secret") || strings.Contains(text, `"answer"`) {
		t.Errorf("the log has a text of a request: %s", text)
	}
}
