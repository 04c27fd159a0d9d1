package serve

import (
	"fmt"
	"net/http"
	"time"
)

// completion is the object of a completion and of its chunks, with choices of type C.
type completion[C any] struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Seed    uint64 `json:"seed"`
	Choices []C    `json:"choices"`
	Usage   any    `json:"usage,omitempty"` // *usageObject; null in the chunks before it
}

// newCompletion returns a completion without choices.
func newCompletion[C any](s *Server, prefix, object string, r *request) completion[C] {
	return completion[C]{ID: prefix + newID(), Object: object, Created: time.Now().Unix(), Model: s.name, Seed: r.params.seed}
}

// usageObject is usage in a response.
type usageObject struct {
	Prompt     int           `json:"prompt_tokens"`
	Completion int           `json:"completion_tokens"`
	Total      int           `json:"total_tokens"`
	Details    *usageDetails `json:"prompt_tokens_details,omitempty"`
}

type usageDetails struct {
	Cached int `json:"cached_tokens"`
}

func (u usage) object() *usageObject {
	return &usageObject{u.prompt, u.completion, u.prompt + u.completion, &usageDetails{u.cached}}
}

// stream generates all choices of a job. emit sends the chunks of an event, each with one choice.
// After them come the usage, if the request asks for it, and the end of the stream.
func (head completion[C]) stream(x *exchange, j *job, includeUsage bool, emit func(e event, send func(C) error) error) error {
	out := x.stream()
	if includeUsage {
		head.Usage = (*usageObject)(nil)
	}
	send := func(choice C) error {
		head.Choices = []C{choice}
		return out.sendJSON(&head)
	}
	u, err := x.server.run(x.ctx, j, func(events []event) error {
		for _, e := range events {
			if err := emit(e, send); err != nil {
				return err
			}
		}
		return out.flush()
	})
	x.usage = u
	if err != nil {
		return err
	}
	if includeUsage {
		head.Choices, head.Usage = []C{}, u.object()
		if err := out.sendJSON(&head); err != nil {
			return err
		}
	}
	return x.done()
}

// sse writes a stream of server-sent events. The headers go with the first event, so that an error
// before it has a status of its own.
type sse struct {
	x       *exchange
	started bool
}

// send writes an event; flush must follow.
func (s *sse) send(data []byte) error {
	if !s.started {
		s.started = true
		h := s.x.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // nginx would collect the events
		s.x.w.WriteHeader(http.StatusOK)
	}
	s.x.extend()
	if _, err := fmt.Fprintf(s.x.w, "data: %s\n\n", data); err != nil {
		return errGone{err}
	}
	return nil
}

func (s *sse) sendJSON(v any) error { return s.send(marshal(v)) }

// flush passes on what was sent. Without a sent event it does nothing, because it would begin the
// response.
func (s *sse) flush() error {
	if !s.started {
		return nil
	}
	s.x.extend()
	if err := http.NewResponseController(s.x.w).Flush(); err != nil {
		return errGone{err}
	}
	return nil
}
