package servebench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const ms = time.Millisecond

// millis rounds a distribution in seconds to milliseconds.
func millis(d Distribution) [6]float64 {
	r := func(x float64) float64 { return math.Round(1e6*x) / 1e3 }
	return [6]float64{float64(d.Count), r(d.Mean), r(d.P50), r(d.P90), r(d.P99), r(d.Max)}
}

// The latencies are the known delays of the server.
func TestLatencies(t *testing.T) {
	f := &fake{answer: func(w stream, n int, r received) {
		w.begin()
		w.tokens(4, time.Duration(100*(n+1))*ms, 10*ms, 10*ms, 40*ms)
		time.Sleep(5 * ms)
		w.end(7, 4)
	}}
	bubble(t, f, func(t *testing.T, o Options) {
		o.Load.Concurrency, o.Load.Requests = 1, 10
		o.Limits = Limits{FirstToken: 500 * ms, Gap: 40 * ms}
		rep := mustRun(t, o)
		for _, d := range []struct {
			name string
			got  Distribution
			want [6]float64 // count, mean, p50, p90, p99, max
		}{
			{"time to first token", rep.FirstToken, [6]float64{10, 550, 500, 900, 1000, 1000}},
			{"time between tokens", rep.Gap, [6]float64{30, 20, 10, 40, 40, 40}},
			{"time per output token", rep.PerToken, [6]float64{10, 20, 20, 20, 20, 20}},
			{"end to end", rep.EndToEnd, [6]float64{10, 615, 565, 965, 1065, 1065}},
			{"lag", rep.Lag, [6]float64{10, 0, 0, 0, 0, 0}},
		} {
			if got := millis(d.got); got != d.want {
				t.Errorf("%s: %v, want %v", d.name, got, d.want)
			}
		}
		seconds := 6.15
		if math.Abs(rep.Seconds-seconds) > 1e-9 || rep.Sent != 10 || rep.Succeeded != 10 || rep.Peak != 1 ||
			rep.PromptTokens != 70 || rep.OutputTokens != 40 || rep.Short != 0 || rep.Uncounted != 0 {
			t.Errorf("%+v", rep)
		}
		rates := []float64{rep.RequestRate, rep.OutputRate, rep.TotalRate}
		if want := []float64{10 / seconds, 40 / seconds, 110 / seconds}; !near(rates, want) {
			t.Errorf("rates %v, want %v", rates, want)
		}
		if g := rep.Goodput; g == nil || g.Requests != 5 || g.Share != 0.5 || !near([]float64{g.Rate}, []float64{5 / seconds}) {
			t.Errorf("goodput %+v, want 5 of 10", g)
		}
	})
}

// A server that closes each kept connection when the next request comes in fails none.
func TestClosedConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed := make(chan int, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				io.Copy(io.Discard, r.Body)
				events := "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]\n\n"
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(events), events)
				if _, err := in.ReadByte(); err == nil {
					closed <- 1
				}
			}()
		}
	}()
	rep, err := Run(t.Context(), Options{
		Target: Target{URL: "http://" + l.Addr().String(), Model: "m", Timeout: time.Minute},
		Load:   Load{Concurrency: 1, Requests: 5}, Vocab: 10, Done: func() {},
	})
	if err != nil || rep.Succeeded != 5 || len(closed) == 0 {
		t.Errorf("%d of 5 requests succeeded, %d connections were closed, %v: %+v", rep.Succeeded, len(closed), err, rep.Failures)
	}
}

func near(got, want []float64) bool {
	return slices.EqualFunc(got, want, func(x, y float64) bool { return math.Abs(x-y) <= 1e-9*y })
}

// A request with one gap over the limit does not count, though its mean gap is within it.
func TestGoodputGap(t *testing.T) {
	f := &fake{answer: func(w stream, n int, r received) {
		w.begin()
		w.tokens(4, ms, 10*ms, time.Duration(30+n)*ms, 10*ms)
		w.end(7, 4)
	}}
	bubble(t, f, func(t *testing.T, o Options) {
		o.Load.Concurrency = 1
		o.Limits = Limits{Gap: 31 * ms}
		if g := mustRun(t, o).Goodput; g.Requests != 2 || g.FirstTokenLimit != 0 {
			t.Errorf("goodput %+v, want 2 requests", g)
		}
		o.Limits = Limits{}
		if g := mustRun(t, o).Goodput; g != nil {
			t.Errorf("goodput %+v without limits", g)
		}
	})
}

