package generate

import (
	"errors"
	"time"
)

// Load is the state of a scheduler after its last round, and its counters since it was made.
type Load struct {
	Running   int // requests that take part in steps
	Waiting   int // requests that wait, the preempted ones included
	Preempted int // requests whose pages are in host memory

	Pages, FreePages int // of the KV cache; 0 if the engine's cache has no pages

	Prefix PrefixStats

	Steps           int
	PromptTokens    int // computed tokens of prompts
	GeneratedTokens int // stop tokens included
	Preemptions     int
	FailedSteps     int

	// The last step.
	StepRows         int // sequences
	StepPromptTokens int
	StepTime         time.Duration
	StepError        error // nil if it and what it needed succeeded; it tells whether the device is lost
}

// measure counts a step that has ended. Its time begins when the pass before it ended, if that
// was after it was queued.
func (s *scheduler) measure(p *pass, err error) {
	now := time.Now()
	begin := p.begin
	if s.last.After(begin) {
		begin = s.last
	}
	s.last = now
	if p.rows == nil {
		return
	}
	s.now.Steps++
	s.now.StepRows, s.now.StepPromptTokens, s.now.StepTime, s.now.StepError = len(p.rows), 0, now.Sub(begin), err
	for _, row := range p.rows {
		if row.Prompt {
			s.now.StepPromptTokens += len(row.Tokens)
		}
	}
	if canceled := p.ctx.Err(); canceled != nil && errors.Is(err, canceled) {
		s.now.StepError = nil
	} else if err != nil {
		s.now.FailedSteps++
	}
}

// report publishes the load. It returns false, and the loop ends, if no request is left.
func (s *scheduler) report() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Running, s.now.Prefix = len(s.running), s.prefix.stats
	s.now.Prefix.Entries = len(s.prefix.entries)
	limits := s.engine.Limits()
	s.now.Pages, s.now.FreePages = limits.Pages, limits.FreePages
	s.load = s.now
	if len(s.running)+len(s.waiting)+len(s.inFlight) > 0 {
		return true
	}
	close(s.looping)
	s.looping = nil
	return false
}

// current returns the load.
func (s *scheduler) current() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.load
	l.Waiting = len(s.waiting)
	return l
}
