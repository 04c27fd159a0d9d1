package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

var requests = flag.Int("requests", 250, "number of requests of TestLoad; 60 at most with -short")

// loadBodies returns requests with random lengths, parameters and shared beginnings.
func loadBodies(random *rand.Rand, n int) []string {
	pick := func(choices ...string) string { return choices[random.IntN(len(choices))] }
	bodies := make([]string, n)
	for i := range bodies {
		prompt := pick("The same beginning of many prompts. ", "Another one: ", "") + strings.Repeat("x", 1+random.IntN(40))
		bodies[i] = fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"seed":%d,"n":%d,"ignore_eos":true%s}`, prompt, 1+random.IntN(24), i, 1+random.IntN(3),
			pick("", `,"temperature":0`, `,"top_p":0.9,"top_k":20`, `,"min_p":0.05,"presence_penalty":1`, `,"repetition_penalty":1.2,"frequency_penalty":0.5`, `,"stop":["a","\u0001"]`, `,"logit_bias":{"40":5}`, `,"min_tokens":1`))
	}
	return bodies
}

// loadClient sends requests.
type loadClient struct {
	http *http.Client
	url  string
}

func (c *loadClient) do(ctx context.Context, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, "POST", c.url+textPath, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	return c.http.Do(r)
}

// answer returns the texts and reasons to finish of all choices, or the status if it is not 200.
func (c *loadClient) answer(body string) (string, error) {
	w, err := c.do(context.Background(), body)
	if err != nil {
		return "", err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil || w.StatusCode != http.StatusOK {
		return w.Status, err
	}
	var got completed
	err = json.Unmarshal(text, &got)
	return fmt.Sprintf("%q", got.Choices), err
}

// stream is answer by a stream. It pauses before it reads, and leaves after some events if leave
// is not negative; the answer is then "".
func (c *loadClient) stream(body string, pause time.Duration, leave int) (string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := c.do(ctx, strings.Replace(body, "{", `{"stream":true,`, 1))
	if err != nil {
		return "", err
	}
	defer w.Body.Close()
	if w.StatusCode != http.StatusOK {
		return w.Status, nil
	}
	time.Sleep(pause)
	var all completed
	for events, i := bufio.NewReader(w.Body), 0; i != leave; i++ {
		data, err := readEvent(events)
		if err != nil {
			return "", err
		}
		if data == "[DONE]" {
			return fmt.Sprintf("%q", all.Choices), nil
		}
		var chunk struct {
			Choices []struct {
				Index  int
				Text   string
				Finish string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return "", fmt.Errorf("%w: %s", err, data)
		}
		for _, choice := range chunk.Choices {
			for len(all.Choices) <= choice.Index {
				all.Choices = append(all.Choices, struct {
					Text   string
					Finish string `json:"finish_reason"`
				}{})
			}
			all.Choices[choice.Index].Text += choice.Text
			all.Choices[choice.Index].Finish += choice.Finish
		}
	}
	return "", nil
}

// TestLoad: under a load of whole, streamed, slow, canceled and malformed requests every finished
// answer equals that of the same request alone, and nothing is left afterwards.
func TestLoad(t *testing.T) {
	before := runtime.NumGoroutine()
	spec := tiny.New("llama", 1)
	spec.AddVocab(true)
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	e, err := ref.New(m, ref.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := generate.New(e, generate.Options{MaxWaiting: 40})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(g, Options{MaxRequests: 38})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	transport := &http.Transport{MaxIdleConnsPerHost: 40}
	c := &loadClient{&http.Client{Transport: transport}, server.URL}

	random := rand.New(rand.NewPCG(1, 2))
	bodies := loadBodies(random, 30)
	alone := make([]string, len(bodies))
	for i, body := range bodies {
		if alone[i], err = c.answer(body); err != nil || !strings.HasPrefix(alone[i], "[") {
			t.Fatalf("%s: %s, error %v", body, alone[i], err)
		}
	}
	broken := malformedRequests()
	var mu sync.Mutex
	counts := map[string]int{}
	work := make(chan func() (string, error))
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			for f := range work {
				what, err := f()
				mu.Lock()
				counts[what]++
				mu.Unlock()
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
	// retry repeats a request that is refused because the server is busy.
	retry := func(f func() (string, error)) (string, error) {
		for {
			got, err := f()
			if !strings.HasPrefix(got, "429") {
				return got, err
			}
			mu.Lock()
			counts["busy"]++
			mu.Unlock()
			time.Sleep(2 * time.Millisecond)
		}
	}
	n := *requests
	if testing.Short() {
		n = min(n, 60)
	}
	for range n {
		i, kind, leave := random.IntN(len(bodies)), random.IntN(10), random.IntN(6)
		bad := broken[random.IntN(len(broken))]
		work <- func() (string, error) {
			same := func(f func() (string, error)) (string, error) {
				got, err := retry(f)
				switch {
				case err != nil:
					return "error", err
				case got == "":
					return "left", nil
				case got != alone[i]:
					return "different", fmt.Errorf("%s: %s, alone %s", bodies[i], got, alone[i])
				}
				return "finished", nil
			}
			switch kind {
			case 0:
				return same(func() (string, error) { return c.stream(bodies[i], 0, leave) })
			case 1:
				return same(func() (string, error) { return c.stream(bodies[i], 5*time.Millisecond, -1) })
			case 2:
				// Token 256 is malformed for the vocabulary of fake only.
				if bad.path != textPath || bad.body == "" || len(bad.body) > 1000 || strings.Contains(bad.body, "256") {
					bad = malformed{body: `{"prompt":1}`}
				}
				got, err := retry(func() (string, error) { return c.answer(bad.body) })
				if err == nil && !strings.HasPrefix(got, "4") {
					err = fmt.Errorf("%s: %s", bad.body, got)
				}
				return "refused", err
			case 3:
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(leave)*time.Millisecond)
				defer cancel()
				if w, err := c.do(ctx, bodies[i]); err == nil {
					io.Copy(io.Discard, w.Body)
					w.Body.Close()
				}
				return "canceled", nil
			case 4, 5, 6:
				return same(func() (string, error) { return c.stream(bodies[i], 0, -1) })
			}
			return same(func() (string, error) { return c.answer(bodies[i]) })
		}
	}
	close(work)
	wg.Wait()
	for _, what := range []string{"finished", "left", "refused", "canceled", "busy"} {
		if counts[what] == 0 {
			t.Errorf("no request was %s: %v", what, counts)
		}
	}
	t.Log(counts)
	eventually(t, "no request is left", func() bool {
		s.mu.Lock()
		active := s.active
		s.mu.Unlock()
		l := g.Load()
		return active == 0 && l.Running == 0 && l.Waiting == 0
	})
	transport.CloseIdleConnections()
	server.Close()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}
