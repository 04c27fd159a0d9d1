package generate

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// fakeEngine computes logits from a hash of the whole history, so that a lost, repeated or
// wrong token shows in the output, as does a token that is wrongly marked as prompt or
// generated. It has pages with copy on write, and fails the test if a caller breaks the rules
// of model.Engine.
type fakeEngine struct {
	t      testing.TB
	model  *model.Model
	limits model.Limits
	// choose, if set, returns the token with by far the largest logit.
	choose func(history []int) int
	// script, if set, returns the logits.
	script func(history []int) []float32
	// before, if set, runs before each operation, which fails with its error: open, fork,
	// reserve, row (of Step), wait, choose, swap out, swap in, close.
	before        func(op string, tokens []int) error
	ignoreContext bool // Step and Wait succeed although their contexts have ended
	checkpoint    int  // forks resume at multiples of it, and where a sequence was forked at its end; 0: anywhere

	busy    atomic.Bool
	used    int // pages
	open    []*fakeSequence
	opened  int         // sequences so far
	passes  []*fakePass // not waited for, in order
	results []*fakePass // steps with valid results
	steps   [][]fakeRow // rows of steps that were queued
	dropped int         // rows that were dropped because an earlier pass failed
}

// fakeRow is a row as the engine saw it.
type fakeRow struct {
	Len    int   // positions before it
	Tokens []int // nil: the token chosen last
	Prompt bool
	Want   model.Want
}

// newFake returns an engine on a tiny llama with a vocabulary.
func newFake(t testing.TB) *fakeEngine {
	t.Helper()
	spec := tiny.New("llama", 1)
	spec.AddVocab(true)
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	return newFakeOf(t, m)
}

func newFakeOf(t testing.TB, m *model.Model) *fakeEngine {
	return &fakeEngine{t: t, model: m, limits: model.Limits{Sequences: 8, PromptTokens: 64, PageTokens: 4, Pages: 1000, Async: true}}
}

// withoutVocabulary removes the vocabulary.
func (e *fakeEngine) withoutVocabulary() *fakeEngine {
	m := e.model
	e.model = &model.Model{Config: m.Config, Weights: m.Weights, File: m.File}
	return e
}

// speak makes the engine answer a prompt of n tokens with these bytes, then EOS.
func (e *fakeEngine) speak(n int, text string) *fakeEngine {
	e.choose = func(history []int) int {
		if i := len(history) - n; i < len(text) {
			return int(text[i])
		}
		return tiny.End
	}
	return e
}

func (e *fakeEngine) Model() *model.Model { return e.model }
func (e *fakeEngine) Close() error        { return nil }

func (e *fakeEngine) Limits() model.Limits {
	l := e.limits
	l.FreePages = max(0, l.Pages-e.used)
	return l
}

// enter fails the test if two goroutines use the engine at once.
func (e *fakeEngine) enter() func() {
	if e.busy.Swap(true) {
		e.t.Error("two goroutines use the engine")
	}
	return func() { e.busy.Store(false) }
}

func (e *fakeEngine) hook(op string, tokens []int) error {
	if e.before == nil {
		return nil
	}
	return e.before(op, tokens)
}

// together lets no pass end until n requests run or wait.
func (e *fakeEngine) together(g *Generator, n int) {
	before, arrived := e.before, false
	e.before = func(op string, tokens []int) error {
		for op == "wait" && !arrived {
			l := g.Load()
			arrived = l.Running+l.Waiting >= n
			runtime.Gosched()
		}
		if before == nil {
			return nil
		}
		return before(op, tokens)
	}
}

// take checks that there are n free pages.
func (e *fakeEngine) take(n int) error {
	if e.limits.Pages > 0 && e.used+n > e.limits.Pages {
		return fmt.Errorf("fake: %w", &model.CacheFullError{Need: n, Free: e.limits.Pages - e.used, Pages: e.limits.Pages, PageTokens: e.limits.PageTokens})
	}
	return nil
}