// In an open loop requests arrive when they are due, although no answer is complete.
func TestOpenLoop(t *testing.T) {
	f := &fake{answer: func(w stream, n int, r received) {
		w.begin()
		w.tokens(1, time.Hour/2)
		w.end(3, 1)
	}}
	bubble(t, f, func(t *testing.T, o Options) {
		o.Load.Rate, o.Load.Requests, o.Load.Output = 5, 50, fixed(1)
		begin := time.Now()
		rep := mustRun(t, o)
		plan := o.Load.plan()
		for i, r := range f.seen {
			want := time.Duration(plan[i].Arrival * float64(time.Second))
			if got := r.at.Sub(begin); got != want {
				t.Errorf("request %d arrives after %v, want %v", i, got, want)
			}
		}
		if len(f.seen) != 50 || rep.Peak != 50 || rep.Lag.Max != 0 || rep.FellBehind() || rep.Load.Arrivals != "poisson" || rep.Load.Rate != 5 {
			t.Errorf("%d requests, %+v", len(f.seen), rep)
		}
	})
}

// In a closed loop a request follows each answer.
func TestClosedLoop(t *testing.T) {
	f := &fake{answer: func(w stream, n int, r received) {
		w.begin()
		w.tokens(1, 100*ms)
		w.end(3, 1)
	}}
	bubble(t, f, func(t *testing.T, o Options) {
		o.Load.Concurrency, o.Load.Requests, o.Load.Output = 3, 10, fixed(1)
		begin := time.Now()
		rep := mustRun(t, o)
		var at []time.Duration
		for _, r := range f.seen {
			at = append(at, r.at.Sub(begin)/ms)
		}
		want := []time.Duration{0, 0, 0, 100, 100, 100, 200, 200, 200, 300}
		if d := cmp.Diff(want, at); d != "" || rep.Peak != 3 || rep.Load.Arrivals != "closed loop" {
			t.Errorf("peak %d; arrivals in ms (-want +got):\n%s", rep.Peak, d)
		}
	})
}

// The report tells whether the generator sent requests late.
func TestFellBehind(t *testing.T) {
	rep := Report{Lag: distribution([]float64{0, 0.001, 0.011})}
	if !rep.FellBehind() {
		t.Error("a lag of 11 ms is not reported")
	}
	rep.Lag = distribution([]float64{0, 0.001, 0.009})
	if rep.FellBehind() {
		t.Error("a lag of 9 ms is reported")
	}
}

