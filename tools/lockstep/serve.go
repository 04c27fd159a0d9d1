package main

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/serve"
)

type serveCmd struct {
	modelFlag
	deviceFlag
	Addr         string        `default:"127.0.0.1:8080" env:"LOCKSTEP_ADDR" help:"Address to listen on; port 0: any that is free (${default})." placeholder:"HOST:PORT"`
	Name         string        `help:"Name of the model for clients (default: that in the file)." placeholder:"N"`
	APIKeyFile   *path         `name:"api-key-file" env:"LOCKSTEP_API_KEY_FILE" help:"File of API keys, one per line; requests need one of them (default: none needed)." placeholder:"F"`
	Origin       []string      `sep:"none" help:"Origin of web pages that may use the server, such as https://example.com, or * for all; may be repeated (default: none)." placeholder:"O"`
	AllowHost    []string      `sep:"none" help:"Host that requests may name besides loopback, if the address is loopback; * for all; may be repeated (default: none)." placeholder:"H"`
	Log          string        `enum:"text,json,none" default:"text" help:"Log requests to standard error: text, json or none (${default})." placeholder:"text|json|none"`
	Grace        time.Duration `default:"10s" help:"Time to finish requests after an interrupt (${default})." placeholder:"D"`
	Timeout      time.Duration `default:"0s" help:"Maximum time of a request; 0: no limit (${default})." placeholder:"D"`
	MaxWaiting   int           `default:"0" help:"Maximum number of completions that wait for room; more are refused; 0: no limit (${default})." placeholder:"N"`
	PromptBudget int           `default:"0" help:"Maximum number of prompt tokens per step; fewer shorten the pauses between the tokens of other requests; 0: what the engine computes at once (${default})." placeholder:"N"`
	MaxSequences int           `default:"64" help:"Maximum number of sequences per step on a GPU, at most 256; more take memory for buffers, and time to prepare kernels (${default})." placeholder:"N"`
	MaxRequests  int           `default:"4096" help:"Maximum number of requests at once; more are refused (${default})." placeholder:"N"`
}

func (c *serveCmd) Help() string {
	return "Endpoints: /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/models, /tokenize, /detokenize, /health, /metrics, /load, " +
		"and a page for browsers at /. After an interrupt the server finishes the requests in flight; a second one ends it at once. " +
		"For TLS, put a reverse proxy before it."
}

func (c *serveCmd) Run(e *env) error {
	options, err := c.options(e)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	defer listener.Close()
	m, err := c.open()
	if err != nil {
		return err
	}
	defer m.Close()
	runner, err := c.run(e, m, c.name(), lockstep.Options{
		Accel: accel.Options{MaxSequences: c.MaxSequences}, Generate: generate.Options{MaxWaiting: c.MaxWaiting, PromptTokens: c.PromptBudget},
	})
	if err != nil {
		return err
	}
	defer runner.Close()
	if err := e.prepare(runner); err != nil {
		return fmt.Errorf("--device %s: %s: %w", c.Device, c.name(), err)
	}
	s, err := serve.New(runner.Generator(), options)
	if err != nil {
		return err
	}
	extraGrace.Store(int64(c.Grace + 2*time.Second)) // with time to close connections
	defer extraGrace.Store(0)
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() && len(options.APIKeys) == 0 {
		e.note("warning: everyone who reaches %s can use the model: --api-key-file requires a key", listener.Addr())
	}
	e.note("serving %s at http://%s", c.name(), listener.Addr())
	return s.Serve(e.ctx, listener)
}

// prepare loads the kernels and graphs of an accelerator, so that no request waits for them.
func (e *env) prepare(m *lockstep.Model) error {
	engine, ok := m.Engine().(*accel.Engine)
	if !ok {
		return nil
	}
	begin := time.Now()
	var p *progress
	err := engine.Prepare(e.ctx, func(done, total int) {
		if p == nil {
			p = e.progress("kernels and graphs", int64(total))
		}
		p.add(1)
	})
	if p != nil {
		p.end()
	}
	if err == nil {
		e.note("prepared kernels and graphs in %.1f s", time.Since(begin).Seconds())
	}
	return err
}

// options converts the flags and reads the keys. A grace of 0 becomes 1 ns, since 0 means the default.
func (c *serveCmd) options(e *env) (serve.Options, error) {
	o := serve.Options{Name: c.Name, Origins: c.Origin, Hosts: c.AllowHost, Grace: max(c.Grace, 1), RequestTimeout: c.Timeout, MaxRequests: c.MaxRequests}
	switch {
	case c.Grace < 0:
		return o, usagef("--grace: %v, want 0 or more", c.Grace)
	case c.Timeout < 0:
		return o, usagef("--timeout: %v, want 0 or more", c.Timeout)
	case c.MaxWaiting < 0:
		return o, usagef("--max-waiting: %d, want 0 or more", c.MaxWaiting)
	case c.PromptBudget < 0:
		return o, usagef("--prompt-budget: %d, want 0 or more", c.PromptBudget)
	case c.MaxSequences < 1 || c.MaxSequences > maxSequences:
		return o, usagef("--max-sequences: %d, want 1 to %d", c.MaxSequences, maxSequences)
	case c.MaxRequests < 1:
		return o, usagef("--max-requests: %d, want 1 or more", c.MaxRequests)
	}
	_, port, err := net.SplitHostPort(c.Addr)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		return o, usagef("--addr: %q, want a form such as 127.0.0.1:8080", c.Addr)
	}
	for _, origin := range c.Origin {
		if !serve.IsOrigin(origin) {
			return o, usagef("--origin: %q, want a form such as https://example.com, or *", origin)
		}
	}
	for _, host := range c.AllowHost {
		if !serve.IsHost(host) {
			return o, usagef("--allow-host: %q, want a name or an IP address without a port, or *", host)
		}
	}
	switch c.Log {
	case "text":
		o.Log = slog.New(slog.NewTextHandler(e.errw, nil))
	case "json":
		o.Log = slog.New(slog.NewJSONHandler(e.errw, nil))
	}
	if c.APIKeyFile == nil {
		return o, nil
	}
	if o.APIKeys, err = readKeys(string(*c.APIKeyFile)); err != nil {
		return o, fmt.Errorf("--api-key-file: %w", err)
	}
	return o, nil
}

// readKeys reads one key per line. It ignores lines that are empty or begin with #.
func readKeys(name string) ([]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var keys []string
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		key := strings.TrimSpace(lines.Text())
		switch {
		case key == "" || strings.HasPrefix(key, "#"):
		case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
			return nil, fmt.Errorf("%s: line %d: want visible ASCII without spaces", name, n)
		default:
			keys = append(keys, key)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(keys) == 0 {
		return nil, errors.New(name + ": no key")
	}
	return keys, nil
}