func (e *fakeEngine) NewSequence(capacity int) (model.Sequence, error) {
	defer e.enter()()
	if err := e.hook("open", nil); err != nil {
		return nil, err
	}
	limit := e.model.Config.Context
	if err := model.CheckCapacity(capacity, limit); err != nil {
		return nil, err
	}
	return e.sequence(cmp.Or(capacity, limit)), nil
}

func (e *fakeEngine) sequence(capacity int) *fakeSequence {
	s := &fakeSequence{engine: e, capacity: capacity, last: -1}
	e.open = append(e.open, s)
	e.opened++
	return s
}

func (e *fakeEngine) Step(ctx context.Context, rows []model.Row) (model.Pass, error) {
	defer e.enter()()
	if err := ctx.Err(); err != nil && !e.ignoreContext {
		return nil, fmt.Errorf("fake: %w", err)
	}
	ahead := 0
	for _, p := range e.passes {
		if p.step {
			ahead++
		}
	}
	if ahead > 1 {
		e.t.Errorf("%d steps are queued ahead", ahead)
	}
	var seen []*fakeSequence
	var tokens [][]int
	need, generated, prompt := 0, 0, 0
	for _, r := range rows {
		s := r.Sequence.(*fakeSequence)
		s.check()
		if slices.Contains(seen, s) {
			e.t.Error("two rows of one sequence")
		}
		t := r.Tokens
		if t == nil && s.last >= 0 {
			t = []int{s.last}
		}
		if s.held {
			e.t.Error("a row of a sequence with a held choice")
		}
		if err := model.CheckTokens(t, e.model.Config.Vocab); err != nil {
			return nil, err
		}
		if err := model.CheckCapacity(len(s.history)+len(t), s.capacity); err != nil {
			return nil, err
		}
		if r.Prompt {
			prompt += len(t)
		} else {
			generated += len(t)
		}
		seen, tokens, need = append(seen, s), append(tokens, t), need+s.need(len(s.history)+len(t))
	}
	if generated > e.limits.Sequences || prompt > e.limits.PromptTokens || len(rows) == 0 {
		e.t.Errorf("a step of %d generated tokens and %d of prompts", generated, prompt)
	}
	for i := range rows {
		if err := e.hook("row", tokens[i]); err != nil {
			return nil, err
		}
	}
	if err := e.take(need); err != nil {
		return nil, err
	}
	p := &fakePass{engine: e, ctx: ctx, step: true, sequences: seen}
	var record []fakeRow
	for i, r := range rows {
		s := seen[i]
		record = append(record, fakeRow{len(s.history), slices.Clone(r.Tokens), r.Prompt, r.Want})
		p.before = append(p.before, len(s.history))
		p.results = append(p.results, s.row(tokens[i], r))
	}
	e.steps = append(e.steps, record)
	e.results = append(e.results, p)
	if n := len(e.results) - 2; n > 0 { // the results are no longer valid
		for _, old := range e.results[:n] {
			for _, out := range old.results {
				for i := range out.Logits {
					out.Logits[i] = float32(math.NaN())
				}
				for i := range out.Top {
					out.Top[i].Token = -7
				}
			}
		}
		e.results = e.results[n:]
	}
	return p.queue(), nil
}

func (e *fakeEngine) Choose(ctx context.Context, choices []model.Choose) (model.Pass, error) {
	defer e.enter()()
	if err := e.hook("choose", nil); err != nil {
		return nil, err
	}
	p := &fakePass{engine: e, ctx: ctx}
	for _, c := range choices {
		s := c.Sequence.(*fakeSequence)
		s.check()
		if !s.held {
			e.t.Error("a choice without a row")
		}
		logits := s.logits
		if c.Logits != nil {
			logits = c.Logits
		}
		s.held = false
		p.sequences, p.before = append(p.sequences, s), append(p.before, len(s.history))
		p.results = append(p.results, model.Result{Choice: s.pick(logits, c.Mask)})
	}
	return p.queue(), nil
}

