package serve

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/lockstep-go/lockstep/model"
)

// job is a request for n completions of each prompt.
type job struct {
	params  params
	prompts [][]int
	n       int
}

// choices is the number of completions. Choice i is completion i%n of prompt i/n.
func (j *job) choices() int { return len(j.prompts) * j.n }

// event is a token of a choice, or its end.
type event struct {
	choice int
	token  token
	last   bool // the end: out is set, and token is empty
	out    outcome
	tokens int // generated since the choice's last event
}

// usage counts the tokens of a request.
type usage struct {
	prompt, completion, cached int
}

// checkJob refuses a job that exceeds a limit, and compiles its structure.
func (s *Server) checkJob(ctx context.Context, j *job, param string) error {
	if n := j.choices(); n > maxChoices {
		return badRequest("n", "%d completions, want at most %d for all prompts together", n, maxChoices)
	}
	// A negative maxTokens leaves room for at least one token.
	if err := s.checkPrompts(j.prompts, max(j.params.maxTokens, -j.params.maxTokens), param); err != nil {
		return err
	}
	return s.backend.compile(ctx, &j.params)
}

// checkPrompts refuses an empty prompt, and one that exceeds the context with more tokens after it.
func (s *Server) checkPrompts(prompts [][]int, more int, param string) error {
	limit := s.info.context
	for i, prompt := range prompts {
		where := param
		if len(prompts) > 1 {
			where = fmt.Sprintf("%s[%d]", param, i)
		}
		switch {
		case len(prompt) == 0:
			e := badRequest(where, "%v", model.ErrEmptyPrompt)
			e.Code = "empty_prompt"
			return e
		case len(prompt)+more > limit:
			e := badRequest(where, "the prompt has %d tokens, and with %d to generate it exceeds the context of %d", len(prompt), more, limit)
			e.Code = "context_length_exceeded"
			return e
		}
	}
	return nil
}

// queue holds the events of a request that its handler did not yet take. A generation never waits
// for a slow client; max_tokens bounds the queue.
type queue struct {
	mu     sync.Mutex
	events []event
	err    error
	filled chan struct{} // has an element if there is something to take
}

func (q *queue) put(e event, err error) {
	q.mu.Lock()
	if err == nil {
		q.events = append(q.events, e)
	} else if q.err == nil {
		q.err = err
	}
	q.mu.Unlock()
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// take waits for events. It returns those before an error first.
func (q *queue) take() ([]event, error) {
	for {
		q.mu.Lock()
		events, err := q.events, q.err
		q.events = nil
		q.mu.Unlock()
		if len(events) > 0 {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		<-q.filled
	}
}

// run generates all choices of a job at once. It passes their events to emit, those of one choice in
// order. An error of a choice or of emit ends all of them. run returns when all have ended.
func (s *Server) run(ctx context.Context, j *job, emit func([]event) error) (u usage, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()

	q := &queue{filled: make(chan struct{}, 1)}
	for i := range j.choices() {
		wg.Go(func() { s.generate(ctx, j, i, q) })
	}
	for _, p := range j.prompts {
		u.prompt += len(p)
	}
	for open := j.choices(); open > 0; {
		events, err := q.take()
		if err != nil {
			return u, err
		}
		for _, e := range events {
			u.completion += e.tokens
			if !e.last {
				continue
			}
			open--
			if e.choice%j.n == 0 {
				u.cached += e.out.cached
			}
		}
		if err := emit(events); err != nil {
			return u, err
		}
	}
	return u, nil
}

// generate generates choice i of a job into q.
func (s *Server) generate(ctx context.Context, j *job, i int, q *queue) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("panic", "value", v, "stack", string(debug.Stack()))
			q.put(event{}, errors.New("internal error"))
		}
	}()
	p := j.params
	p.choice = i % j.n
	prompt := j.prompts[i/j.n]
	timer := s.metrics.start(len(prompt), &p)
	var out outcome
	for t, err := range s.backend.generate(ctx, prompt, &p, &out) {
		if err == nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			timer.end(outcome{finish: "abort", tokens: timer.tokens})
			q.put(event{}, err)
			return
		}
		e := event{choice: i, token: t}
		e.token.top = slices.Clone(t.top)
		if t.id >= 0 {
			timer.token()
			e.tokens = 1
		}
		q.put(e, nil)
	}
	rest := out.tokens - timer.tokens
	timer.end(out)
	q.put(event{choice: i, token: token{id: -1}, last: true, out: out, tokens: rest}, nil)
}