// Each error has its kind, and the others are still measured.
func TestErrors(t *testing.T) {
	ok := func(w stream) { w.begin(); w.tokens(4, ms); w.end(3, 4) }
	hang := func(w stream) { w.begin(); w.tokens(2, ms); <-w.ctx.Done() }
	cut := func(w stream) {
		w.begin()
		w.tokens(2, ms)
		panic(http.ErrAbortHandler)
	}
	for _, tt := range []struct {
		name, reason string
		answer       func(w stream)
		kind, first  string
	}{
		{"too many requests", "the status is the kind", func(w stream) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(429)
			w.Write([]byte(`{"error":{"message":"busy","type":"rate_limit"}}`))
		}, "status 429", "busy"},
		{"server error", "a body that is no JSON", func(w stream) { http.Error(w, "out of\xff memory", 500) }, "status 500", "out of memory"},
		{"connection lost", "in the middle of the stream", cut, CutStream, "EOF"},
		{"no end", "a clean end without [DONE]", func(w stream) { w.begin(); w.tokens(4, ms) }, CutStream, "without [DONE]"},
		{"no events", "the body is empty", func(w stream) { w.begin() }, CutStream, "without [DONE]"},
		{"no JSON", "an event is cut", func(w stream) { w.begin(); w.line(`data: {"choices":[`) }, Malformed, "unexpected end of JSON"},
		{"wrong type", "text is a number", func(w stream) { w.begin(); w.line(`data: {"choices":[{"text":1}]}`) }, Malformed, "text"},
		{"no field", "a line that is not of an event stream", func(w stream) { w.begin(); w.line(`{"choices":[]}`) }, Malformed, "line "},
		{"long line", "more than a megabyte", func(w stream) { w.begin(); w.line("data: %s", strings.Repeat("x", 2<<20)) }, Malformed, "more than"},
		{"not a stream", "the server ignores stream", func(w stream) {
			w.Header().Set("Content-Type", "application/json")
			w.Write([]byte(`{"choices":[{"text":"x"}]}`))
		}, Malformed, `content type "application/json"`},
		{"error in the stream", "after status 200", func(w stream) {
			w.begin()
			w.tokens(1, ms)
			w.line(`data: {"error":{"message":"device lost"}}`)
		}, ServerError, "device lost"},
		{"empty", "a stream without tokens", func(w stream) { w.begin(); w.end(3, 0) }, Empty, "no tokens"},
		{"timeout", "the stream stops", hang, TimedOut, "1m0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{answer: func(w stream, n int, r received) {
				if n%2 == 1 {
					tt.answer(w)
				} else {
					ok(w)
				}
			}}
			bubble(t, f, func(t *testing.T, o Options) {
				o.Target.Timeout = time.Minute
				o.Load.Concurrency = 1
				rep := mustRun(t, o)
				if rep.Sent != 4 || rep.Succeeded != 2 || rep.Gap.Count != 6 || rep.FirstToken.Count != 2 || rep.OutputTokens != 8 || len(rep.Failures) != 1 {
					t.Fatalf("%s: %+v", tt.reason, rep)
				}
				got := rep.Failures[0]
				if got.Kind != tt.kind || got.Count != 2 || !strings.Contains(got.First, tt.first) || rep.Requests[1].Error != tt.kind {
					t.Errorf("%s: %+v, want %s with %q", tt.reason, got, tt.kind, tt.first)
				}
			})
		})
	}
}

// The most frequent errors are first.
func TestFailuresAreSorted(t *testing.T) {
	f := &fake{answer: func(w stream, n int, r received) { http.Error(w, "no", []int{500, 429, 400, 429}[n]) }}
	bubble(t, f, func(t *testing.T, o Options) {
		o.Load.Concurrency = 1
		rep := mustRun(t, o)
		var kinds []string
		for _, f := range rep.Failures {
			kinds = append(kinds, f.Kind)
		}
		if d := cmp.Diff([]string{"status 429", "status 400", "status 500"}, kinds); d != "" {
			t.Errorf("kinds (-want +got):\n%s", d)
		}
		if rep.Succeeded != 0 || rep.RequestRate != 0 || rep.FirstToken != (Distribution{}) {
			t.Errorf("%+v", rep)
		}
	})
}

func TestRefusedConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	o := Options{
		Target: Target{URL: "http://" + l.Addr().String(), Timeout: time.Minute, Model: "m"},
		Load:   Load{Rate: math.Inf(1), Requests: 3, Prompt: fixed(3), Output: fixed(4)}, Vocab: 10,
		Note: func(string) {}, Done: func() {},
	}
	rep := mustRun(t, o)
	if len(rep.Failures) != 1 || rep.Failures[0].Kind != Connection || rep.Failures[0].Count != 3 || !strings.Contains(rep.Failures[0].First, l.Addr().String()) {
		t.Errorf("%+v", rep.Failures)
	}
	if text, err := json.Marshal(rep); err != nil || !bytes.Contains(text, []byte(`"arrivals":"at once"`)) {
		t.Errorf("%v: %s", err, text)
	}
	o.Target.Model = ""
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "/v1/models") {
		t.Errorf("no list of models: error %v", err)
	}
	o.Vocab, o.Target.Model = 0, "m"
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "/tokenize") {
		t.Errorf("no /tokenize: error %v", err)
	}
}

// An interrupted run reports the requests so far; those in flight are no errors.
func TestCanceled(t *testing.T) {
	for _, concurrency := range []int{0, 2} {
		f := &fake{answer: func(w stream, n int, r received) {
			w.begin()
			if n < 3 {
				w.tokens(4, ms)
				w.end(3, 4)
				return
			}
			w.tokens(2, ms)
			<-w.ctx.Done()
		}}
		bubble(t, f, func(t *testing.T, o Options) {
			o.Load.Requests, o.Load.Rate, o.Load.Concurrency = 100, 2, concurrency
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(5*time.Second, func() { cancel(errors.New("interrupt")) })
			rep, err := Run(ctx, o)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			if rep.Succeeded != 3 || rep.Canceled != rep.Sent-3 || rep.Canceled < 2 || rep.Sent > 30 || len(rep.Failures) != 0 || rep.OutputTokens != 12 || rep.Gap.Count != 9 {
				t.Errorf("concurrency %d: %+v", concurrency, rep)
			}
			synctest.Wait()
		})
	}
}