type fakePass struct {
	engine    *fakeEngine
	ctx       context.Context
	step      bool
	sequences []*fakeSequence
	before    []int // their lengths
	results   []model.Result
	failed    error
}

func (p *fakePass) queue() *fakePass {
	for _, s := range p.sequences {
		s.queued++
	}
	p.engine.passes = append(p.engine.passes, p)
	return p
}

func (p *fakePass) Wait() ([]model.Result, error) {
	e := p.engine
	defer e.enter()()
	if len(e.passes) == 0 || e.passes[0] != p {
		e.t.Error("passes are not waited for in order")
		return nil, errors.New("fake: wrong pass")
	}
	e.passes = e.passes[1:]
	for _, s := range p.sequences {
		s.queued--
	}
	err := p.failed
	defer func() { // also if the hook panics
		if v := recover(); v != nil {
			p.fail(errors.New("fake: a pass before it panicked"))
			panic(v)
		}
	}()
	if err == nil && p.step {
		err = e.hook("wait", nil)
	}
	if ended := p.ctx.Err(); err == nil && ended != nil && !e.ignoreContext {
		err = fmt.Errorf("fake: %w", ended)
	}
	if err != nil {
		p.fail(fmt.Errorf("fake: after a failed pass: %w", err))
		return nil, err
	}
	return p.results, nil
}

// fail drops a pass and those after it.
func (p *fakePass) fail(later error) {
	for _, q := range p.engine.passes {
		q.failed = later
		p.engine.dropped += len(q.sequences)
	}
	all := append([]*fakePass{p}, p.engine.passes...)
	for _, q := range slices.Backward(all) {
		for i, s := range q.sequences {
			s.truncate(min(len(s.history), q.before[i]))
		}
	}
}

// fakePage is a page of the cache.
type fakePage struct{ refs int }

type fakeSequence struct {
	forkedAt []int // positions where it, or what it was forked from, was forked at its end
	engine   *fakeEngine
	capacity int
	history  []int // token<<1, odd for a prompt
	pages    []*fakePage
	params   *sampling.Params
	counts   map[int]int // generated tokens
	last     int         // chosen token, -1: none
	held     bool
	logits   []float32 // of a held row
	queued   int       // passes
	swapped  bool
	closed   bool
}

func (s *fakeSequence) Len() int { return len(s.history) }
func (s *fakeSequence) Cap() int { return s.capacity }

func (s *fakeSequence) check() {
	if s.closed || s.swapped {
		s.engine.t.Errorf("a sequence is used that is closed (%v) or swapped out (%v)", s.closed, s.swapped)
	}
}

// need returns the number of pages to take before the sequence can have n positions.
func (s *fakeSequence) need(n int) int {
	if n <= len(s.history) {
		return 0
	}
	size := s.engine.limits.PageTokens
	need := max(0, (n+size-1)/size-len(s.pages))
	if s.partial() != nil {
		need++
	}
	return need
}

// partial returns the last page if it is shared and has room: to be copied before it is
// written.
func (s *fakeSequence) partial() *fakePage {
	if at := len(s.history) / s.engine.limits.PageTokens; at < len(s.pages) && s.pages[at].refs > 1 {
		return s.pages[at]
	}
	return nil
}

// grow takes the pages of n positions, which must be free.
func (s *fakeSequence) grow(n int) {
	if n <= len(s.history) {
		return
	}
	size := s.engine.limits.PageTokens
	if p := s.partial(); p != nil {
		p.refs--
		s.pages[len(s.history)/size] = &fakePage{1}
		s.engine.used++
	}
	for len(s.pages) < (n+size-1)/size {
		s.pages = append(s.pages, &fakePage{1})
		s.engine.used++
	}
}

// shrink gives back the pages from the nth.
func (s *fakeSequence) shrink(n int) {
	for _, p := range s.pages[n:] {
		if p.refs--; p.refs == 0 {
			s.engine.used--
		}
	}
	s.pages = s.pages[:n]
}

