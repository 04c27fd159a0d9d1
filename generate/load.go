package generate

import (
	"errors"
	"time"
)

// Load is the state of a generator, and its counters since New.
type Load struct {
	Running   int // requests that are admitted and not preempted
	Waiting   int // requests that wait for room, the preempted ones included
	Preempted int // waiting requests whose pages are in host memory

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
	StepError        error // or of opening, storing or closing a sequence since; a canceled step does not change it
}

// measure counts a step that has ended or could not begin. Its time begins when it was queued, or when the
// pass before it ended if that was later. Of a pass of choices, measure only stores when it ended.
func (s *scheduler) measure(p *pass, err error) {
	now, begin := time.Now(), p.queuedAt
	if s.lastEnd.After(begin) {
		begin = s.lastEnd
	}
	s.lastEnd = now
	if p.rows == nil {
		return
	}
	l := &s.load
	l.Steps++
	l.StepRows, l.StepPromptTokens, l.StepTime = len(p.rows), 0, now.Sub(begin)
	for _, row := range p.rows {
		if row.Prompt {
			l.StepPromptTokens += len(row.Tokens)
		}
	}
	switch canceled := p.ctx.Err(); {
	case err == nil:
		l.PromptTokens += l.StepPromptTokens
		l.StepError = nil
	case canceled == nil || !errors.Is(err, canceled): // a canceled step says nothing about the engine
		l.StepError = err
		l.FailedSteps++
	}
}

// publish makes the load visible to Generator.Load.
func (s *scheduler) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	limits := s.engine.Limits()
	s.load.Running, s.load.Pages, s.load.FreePages = len(s.running), limits.Pages, limits.FreePages
	s.load.Prefix = s.prefix.stats
	s.load.Prefix.Entries = len(s.prefix.entries)
	s.published = s.load
}

// current returns the published load, with the requests that wait now.
func (s *scheduler) current() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.published
	l.Waiting = len(s.waiting)
	for _, r := range s.waiting {
		if r.preempted {
			l.Preempted++
		}
	}
	return l
}
