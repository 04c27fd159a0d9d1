package serve

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// listen runs Serve on loopback and returns its URL, a function that stops it, and its result.
func listen(t *testing.T, b backend, o Options) (url string, stop context.CancelFunc, result chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listenOn(t, b, o, l)
}

// listenOn is listen with a listener.
func listenOn(t *testing.T, b backend, o Options, l net.Listener) (url string, stop context.CancelFunc, result chan error) {
	t.Helper()
	s, err := newServer(b, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result = make(chan error, 1)
	go func() { result <- s.Serve(ctx, l) }()
	t.Cleanup(cancel)
	return "http://" + l.Addr().String(), cancel, result
}

// TestGracefulStop: a server that stops finishes what runs, refuses what comes, and says that it
// is not ready.
func TestGracefulStop(t *testing.T) {
	f := newFake("abc")
	next := make(chan bool)
	f.step = func(context.Context, int) { <-next }
	url, stop, result := listen(t, f, Options{Grace: time.Minute})
	if r := ask(t, "GET", url+"/health", ""); r.status != 200 || r.body != `{"status":"ok"}` {
		t.Errorf("before: status %d: %s", r.status, r.body)
	}
	answer := make(chan response, 1)
	go func() { answer <- ask(t, "POST", url+textPath, `{"prompt":"hi","stream":true}`) }()
	next <- true
	stop()
	eventually(t, "the server is not ready", func() bool {
		return ask(t, "GET", url+"/health", "").status == 503
	})
	r := ask(t, "POST", url+textPath, `{"prompt":"hi"}`)
	if _, _, _, code := errorOf(t, r); r.status != 503 || code != "stopping" || r.header.Get("Retry-After") == "" {
		t.Errorf("a request while it stops: status %d: %s", r.status, r.body)
	}
	next <- true
	next <- true
	if r := <-answer; r.status != 200 || !strings.HasSuffix(r.body, "data: [DONE]\n\n") {
		t.Errorf("the running request: status %d: %s", r.status, r.body)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
	if _, err := http.Get(url + "/health"); err == nil {
		t.Error("the server still listens")
	}
}

// TestCut: what runs longer than the grace period ends with an error.
func TestCut(t *testing.T) {
	f := endless()
	url, stop, result := listen(t, f, Options{Grace: 20 * time.Millisecond})
	whole := make(chan response, 1)
	go func() { whole <- ask(t, "POST", url+textPath, `{"prompt":"hi",`+long+`}`) }()
	w, err := http.Post(url+textPath, "application/json", strings.NewReader(`{"prompt":"hi","stream":true,`+long+`}`))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	events := bufio.NewReader(w.Body)
	if _, err := readEvent(events); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both run", func() bool { return f.running.Load() == 2 })
	stop()
	rest, err := io.ReadAll(events)
	if err != nil || !strings.HasSuffix(string(rest), "\"code\":\"stopping\"}}\n\n") {
		t.Errorf("the stream: error %v: %s", err, rest[max(0, len(rest)-300):])
	}
	r := <-whole
	if _, _, _, code := errorOf(t, r); r.status != 503 || code != "stopping" {
		t.Errorf("the other: status %d: %s", r.status, r.body)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
	if f.running.Load() != 0 {
		t.Error("a generation is left")
	}
}

// TestStopTwice: Stop of a server without requests returns at once, as often as it is called.
func TestStopTwice(t *testing.T) {
	s, url := start(t, newFake("a"), Options{})
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if r := ask(t, "GET", url+"/v1/models", ""); r.status != 503 {
		t.Errorf("status %d", r.status)
	}
}

// TestHeaders: headers that are too large or never end close their connection.
func TestHeaders(t *testing.T) {
	url, _, _ := listen(t, newFake("a"), Options{})
	r, _ := http.NewRequest("GET", url+"/health", nil)
	for range 100 {
		r.Header.Add("X-A", strings.Repeat("a", 1000))
	}
	w, err := http.DefaultClient.Do(r)
	if err == nil {
		w.Body.Close()
		if w.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("status %d", w.StatusCode)
		}
	}
	for _, head := range []string{"GET /health HTTP/9.9\r\n\r\n", "GET /health HTTP/1.1\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01", "GET /health HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, head)
		conn.(*net.TCPConn).CloseWrite()
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		answer, _ := io.ReadAll(conn)
		conn.Close()
		if line, _, _ := strings.Cut(string(answer), "\r\n"); !strings.HasPrefix(line, "HTTP/1.1 4") && !strings.HasPrefix(line, "HTTP/1.1 5") && line != "" {
			t.Errorf("%q: %q", head, line)
		}
	}
	if r := ask(t, "GET", url+"/health", ""); r.status != 200 {
		t.Errorf("afterwards: status %d", r.status)
	}
}