// An interrupt before the measurement is no failure of the server.
func TestCanceledEarly(t *testing.T) {
	for _, where := range []string{"models", "tokenize", "warmup"} {
		f := &fake{answer: func(w stream, n int, r received) { <-w.ctx.Done() }}
		bubble(t, f, func(t *testing.T, o Options) {
			o.Warmup = 1
			switch where {
			case "models":
				f.wait = "/v1/models"
			case "tokenize":
				f.wait, o.Vocab = "/tokenize", 0
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errors.New("interrupt")) })
			if rep, err := Run(ctx, o); !errors.Is(err, context.Canceled) || rep.Sent != 0 {
				t.Errorf("%s: error %v, %+v", where, err, rep)
			}
			synctest.Wait()
		})
	}
}

// Requests carry what makes their lengths exact, and the settings of the target.
func TestBody(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		chat         bool
		want         string
	}{
		{"completions", "token ids", false, `{"ignore_eos":true,"max_tokens":4,"model":"first","prompt":[1,2],"stream":true,"stream_options":{"include_usage":true},"temperature":0.5}`},
		{"chat", "one message", true, `{"ignore_eos":true,"max_tokens":4,"messages":[{"content":"hi","role":"user"}],"model":"first","stream":true,"stream_options":{"include_usage":true},"temperature":0.5}`},
	} {
		target := Target{Model: "first", Chat: tt.chat, Extra: map[string]any{"temperature": 0.5}}
		prompt := any([]int{1, 2})
		if tt.chat {
			prompt = "hi"
		}
		if got := target.body(prompt, 4); string(got) != tt.want {
			t.Errorf("%s (%s): %s, want %s", tt.name, tt.reason, got, tt.want)
		}
	}
	target := Target{Extra: map[string]any{"ignore_eos": nil, "stream_options": nil, "max_tokens": 9}}
	if got := target.body("x", 4); string(got) != `{"max_tokens":9,"model":"","prompt":"x","stream":true}` {
		t.Errorf("extra fields replace and remove: %s", got)
	}
}

// Chat streams begin with the role, and have content, reasoning or tool calls.
func TestChat(t *testing.T) {
	f := &fake{answer: func(w stream, n int, r received) {
		w.begin()
		time.Sleep(10 * ms)
		w.line(": a comment")
		w.line("event: message\nid: 1\nretry: 5\n" + `data: {"choices":[{"delta":{"role":"assistant","content":null},"finish_reason":null}]}`)
		time.Sleep(20 * ms)
		for _, choice := range []string{
			`"delta":{"role":"assistant","reasoning_content":"r"}`, `"delta":{"content":"c"},"finish_reason":null`,
			`"delta":{"content":""}`, `"delta":{"tool_calls":[{}]},"finish_reason":"tool_calls"`,
		} {
			w.line(`data:{"choices":[{%s}]}`+"\r", choice)
			time.Sleep(ms)
		}
		w.line(`data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null,"error":null}`)
		w.line(`data: [DONE]`)
	}}
	bubble(t, f, func(t *testing.T, o Options) {
		o.Target.Chat, o.Target.Key, o.Vocab = true, "secret", 0
		notes := 0
		o.Note = func(string) { notes++ }
		o.Load.Concurrency, o.Load.Requests, o.Load.Output = 1, 1, fixed(5)
		rep := mustRun(t, o)
		want := [6]float64{1, 30, 30, 30, 30, 30}
		if rep.Succeeded != 1 || millis(rep.FirstToken) != want || rep.Gap.Count != 3 || rep.OutputTokens != 4 || rep.Uncounted != 1 || rep.Short != 1 || notes != 1 {
			t.Errorf("%d notes, %+v", notes, rep)
		}
		r := f.seen[0]
		if r.path != "/v1/chat/completions" || r.key != "Bearer secret" || len(r.Messages) != 1 || len(r.Prompt) != 0 || r.Model != "first" {
			t.Errorf("%+v", r)
		}
	})
}

