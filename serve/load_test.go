package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

var (
	requests  = flag.Int("requests", 0, "number of requests of each load of TestLoad; 0: a few hundred, fewer on the emulator and with -short")
	loadTime  = flag.Duration("load", 0, "repeat each load of TestLoad for this long")
	onGPU     = flag.Bool("gpu", false, "run TestLoad on the first GPU only")
	modelFile = flag.String("model", "", "run TestLoad with this model")
)

// loadRequest is a request of a load.
type loadRequest struct{ path, body string }

// loadRequests returns requests with random lengths, parameters and shared beginnings. most is the
// largest max_tokens.
func loadRequests(random *rand.Rand, n, most int) []loadRequest {
	pick := func(choices ...string) string { return choices[random.IntN(len(choices))] }
	list := make([]loadRequest, n)
	for i := range list {
		prompt := pick("The same beginning of many prompts. ", "Another one: ", "") + strings.Repeat("x", 1+random.IntN(40))
		if i%9 == 8 {
			list[i] = loadRequest{embedPath, fmt.Sprintf(`{"input":[%q,"x"],"encoding_format":%q}`, prompt, pick("float", "base64"))}
			continue
		}
		list[i] = loadRequest{textPath, fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"seed":%d,"n":%d%s%s}`, prompt, 1+random.IntN(most), i, 1+random.IntN(3),
			pick("", `,"logprobs":0`, `,"logprobs":3`),
			[]string{
				`,"ignore_eos":true`, `,"temperature":0,"ignore_eos":true`, `,"top_p":0.9,"top_k":20,"ignore_eos":true`,
				`,"min_p":0.05,"presence_penalty":1`, `,"repetition_penalty":1.2,"frequency_penalty":0.5`,
				`,"stop":["a","\u0001"],"ignore_eos":true`, `,"logit_bias":{"40":5},"min_tokens":1`, `,"guided_regex":"[a-z ]{3,9}"`,
			}[i%9])}
	}
	return list
}

// longRequest returns a request of two completions. If the prompt ends near the end of a page, and tokens
// fill another, the completions outgrow the pages that are reserved for them when they are admitted:
// those of the prompt and one more.
func longRequest(prompt, tokens int) loadRequest {
	return loadRequest{textPath, fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"seed":1,"n":2,"ignore_eos":true}`, strings.Repeat("x", prompt), tokens+2)}
}

// loadClient sends requests.
type loadClient struct {
	http *http.Client
	url  string
}

func newLoadClient(url string) *loadClient {
	return &loadClient{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 5 * time.Minute}, url}
}

func (c *loadClient) do(ctx context.Context, l loadRequest) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, "POST", c.url+l.path, strings.NewReader(l.body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	return c.http.Do(r)
}

// loadAnswer is the part of a response, or of a chunk of one, that the load must not change.
type loadAnswer struct {
	Data    []embedding  `json:"data,omitempty"`
	Choices []textChoice `json:"choices,omitempty"`
	Usage   *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	} `json:"usage,omitempty"`
	Error json.RawMessage `json:"error,omitempty"`
}

// add appends a chunk.
func (a *loadAnswer) add(chunk loadAnswer) {
	for _, c := range chunk.Choices {
		for len(a.Choices) <= c.Index {
			a.Choices = append(a.Choices, textChoice{Index: len(a.Choices)})
		}
		all := &a.Choices[c.Index]
		all.Text += c.Text
		if c.FinishReason != nil {
			all.FinishReason = c.FinishReason
		}
		if l := c.Logprobs; l != nil && len(l.Tokens) > 0 {
			if all.Logprobs == nil {
				all.Logprobs = &textLogprobs{}
			}
			all.Logprobs.Tokens = append(all.Logprobs.Tokens, l.Tokens...)
			all.Logprobs.TokenLogprobs = append(all.Logprobs.TokenLogprobs, l.TokenLogprobs...)
			all.Logprobs.TopLogprobs = append(all.Logprobs.TopLogprobs, l.TopLogprobs...)
			all.Logprobs.TextOffset = append(all.Logprobs.TextOffset, l.TextOffset...)
		}
	}
	a.Data = append(a.Data, chunk.Data...)
	if chunk.Usage != nil {
		a.Usage = chunk.Usage
	}
	if chunk.Error != nil {
		a.Error = chunk.Error
	}
}