// row appends tokens and computes what a row wants.
func (s *fakeSequence) row(tokens []int, r model.Row) (out model.Result) {
	e := s.engine
	s.grow(len(s.history) + len(tokens))
	out.Token = -1
	for _, id := range tokens {
		entry := id << 1
		if r.Prompt {
			entry |= 1
		}
		s.history = append(s.history, entry)
		if r.Want == model.WantHidden {
			random := s.random(3)
			for range e.model.Config.Hidden {
				out.Hidden = append(out.Hidden, random.Float32()-0.5)
			}
		}
	}
	s.last = -1
	if r.Want == model.WantNothing || r.Want == model.WantHidden {
		return out
	}
	s.logits = s.compute()
	if r.Want == model.WantLogits {
		out.Logits = slices.Clone(s.logits)
	}
	if s.held = r.Hold; !r.Hold {
		out.Choice = s.pick(s.logits, nil)
	}
	return out
}

func (s *fakeSequence) random(stream uint64) *rand.Rand {
	h := fnv.New64a()
	for _, entry := range s.history {
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(entry)))
	}
	return rand.New(rand.NewPCG(h.Sum64(), stream))
}

// compute returns random logits, seeded by the history, unless there is a script.
func (s *fakeSequence) compute() []float32 {
	e := s.engine
	var ids []int
	for _, entry := range s.history {
		ids = append(ids, entry>>1)
	}
	if e.script != nil {
		return e.script(ids)
	}
	random := s.random(7)
	logits := make([]float32, e.model.Config.Vocab)
	for i := range logits {
		logits[i] = 8*random.Float32() - 4
	}
	if e.choose != nil {
		logits[e.choose(ids)] = 100
	}
	return logits
}

// pick chooses a token: by bias, penalties and mask, and by noise for each token if there is a
// temperature.
func (s *fakeSequence) pick(logits []float32, mask []uint32) (c sampling.Choice) {
	p := s.params
	if p == nil {
		p = &sampling.Params{}
	}
	noise := rand.New(rand.NewPCG(p.Seed, uint64(p.Choice)<<32|uint64(len(s.history))))
	best := math.Inf(-1)
	c.Token = -1
	for id, l := range logits {
		x := float64(l + p.Bias[id])
		if n := s.counts[id]; n > 0 {
			x -= p.PresencePenalty + float64(n)*p.FrequencyPenalty
		}
		if p.Temperature > 0 && p.TopK != 1 {
			x = x/p.Temperature - math.Log(noise.ExpFloat64())
		}
		if (mask == nil || mask[id/32]>>(id%32)&1 != 0) && x > best {
			best, c.Token, c.LogProb = x, id, l
		}
	}
	for range p.TopLogProbs {
		c.Top = append(c.Top, sampling.LogProb{Token: c.Token, LogProb: c.LogProb})
	}
	if s.last = c.Token; c.Token >= 0 && s.counts != nil {
		s.counts[c.Token]++
	}
	return c
}

func (s *fakeSequence) Reserve(n int) error {
	defer s.engine.enter()()
	s.check()
	if err := s.engine.hook("reserve", nil); err != nil {
		return err
	}
	if err := model.CheckCapacity(n, s.capacity); err != nil {
		return err
	}
	if err := s.engine.take(s.need(n)); err != nil {
		return err
	}
	s.grow(n)
	return nil
}

func (s *fakeSequence) Truncate(n int) error {
	defer s.engine.enter()()
	s.check()
	if n < 0 || n > len(s.history) || s.queued > 0 {
		return errors.New("fake: truncate out of range, or in a pass")
	}
	s.truncate(n)
	return nil
}

func (s *fakeSequence) truncate(n int) {
	if n < len(s.history) {
		s.history = s.history[:n:n]
		size := s.engine.limits.PageTokens
		s.shrink((n + size - 1) / size)
	}
	s.last, s.held = -1, false
}