// More requests than bodies are made ahead are all sent.
func TestManyRequests(t *testing.T) {
	f := &fake{answer: func(w stream, n int, r received) {
		w.begin()
		w.tokens(1, ms)
		w.end(3, 1)
	}}
	bubble(t, f, func(t *testing.T, o Options) {
		o.Load.Concurrency, o.Load.Requests, o.Load.Output = 10, bodiesAhead+100, fixed(1)
		if rep := mustRun(t, o); rep.Succeeded != o.Load.Requests || len(rep.Requests) != o.Load.Requests {
			t.Errorf("%d of %d requests succeeded", rep.Succeeded, o.Load.Requests)
		}
	})
}

func TestModels(t *testing.T) {
	for _, models := range []string{`{"data":[]}`, `{"data":[{}]}`, `[]`} {
		bubble(t, &fake{models: models}, func(t *testing.T, o Options) {
			if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "http://fake/v1/models: ") {
				t.Errorf("models %s: error %v", models, err)
			}
		})
	}
}

// The report spans the first request sent to the last end, in whatever order they are.
func TestReport(t *testing.T) {
	begin := time.Now()
	at := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	r := runner{options: Options{Limits: Limits{FirstToken: time.Second}}, begin: begin}
	r.prompts.plan = make([]Request, 5)
	ok := answer{sent: at(1), first: at(1.5), last: at(1.5), end: at(4), chunks: 1}
	early := answer{sent: at(0.5), first: at(1), last: at(1), end: at(2), chunks: 1}
	r.results = []*result{{ok, at(0.75), nil}, {early, at(0.5), nil}, {answer{sent: at(2), end: at(3)}, at(2), context.Canceled}, nil, {answer{sent: at(2), end: at(3)}, at(2), failed(Connection, "x")}}
	rep := r.report("")
	if rep.Seconds != 3.5 || rep.Sent != 4 || rep.Succeeded != 2 || rep.Canceled != 1 || rep.Failures[0] != (Failure{Connection, 1, "x"}) ||
		rep.Lag.Max != 0.25 || rep.Requests[0].Lag != 0.25 || rep.Requests[0].Due != 0.75 || rep.Requests[2].Error != "canceled" {
		t.Errorf("%+v", rep)
	}
	if g := rep.Goodput; g.Requests != 2 || g.Share != 2.0/3 {
		t.Errorf("goodput %+v, want 2 of 3", g)
	}
}

// The tokens of an answer are those of its usage. Events may have several tokens, and tokens
// without text may have no event.
func TestUsage(t *testing.T) {
	f := &fake{answer: func(w stream, n int, r received) {
		w.begin()
		w.tokens(2*n, 10*ms)
		w.end(3, 5)
	}}
	bubble(t, f, func(t *testing.T, o Options) {
		o.Load.Concurrency, o.Load.Requests, o.Load.Output = 1, 2, fixed(5)
		rep := mustRun(t, o)
		if rep.Succeeded != 2 || rep.OutputTokens != 10 || rep.FirstToken.Count != 1 || rep.Gap.Count != 1 || millis(rep.PerToken) != [6]float64{1, 2.5, 2.5, 2.5, 2.5, 2.5} {
			t.Errorf("%+v", rep)
		}
	})
}

// Requests before the measurement are not in the report and have other prompts.
func TestWarmup(t *testing.T) {
	status := 200
	f := &fake{answer: func(w stream, n int, r received) {
		if status != 200 {
			http.Error(w, "cold", status)
			return
		}
		w.begin()
		w.tokens(4, ms)
		w.end(3, 4)
	}}
	bubble(t, f, func(t *testing.T, o Options) {
		o.Warmup = 2
		rep := mustRun(t, o)
		prompts := map[string]bool{}
		for _, r := range f.seen {
			prompts[string(r.Prompt)] = true
		}
		if rep.Sent != 4 || rep.Load.Warmup != 2 || len(f.seen) != 6 || len(prompts) != 6 || f.seen[1].at.Sub(f.seen[0].at) != 4*ms {
			t.Errorf("%d requests with %d prompts, %+v", len(f.seen), len(prompts), rep)
		}
		status = 503
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "status 503: cold") {
			t.Errorf("error %v", err)
		}
	})
}