func (a *loadAnswer) String() string { return string(marshal(a)) }

// whole returns an answer. If the status is not 200, it is the status with the error object.
func (c *loadClient) whole(ctx context.Context, l loadRequest) (string, error) {
	w, err := c.do(ctx, l)
	if err != nil {
		return "", err
	}
	defer w.Body.Close()
	var got, all loadAnswer
	if err := json.NewDecoder(w.Body).Decode(&got); err != nil {
		return w.Status, err
	}
	all.add(got)
	if w.StatusCode != http.StatusOK {
		return fmt.Sprintf("%d %v", w.StatusCode, &all), nil
	}
	return all.String(), nil
}

// stream is whole with a streamed answer. It pauses before each of the first events. If leave is not negative, it
// leaves after as many events, and the answer is "left".
func (c *loadClient) stream(l loadRequest, pause time.Duration, leave int) (string, error) {
	if l.path != textPath {
		return c.whole(context.Background(), l)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l.body = strings.Replace(l.body, "{", `{"stream":true,"stream_options":{"include_usage":true},`, 1)
	w, err := c.do(ctx, l)
	if err != nil {
		return "", err
	}
	defer w.Body.Close()
	var all loadAnswer
	if w.StatusCode != http.StatusOK {
		err := json.NewDecoder(w.Body).Decode(&all)
		return fmt.Sprintf("%d %v", w.StatusCode, &all), err
	}
	for events, i := bufio.NewReader(w.Body), 0; i != leave; i++ {
		if i < 5 {
			time.Sleep(pause)
		}
		data, err := readEvent(events)
		if err != nil {
			return "", err
		}
		if data == "[DONE]" {
			return all.String(), nil
		}
		var chunk loadAnswer
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return "", fmt.Errorf("%w: %s", err, data)
		}
		if all.add(chunk); all.Error != nil { // the last event
			return fmt.Sprintf("200 %v", &loadAnswer{Error: all.Error}), nil
		}
	}
	return "left", nil
}

// loadRun is a load on a server.
type loadRun struct {
	requests int // per round
	clients  int // at once
	list     []loadRequest
	alone    []string // the answers of list
	refused  []loadRequest
	refusals []string // the answers of refused
}

// baseline stores the answer to each request alone. Of the malformed requests it takes those that the
// model refuses. A larger vocabulary or a longer context makes some of them valid.
func (l *loadRun) baseline(t *testing.T, c *loadClient) {
	t.Helper()
	for _, r := range l.list {
		got, err := c.whole(context.Background(), r)
		if err != nil || !strings.HasPrefix(got, "{") {
			t.Fatalf("%s: %s, error %v", r.body, got, err)
		}
		l.alone = append(l.alone, got)
	}
	tried := 0
	for _, m := range malformedRequests() {
		if m.path != textPath || m.body == "" || len(m.body) >= 1000 {
			continue
		}
		tried++
		r := loadRequest{m.path, m.body}
		got, err := c.whole(context.Background(), r)
		if err != nil {
			t.Fatalf("%s: %v", r.body, err)
		}
		if strings.HasPrefix(got, "4") {
			l.refused, l.refusals = append(l.refused, r), append(l.refusals, got)
		}
	}
	if 10*len(l.refused) < 9*tried {
		t.Errorf("%d of %d malformed requests are refused", len(l.refused), tried)
	}
}