func (s *fakeSequence) Fork(n int) (model.Sequence, error) {
	defer s.engine.enter()()
	s.check()
	if err := s.engine.hook("fork", nil); err != nil {
		return nil, err
	}
	if n < 0 || n > len(s.history) {
		return nil, errors.New("fake: fork out of range")
	}
	if n == len(s.history) {
		s.forkedAt = append(s.forkedAt, n)
	}
	f := s.engine.sequence(s.capacity)
	f.history, f.forkedAt = slices.Clone(s.history[:n]), slices.Clone(s.forkedAt)
	size := s.engine.limits.PageTokens
	f.pages = slices.Clone(s.pages[:(n+size-1)/size])
	for _, p := range f.pages {
		p.refs++
	}
	return f, nil
}

func (s *fakeSequence) ResumesAt(n int) int {
	defer s.engine.enter()()
	s.check()
	c := s.engine.checkpoint
	if c == 0 || n == len(s.history) {
		return n
	}
	at := n / c * c
	if n > len(s.history) {
		return at
	}
	for _, position := range s.forkedAt {
		if position <= n {
			at = max(at, position)
		}
	}
	return at
}

func (s *fakeSequence) SetSampling(p *sampling.Params, prompt, generated []int) error {
	defer s.engine.enter()()
	s.check()
	own := *p
	s.params, s.counts = &own, map[int]int{}
	for _, id := range generated {
		s.counts[id]++
	}
	return nil
}

func (s *fakeSequence) SwapOut() error {
	defer s.engine.enter()()
	s.check()
	if s.queued > 0 {
		s.engine.t.Error("a sequence is swapped out in a pass")
	}
	if err := s.engine.hook("swap out", nil); err != nil {
		return err
	}
	s.shrink(0)
	s.swapped = true
	return nil
}

func (s *fakeSequence) SwapIn() error {
	defer s.engine.enter()()
	if s.closed || !s.swapped {
		s.engine.t.Error("a sequence is swapped in that is not swapped out")
	}
	if err := s.engine.hook("swap in", nil); err != nil {
		return err
	}
	size := s.engine.limits.PageTokens
	n := (len(s.history) + size - 1) / size
	if err := s.engine.take(n); err != nil {
		return err
	}
	for range n {
		s.pages = append(s.pages, &fakePage{1})
	}
	s.engine.used += n
	s.swapped = false
	return nil
}

func (s *fakeSequence) Close() error {
	defer s.engine.enter()()
	if s.queued > 0 {
		s.engine.t.Error("a sequence is closed in a pass")
	}
	if s.closed {
		return errors.New("fake: closed twice")
	}
	s.shrink(0)
	s.closed = true
	s.engine.open = slices.DeleteFunc(s.engine.open, func(o *fakeSequence) bool { return o == s })
	return s.engine.hook("close", nil)
}

// idle closes a generator, if it is not nil, and fails the test unless every sequence, page
// and pass is given back.
func (e *fakeEngine) idle(t *testing.T, g *Generator) {
	t.Helper()
	if g != nil {
		if err := g.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if len(e.open) != 0 || e.used != 0 || len(e.passes) != 0 {
		t.Errorf("%d of %d sequences are open, %d pages in use, %d passes queued", len(e.open), e.opened, e.used, len(e.passes))
	}
}

// rows returns the rows of all steps.
func (e *fakeEngine) rows() (all []fakeRow) {
	for _, step := range e.steps {
		all = append(all, step...)
	}
	return all
}

// collected is everything that a generation yielded.
type collected struct {
	IDs   []int // including NoToken
	Texts []string
	Text  string
	Err   error
}

func collect(seq func(func(Token, error) bool)) collected {
	var c collected
	for t, err := range seq {
		if err != nil {
			c.Err = err
			continue // the result would show a token after the error
		}
		c.IDs = append(c.IDs, t.ID)
		c.Texts = append(c.Texts, t.Text)
		c.Text += t.Text
	}
	return c
}

// newTest returns a generator of a fake engine. The test fails unless the engine is idle at
// its end.
func newTest(t *testing.T, e *fakeEngine, o Options) *Generator {
	t.Helper()
	g, err := New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.idle(t, g) })
	return g
}