// round sends whole, streamed, slow, canceled and malformed requests and counts them. Each answer must be
// that of the same request alone. If all is set, each request of the list is among them.
func (l *loadRun) round(t *testing.T, c *loadClient, random *rand.Rand, counts map[string]int, all bool) {
	t.Helper()
	var mu sync.Mutex
	count := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		counts[what]++
	}
	// retry repeats a request that is refused because the server is busy.
	retry := func(f func() (string, error)) (string, error) {
		for {
			got, err := f()
			if !strings.HasPrefix(got, "429 ") {
				return got, err
			}
			count("busy")
			time.Sleep(10 * time.Millisecond)
		}
	}
	work := make(chan func() (string, error))
	var wg sync.WaitGroup
	for range l.clients {
		wg.Go(func() {
			for f := range work {
				what, err := f()
				count(what)
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
	for sent := range l.requests {
		i, kind, leave, bad := random.IntN(len(l.list)), random.IntN(10), random.IntN(6), random.IntN(len(l.refused))
		deadline := time.Duration(1+random.IntN(6)) * time.Millisecond
		switch last := len(l.list) - 1; { // each round completes and cancels the request that outgrows its pages
		case sent == 0:
			i, kind = last, 9
		case sent == 1:
			i, kind = last, 3
		case all && sent-2 < last:
			i, kind = sent-2, 9
		}
		r := l.list[i]
		same := func(f func() (string, error)) (string, error) {
			got, err := retry(f)
			switch {
			case err != nil:
				return "error", err
			case got == "left", got == "canceled":
				return got, nil
			case got != l.alone[i]:
				return "different", fmt.Errorf("%s\n%s\nalone\n%s", r.body, got, l.alone[i])
			}
			return "finished", nil
		}
		work <- func() (string, error) {
			switch kind {
			case 0:
				return same(func() (string, error) { return c.stream(r, 0, leave) })
			case 1:
				return same(func() (string, error) { return c.stream(r, 5*time.Millisecond, -1) })
			case 2:
				got, err := retry(func() (string, error) { return c.whole(context.Background(), l.refused[bad]) })
				if err == nil && got != l.refusals[bad] {
					err = fmt.Errorf("%s\n%s\nalone\n%s", l.refused[bad].body, got, l.refusals[bad])
				}
				return "refused", err
			case 3:
				return same(func() (string, error) {
					ctx, cancel := context.WithTimeout(context.Background(), deadline)
					defer cancel()
					got, err := c.whole(ctx, r)
					if ctx.Err() != nil {
						return "canceled", nil
					}
					return got, err
				})
			case 4, 5, 6:
				return same(func() (string, error) { return c.stream(r, 0, -1) })
			}
			return same(func() (string, error) { return c.whole(context.Background(), r) })
		}
	}
	close(work)
	wg.Wait()
}

// heap returns the bytes in use after a garbage collection.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what sync.Pool kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// repeat answers the requests alone on a roomy cache, and then sends rounds of them on a tight one. The
// first round fills all caches. After it, memory must not grow from round to round by more than pools and
// maps may, and 16 masks of the vocabulary: a structure keeps one for each state that it has reached.
func (l *loadRun) repeat(t *testing.T, roomy, tight func(*testing.T, Options) *fixture) {
	t.Helper()
	alone := roomy(t, Options{})
	l.baseline(t, alone.client)
	if n := alone.g.Load().Preemptions; n != 0 {
		t.Errorf("%d preemptions of requests that are alone", n)
	}
	alone.close(t)

	r := tight(t, Options{MaxRequests: l.clients / 2})
	if e, ok := r.engine.(*accel.Engine); ok { // so that no round needs more memory for kernels
		if err := e.Prepare(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(5, 6))
	counts := map[string]int{}
	before := countLeftovers()
	var first int64
	most := int64(128<<10 + 16*r.engine.Model().Config.Vocab/8)
	// An engine keeps the results of its last passes, which are large after an embedding.
	settle := loadRequest{textPath, `{"prompt":"x","max_tokens":16,"ignore_eos":true}`}
	rounds := 0
	for begin := time.Now(); rounds < 2 || time.Since(begin) < *loadTime; rounds++ {
		l.round(t, r.client, random, counts, rounds == 0)
		if got, err := r.client.whole(t.Context(), settle); err != nil || !strings.HasPrefix(got, "{") {
			t.Fatalf("%s: %s, error %v", settle.body, got, err)
		}
		r.idle(t)
		r.client.http.CloseIdleConnections()
		before.check(t) // each connection has buffers until its goroutines end
		if r.device != nil {
			r.device.Forget()
		}
		if t.Failed() {
			break
		}
		if now := heap(); rounds == 0 {
			first = now
		} else if now > first+most {
			t.Errorf("round %d: %d bytes of memory are in use, %d after the first: more than %d more", rounds+1, now, first, most)
		}
	}
	for _, what := range []string{"finished", "left", "refused", "canceled", "busy"} {
		if counts[what] == 0 {
			t.Errorf("no request was %s: %v", what, counts)
		}
	}
	load := r.g.Load()
	if load.Preemptions == 0 {
		t.Error("no request was preempted")
	}
	t.Logf("%d rounds, %v, %d preemptions, %d prefix hits, memory %d bytes after the first round, %d now", rounds, counts, load.Preemptions, load.Prefix.Hits, first, heap())
	r.close(t)
}

// TestLoad: under a load of whole, streamed, slow, canceled and malformed requests, on a cache that
// is too small for them, every finished answer equals that of the same request alone. Nothing is left
// afterwards, and memory does not grow from round to round.
func TestLoad(t *testing.T) {
	m := oneLayer(t)
	if *modelFile != "" {
		var err error
		if m, err = model.Open(*modelFile); err != nil {
			t.Fatal(err)
		}
		defer m.Close()
	}
	const large, small = 1000, 20 // pages of the reference's cache
	roomy := accel.Options{KVPages: 16, MaxSequences: 4}
	tight := accel.Options{KVPages: 4, MaxSequences: 4}
	l := loadRun{requests: 20, clients: 8}
	most, grow := 5, 64 // generated tokens; the emulator is slow
	onAccel := func(a accel.Options) func(*testing.T, Options) *fixture {
		return func(t *testing.T, o Options) *fixture { return onAccelerator(t, m, openDevice(t, *onGPU), a, o) }
	}
	if *onGPU {
		openDevice(t, true).Close() // a driver keeps files and threads from its first use on
		roomy, tight = accel.Options{KVPages: 400, MaxSequences: 64}, accel.Options{KVPages: 40, MaxSequences: 32}
		l = loadRun{requests: 500, clients: 100}
		most, grow = 150, 150
	}
	for _, tt := range []struct {
		name         string
		load         loadRun
		list         []loadRequest
		roomy, tight func(*testing.T, Options) *fixture
		skip         bool
	}{
		{
			"reference", loadRun{requests: 200, clients: 40}, append(loadRequests(rand.New(rand.NewPCG(1, 2)), 32, 24), longRequest(3*pageTokens-1, pageTokens)),
			func(t *testing.T, o Options) *fixture { return onReference(t, m, large, o) },
			func(t *testing.T, o Options) *fixture { return onReference(t, m, small, o) },
			*onGPU,
		},
		{
			"accelerator", l, append(loadRequests(rand.New(rand.NewPCG(3, 4)), 16, most), longRequest(63, grow)),
			onAccel(roomy), onAccel(tight), false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.skip {
				t.Skip("-gpu")
			}
			l := tt.load
			if l.list = tt.list; *requests > 0 {
				l.requests = *requests
			} else if testing.Short() {
				l.requests = min(l.requests, 40)
			}
			before := countLeftovers()
			l.repeat(t, tt.roomy, tt.tight)
			before.check(t)
		})
	}
}
