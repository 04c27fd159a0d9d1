package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
)

var randomOperations = flag.Int("random", 0, "number of operations of each case of TestAccelRandom; 0: 30, or 400 with -long")

// randomCase is an engine for random scripts. Its cache has room for a few sequences, so that
// snapshots are swapped out and requests find the cache full.
type randomCase struct {
	name    string
	o       accel.Options
	clients int  // goroutines that run a script each
	shares  bool // pages, by snapshots and a prefix cache
	long    bool // only with -long
}

var randomCases = []randomCase{
	{"one client", accel.Options{KVPages: 5, MaxSequences: 4, Chunk: 24}, 1, true, false},
	{"no shared pages", accel.Options{KVPages: 4, MaxSequences: 2, Chunk: 32}, 1, false, false},
	{"many clients", accel.Options{KVPages: 6, MaxSequences: 3, Chunk: 48}, 3, true, false},
	{"synchronous", accel.Options{KVPages: 6, MaxSequences: 3, Chunk: 33, SyncScheduling: true}, 1, true, true},
	{"eager", accel.Options{KVPages: 5, MaxSequences: 3, Chunk: 48, Eager: true}, 1, true, true},
	{"exact prefill", accel.Options{KVPages: 6, MaxSequences: 4, Prefill: accel.PrefillExact}, 1, true, true},
	{"many clients, exact prefill", accel.Options{KVPages: 8, MaxSequences: 3, Prefill: accel.PrefillExact}, 4, true, true},
}

// TestAccelRandom runs random scripts of operations on sequences, snapshots and generations
// of one engine. It compares each output with that of the same tokens computed alone on an
// engine of their own. At the end nothing may be left.
//
// With one client the script is deterministic, and so are the batches of its steps: a step of
// several sequences begins when all of them are queued. With many clients it is not.
func TestAccelRandom(t *testing.T) {
	slowParallel(t)
	m := randomModel(t)
	n := *randomOperations
	if n == 0 && *longCases {
		n = 400
	} else if n == 0 {
		n = 30
	}
	for _, c := range randomCases {
		if c.long && !*longCases {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			parallelUnlessGPU(t)
			label := fmt.Sprintf("%s, seed %d", t.Name(), *kernelSeed)
			pprof.Do(t.Context(), pprof.Labels("script", label), func(context.Context) { c.check(t, m, n) })
			checkGoroutines(t, label)
			if t.Failed() {
				t.Logf("to replay: go test ./conformance -run '%s$' -long=%v -seed %d -random %d", strings.ReplaceAll(t.Name(), "/", "$/"), *longCases, *kernelSeed, n)
			}
		})
	}
}

// checkGoroutines demands that no goroutine with a label runs.
func checkGoroutines(t testing.TB, label string) {
	t.Helper()
	var stacks strings.Builder
	for range 50 { // a goroutine may be about to end
		stacks.Reset()
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(stacks.String(), label) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("goroutines are left:\n%s", stacks.String())
}

// randomContext is the context of the model: sequences have up to four pages.
const randomContext = 200

// randomModel returns a model as cheap as minimalModel, with a longer context.
func randomModel(t testing.TB) *model.Model {
	t.Helper()
	spec := minimalSpec()
	spec.Set(".context_length", uint32(randomContext))
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (c randomCase) check(t *testing.T, m *model.Model, operations int) {
	device := emu.Options{SMs: 1, IgnoreRaces: true, LateStreams: true, Cache: &emulatorCache}
	dev := accelDevice(t, device)
	e, err := accel.New(t.Context(), m, dev, c.o)
	if err != nil {
		t.Fatal(err)
	}
	o := generate.Options{}
	if c.shares {
		o.PrefixBytes = 3 * e.Plan().PageBytes
	}
	g, err := generate.New(traced{e}, o)
	if err != nil {
		t.Fatal(err)
	}
	var scripts []*script
	var clients sync.WaitGroup
	for i := range c.clients {
		r := &script{TB: t, e: e, g: g, alone: c.clients == 1, shares: c.shares, exact: c.o.Prefill == accel.PrefillExact, chunk: e.Plan().Chunk,
			random: rand.New(rand.NewPCG(*kernelSeed, uint64(i)))}
		r.texts = randomTexts(m.Config.Vocab)
		scripts = append(scripts, r)
		clients.Go(func() {
			defer r.closeAll()
			for range operations / c.clients {
				r.operation()
			}
		})
	}
	clients.Wait()
	checkClosed(t, g)
	s := e.Stats()
	t.Logf("%+v, prefix cache: %+v", s, g.PrefixStats())
	if s.PagesInUse > 0 || s.Snapshots > 0 || e.Waiting() > 0 {
		t.Errorf("%d pages are still in use, %d snapshots open and %d sequences waiting", s.PagesInUse, s.Snapshots, e.Waiting())
	}
	checkClosed(t, e)
	c.o.Eager, c.o.KVPages, c.o.Chunk = true, 0, 0
	alone := oracle{TB: t, m: m, device: accelDevice(t, device), o: c.o, outputs: map[history]row{}}
	for _, r := range scripts {
		alone.check(r)
	}
}

// randomTexts returns the texts that prompts begin with. They have a common beginning, two of
// them one of more than a page.
func randomTexts(vocab int) [][]int {
	random := rand.New(rand.NewPCG(7, 7))
	var texts [][]int
	for range 3 {
		text := make([]int, randomContext+10)
		for i := range text {
			text[i] = random.IntN(vocab)
		}
		texts = append(texts, text)
	}
	copy(texts[1][:66], texts[0])
	copy(texts[2][:4], texts[0])
	return texts
}

// history says how each position of a sequence was computed. A byte per position holds the
// token, and byStep if the position was a decode step, which may round differently than a
// prompt.
type history string

const byStep = 0x80

// with returns the history after a call of Forward.
func (h history) with(tokens []int, exact bool) history {
	kind := byte(0)
	if len(tokens) == 1 && len(h) > 0 && !exact {
		kind = byStep
	}
	b := []byte(h)
	for _, id := range tokens {
		b = append(b, byte(id)|kind)
	}
	return history(b)
}

// cut returns the largest length of at most n that can be computed again. That excludes a
// length behind the first token of a prompt that followed a step: a call with that token
// would be a step.
func (h history) cut(n int) int {
	if n > 1 && h[n-1]&byStep == 0 && h[n-2]&byStep != 0 {
		n--
	}
	return n
}

// run returns the first tokens that one call of Forward computes.
func (h history) run() []int {
	var tokens []int
	for i := range len(h) {
		if i > 0 && (h[i]|h[0])&byStep != 0 {
			break
		}
		tokens = append(tokens, int(h[i]&^byStep))
	}
	return tokens
}

// row is the output of a position.
type row struct {
	greedy int
	logits string // hash; empty if they were not wanted
}

// script is one client's random operations.
type script struct {
	testing.TB
	e      *accel.Engine
	g      *generate.Generator
	random *rand.Rand
	texts  [][]int
	alone  bool // no other client uses the engine
	shares bool // pages
	exact  bool // prompts round like steps
	chunk  int  // tokens of a prompt that are computed at once

	operations  []string // so far
	sequences   []*sequence
	last        *sequence // that an operation used
	generations []*running
	snapshots   []*saved
	pages       int // that the current calls need at most

	mu   sync.Mutex
	seen []seen
	done []*running
}

// seen is an output and the operation that gave it.
type seen struct {
	operation string
	h         history
	row
}

// sequence is a session that the script uses directly.
type sequence struct {
	s    model.Session
	h    history
	next int // the token of the next step
	more int // tokens that the current call adds
}

// running is a generation in progress. The script takes its tokens one by one.
type running struct {
	operation string
	prompt    []int
	p         generate.Params
	ctx       *probe
	next      func() (generate.Token, error, bool)
	stop      func()
	tokens    []int
	trace     trace
	more      int
	ended     bool
	complete  bool // without an error
}

type saved struct {
	s model.Snapshot
	h history
}

// trace holds the hashes of the logits of a generation, by the position after the pass.
type trace map[int]string

// traced is an engine that fills the trace of the context of each pass.
type traced struct{ model.Engine }

type traceKey struct{}

type tracedSession struct{ model.Session }

func (e traced) NewSession(capacity int) (model.Session, error) {
	s, err := e.Engine.NewSession(capacity)
	return tracedSession{s}, err
}

func (s tracedSession) Forward(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	out, err := s.Session.Forward(ctx, tokens, want)
	if t, ok := ctx.Value(traceKey{}).(trace); ok && err == nil {
		t[s.Len()] = hashLogits(out.Logits)
	}
	return out, err
}

// probe is a context with callbacks that an engine runs where it looks at its context.
type probe struct {
	context.Context
	cancel        context.CancelFunc
	onErr, onDone func()
}

func newProbe(parent context.Context) *probe {
	ctx, cancel := context.WithCancel(parent)
	return &probe{Context: ctx, cancel: cancel, onErr: func() {}, onDone: func() {}}
}

func (p *probe) Err() error {
	p.onErr()
	return p.Context.Err()
}

func (p *probe) Done() <-chan struct{} {
	p.onDone()
	return p.Context.Done()
}

// operation runs a random operation and checks what must hold after each.
func (r *script) operation() {
	list := []func(){
		r.steps, r.steps, r.steps, r.steps, r.open, r.open, r.extend, r.extend, r.retry, r.retry, r.generate, r.truncate,
		r.stopGeneration, r.tooLong,
	}
	if r.shares {
		list = append(list, r.generate, r.generate, r.generate, r.snapshot, r.restore, r.restore, r.branch, r.branch, r.closeSnapshot)
	}
	for n := len(r.operations); n == len(r.operations); { // some have nothing to work on
		list[r.random.IntN(len(list))]()
	}
	if !r.alone {
		return
	}
	s, held, snapshots := r.e.Stats(), r.heldPages(), len(r.snapshots)+r.g.PrefixStats().Entries
	if s.PagesInUse > held || s.PagesInUse < held && !r.shares || s.Snapshots != snapshots {
		r.fail("%d pages are in use and %d snapshots open, want %d pages, or fewer if some are shared, and %d snapshots", s.PagesInUse, s.Snapshots, held, snapshots)
	}
}

// begin names the operation that begins, and bounds the pages that its calls need.
func (r *script) begin(format string, args ...any) {
	r.operations = append(r.operations, fmt.Sprintf("%d: ", len(r.operations))+fmt.Sprintf(format, args...))
	r.needPages()
}

func (r *script) current() string { return r.operations[len(r.operations)-1] }

func (r *script) fail(format string, args ...any) {
	r.Errorf("operation %s: %s", r.current(), fmt.Sprintf(format, args...))
}

func pagesOf(positions int) int { return (positions + attention.PageTokens - 1) / attention.PageTokens }

// needPages sets an upper bound of the pages that sequences need during the current calls.
// If pages are shared, each call may need one more for a copy.
func (r *script) needPages() {
	r.pages = 0
	add := func(positions, more int) {
		r.pages += pagesOf(positions + more)
		if r.shares {
			r.pages += min(more, 1)
		}
	}
	for _, q := range r.sequences {
		add(len(q.h), q.more)
	}
	for _, g := range r.generations { // the last token is not computed yet
		add(len(g.prompt)+max(0, len(g.tokens)-1), g.more)
	}
}

// heldPages returns the most pages that can be in use between operations.
func (r *script) heldPages() int {
	r.needPages()
	held := r.pages + int(r.g.PrefixStats().Bytes/r.e.Plan().PageBytes)
	for _, s := range r.snapshots {
		held += len(s.h) / attention.PageTokens
	}
	return held
}

// judge fails the test if a call may not end with an error. before is the number of positions
// before the call, limit the capacity.
func (r *script) judge(ctx context.Context, before, tokens, limit int, err error) {
	switch full := (*accel.KVFullError)(nil); {
	case before+tokens > limit:
		if !errors.Is(err, model.ErrContextLimit) {
			r.fail("%d positions after %d of %d: error %v", tokens, before, limit, err)
		}
	case err == nil, errors.Is(err, context.Canceled) && ctx.Err() != nil:
	case errors.As(err, &full):
		if r.alone && r.pages <= full.Pages || full.Need <= full.Free {
			r.fail("sequences need at most %d pages: %v", r.pages, err)
		}
	default:
		r.fail("%d positions after %d: error %v", tokens, before, err)
	}
}

// forward computes tokens of a sequence and notes the output.
func (r *script) forward(ctx context.Context, q *sequence, tokens []int, want model.Want) {
	h, operation := q.h, r.current()
	out, err := q.s.Forward(ctx, tokens, want)
	r.judge(ctx, len(h), len(tokens), q.s.Cap(), err)
	if err == nil {
		q.h = h.with(tokens, r.exact)
		q.next = tokens[0]
	}
	if q.s.Len() != len(q.h) {
		r.fail("the session has %d positions, want %d", q.s.Len(), len(q.h))
	}
	if err != nil || want == model.WantNothing {
		return
	}
	q.next = out.Greedy
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, seen{operation, q.h, row{greedy: out.Greedy}})
	vocab := r.e.Model().Config.Vocab
	for n := len(out.Logits) / vocab; n > 0; n-- {
		logits := out.Logits[len(out.Logits)-n*vocab:][:vocab]
		r.seen = append(r.seen, seen{operation, q.h[:len(q.h)-n+1], row{model.Argmax(logits), hashLogits(logits)}})
	}
}

func (r *script) want() model.Want {
	return []model.Want{model.WantGreedy, model.WantGreedy, model.WantGreedy, model.WantGreedy, model.WantGreedy,
		model.WantLast, model.WantLast, model.WantAll, model.WantNothing}[r.random.IntN(9)]
}

// beginning returns a beginning of a text with one of some lengths.
func (r *script) beginning(lengths ...int) []int {
	return r.texts[r.random.IntN(len(r.texts))][:lengths[r.random.IntN(len(lengths))]]
}

// sequence returns a random sequence, often the last one again, and nil if there is none.
func (r *script) sequence() *sequence {
	if len(r.sequences) == 0 {
		return nil
	}
	if !slices.Contains(r.sequences, r.last) || r.random.IntN(3) == 0 {
		r.last = r.sequences[r.random.IntN(len(r.sequences))]
	}
	return r.last
}

// crowded reports whether the script has enough sequences.
func (r *script) crowded() bool { return len(r.sequences) > 2 }

func (r *script) newSequence(capacity int) *sequence {
	s, err := r.e.NewSession(capacity)
	if err != nil {
		r.fail("%v", err)
		return nil
	}
	q := &sequence{s: s}
	r.sequences = append(r.sequences, q)
	return q
}

func (r *script) open() {
	if r.crowded() {
		r.closeSequence()
	}
	tokens, capacity := r.beginning(1, 2, 20, 61, 62, 63, 64, 65, 66, 67, 70, 127, 129), 0
	if r.random.IntN(3) == 0 {
		capacity = len(tokens) + r.random.IntN(6)
	}
	if q := r.newSequence(capacity); q != nil {
		r.prompt(q, tokens)
	}
}

// extend adds tokens to a sequence, often up to a page boundary.
func (r *script) extend() {
	q := r.sequence()
	if q == nil {
		return
	}
	n := 2 + r.random.IntN(8)
	if r.random.IntN(2) == 0 {
		n = attention.PageTokens - len(q.h)%attention.PageTokens + r.random.IntN(3) - 1
	}
	if n = min(n, q.s.Cap()-len(q.h)); n > 1 {
		r.prompt(q, r.beginning(n))
	}
}

// retry goes back after some steps, or cancels a prompt, and continues with the same token.
func (r *script) retry() {
	q := r.sequence()
	if q == nil || q.s.Cap()-len(q.h) < r.chunk+6 {
		return
	}
	one := []func() pending{func() pending { return r.step(q) }}
	for range 3 {
		r.together(one)
	}
	if n := r.random.IntN(4); n < 2 && n < len(q.h) {
		r.begin("back from %d by %d", len(q.h), 1+n)
		next := q.next
		r.truncateTo(q, len(q.h)-1-n)
		q.next = next
	} else {
		tokens := r.beginning(r.chunk + 2)
		r.disturbedPrompt(q, tokens, 0, r.queries(tokens)) // after the first chunk
	}
	r.together(one)
	r.together(one)
}

// prompt computes several tokens of a sequence.
func (r *script) prompt(q *sequence, tokens []int) {
	r.disturbedPrompt(q, tokens, r.random.IntN(8), 1+r.random.IntN(r.queries(tokens)))
}

// queries returns how often a prompt looks at its context: once before its chunks, and once
// before each.
func (r *script) queries(tokens []int) int { return 2 + (len(tokens)-1)/r.chunk }

// disturbedPrompt is prompt with something at a query of the context: it cancels the prompt,
// queues steps of other sequences or truncates another sequence.
func (r *script) disturbedPrompt(q *sequence, tokens []int, kind, at int) {
	ctx := newProbe(r.Context())
	defer ctx.cancel()
	var others sync.WaitGroup
	then, disturb := "", func() {}
	switch {
	case kind < 3:
		then, disturb = ", canceled", ctx.cancel
	case kind == 3 && r.alone:
		then, disturb = ", with steps inside", func() { r.queueSteps(q, &others) }
	case kind == 4 && r.alone:
		then, disturb = ", with another truncated inside", func() {
			if other := r.sequence(); other != nil && other != q {
				r.truncateTo(other, r.random.IntN(len(other.h)+1))
			}
		}
	}
	if len(tokens) == 1 {
		then, disturb = "", func() {} // it may be a step
	}
	var query atomic.Int64
	ctx.onErr = func() {
		if query.Add(1) == int64(at) {
			disturb()
		}
	}
	q.more = len(tokens)
	want := r.want()
	r.begin("prompt of %d tokens after %d, wants %d%s at query %d", len(tokens), len(q.h), want, then, at)
	r.forward(ctx, q, tokens, want)
	others.Wait()
	r.finished()
}

// pending is a step, of a sequence or a generation, that has not begun.
type pending struct {
	ctx *probe
	run func()
}

// step returns a step of q. Its token is mostly the greedy one.
func (r *script) step(q *sequence) pending {
	token, want, ctx := q.next, model.WantGreedy, newProbe(r.Context())
	if r.random.IntN(10) == 0 {
		token = r.random.IntN(r.e.Model().Config.Vocab)
	}
	if r.random.IntN(8) == 0 {
		want = r.want()
	}
	q.more = 1
	return pending{ctx, func() {
		defer ctx.cancel()
		r.forward(ctx, q, []int{token}, want)
	}}
}

// token prepares the next token of a generation, nothing if it has ended.
func (r *script) token(g *running) pending {
	if g.ended {
		return pending{g.ctx, func() {}}
	}
	g.more = 1
	return pending{g.ctx, func() {
		token, err, ok := g.next()
		r.judge(g.ctx, len(g.prompt), g.p.MaxTokens, randomContext, err)
		if ok && err == nil {
			g.tokens = append(g.tokens, token.ID)
			return
		}
		g.ended, g.complete = true, err == nil
		g.stop()
	}}
}

// choose returns functions that prepare steps of up to n sequences and generations other than
// except.
func (r *script) choose(n int, except *sequence) []func() pending {
	var list []func() pending
	for _, q := range r.sequences {
		if q != except {
			list = append(list, func() pending { return r.step(q) })
		}
	}
	for _, g := range r.generations {
		list = append(list, func() pending { return r.token(g) })
	}
	r.random.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	return list[:min(n, len(list))]
}

// finished ends the calls that were prepared.
func (r *script) finished() {
	for _, q := range r.sequences {
		q.more = 0
	}
	for _, g := range r.generations {
		g.more = 0
	}
	r.generations = slices.DeleteFunc(r.generations, func(g *running) bool {
		if g.ended {
			g.ctx.cancel()
			r.done = append(r.done, g)
		}
		return g.ended
	})
}

// steps computes some steps of some sequences together.
func (r *script) steps() {
	if len(r.sequences)+len(r.generations) == 0 {
		r.open()
		return
	}
	chosen := r.choose(1+r.random.IntN(3), nil)
	for range 1 + r.random.IntN(4) {
		r.together(chosen)
	}
}

// together runs one step of each chosen sequence. If there is one client, no step begins before
// all are queued. One step may be canceled.
func (r *script) together(chosen []func() pending) {
	var list []pending
	for _, prepare := range chosen {
		list = append(list, prepare())
	}
	canceled := r.random.IntN(10 * len(list))
	if canceled < len(list) {
		r.begin("%d steps, number %d canceled", len(list), canceled)
	} else {
		r.begin("%d steps", len(list))
	}
	var group sync.WaitGroup
	release := make(chan struct{})
	for i, c := range list {
		cancel := func() {}
		if i == canceled {
			cancel = c.ctx.cancel
		}
		if r.alone {
			c.queue(&group, func() {
				cancel()
				<-release
			})
			continue
		}
		var query atomic.Int64
		at := r.random.Int64N(6)
		c.ctx.onDone = func() {
			if query.Add(1) > at {
				cancel()
			}
		}
		c.ctx.onErr = c.ctx.onDone
		group.Go(c.run)
	}
	close(release)
	group.Wait()
	r.finished()
}

// queue starts a call and returns when it is queued or has ended, or waits for an engine that
// is busy. then runs when the call is queued and before it waits for a step.
func (c pending) queue(group *sync.WaitGroup, then func()) {
	queued, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c.ctx.onDone = func() {
		once.Do(func() {
			close(queued)
			then()
		})
	}
	group.Go(func() {
		defer close(ended)
		c.run()
	})
	select {
	case <-queued:
	case <-ended:
	case <-time.After(100 * time.Millisecond): // it needs the engine to get a page
	}
}

// queueSteps queues steps of sequences other than one that computes a prompt.
func (r *script) queueSteps(computing *sequence, group *sync.WaitGroup) {
	var list []pending
	for _, prepare := range r.choose(2, computing) {
		list = append(list, prepare())
	}
	r.needPages()
	for _, c := range list {
		c.queue(group, func() {})
	}
}

// generate starts a generation that may reuse a prefix, and takes its first token.
func (r *script) generate() {
	if len(r.generations) > 1 {
		r.stopGeneration()
	}
	g := &running{prompt: r.beginning(2, 5, 9, 20, 64, 67, 70), p: generate.Params{MaxTokens: 1 + r.random.IntN(4)}, trace: trace{}}
	g.ctx = newProbe(context.WithValue(r.Context(), traceKey{}, g.trace))
	if r.random.IntN(2) == 0 {
		g.p.Temperature, g.p.TopK, g.p.Seed = 1, 8, uint64(r.random.IntN(2))
	}
	g.more = 1
	r.generations = append(r.generations, g)
	r.begin("generation of %d tokens after %d, temperature %v", g.p.MaxTokens, len(g.prompt), g.p.Temperature)
	g.operation = r.current()
	g.next, g.stop = iter.Pull2(r.g.Tokens(g.ctx, g.prompt, g.p))
	r.token(g).run()
	r.finished()
}

func (r *script) stopGeneration() {
	if len(r.generations) == 0 {
		return
	}
	g := r.generations[r.random.IntN(len(r.generations))]
	r.begin("stop generation %s", g.operation)
	g.stop()
	g.ended = true
	r.finished()
}

func (r *script) truncate() {
	q := r.sequence()
	if q == nil {
		return
	}
	n := r.random.IntN(len(q.h) + 1)
	switch r.random.IntN(3) {
	case 0:
		n = max(0, len(q.h)-1-r.random.IntN(2))
	case 1:
		n = min(len(q.h), 63+r.random.IntN(3))
	}
	r.begin("truncate %d to %d", len(q.h), n)
	r.truncateTo(q, n)
}

func (r *script) truncateTo(q *sequence, n int) {
	n = q.h.cut(n)
	if err := q.s.Truncate(n); err != nil || q.s.Len() != n {
		r.fail("%d of %d positions remain, error %v", q.s.Len(), len(q.h), err)
	}
	q.h = q.h[:n]
	if r.random.IntN(2) == 0 { // else the next token stays, which a step ahead may have
		q.next = r.random.IntN(r.e.Model().Config.Vocab)
	}
}

func (r *script) snapshot() {
	q := r.sequence()
	if q == nil || len(r.snapshots) > 3 {
		r.closeSnapshot()
		return
	}
	n := len(q.h)
	if r.random.IntN(2) == 0 {
		n = r.random.IntN(n + 1)
	}
	n = q.h.cut(n)
	r.begin("snapshot of %d of %d", n, len(q.h))
	s, err := q.s.Snapshot(n)
	if err != nil || s.Len() != n {
		r.fail("error %v", err)
		return
	}
	r.snapshots = append(r.snapshots, &saved{s, q.h[:n]})
}

// restore restores a beginning of a snapshot to a sequence, which may be new.
func (r *script) restore() {
	if len(r.snapshots) == 0 {
		return
	}
	from, q := r.snapshots[r.random.IntN(len(r.snapshots))], r.sequence()
	if q == nil || !r.crowded() && r.random.IntN(2) == 0 {
		if q = r.newSequence(0); q == nil {
			return
		}
	}
	n := len(from.h)
	if r.random.IntN(2) == 0 {
		n = from.h.cut(r.random.IntN(n + 1))
	}
	r.restoreTo(q, from, n)
}

func (r *script) restoreTo(q *sequence, from *saved, n int) {
	q.more = n + attention.PageTokens // it holds its pages until the restored ones are complete
	r.begin("restore %d of %d after %d", n, len(from.h), len(q.h))
	q.more = 0
	err := q.s.Restore(from.s, n)
	r.judge(r.Context(), 0, n, q.s.Cap(), err)
	if err == nil {
		q.h, q.next = from.h[:n], r.random.IntN(r.e.Model().Config.Vocab)
	}
	if q.s.Len() != len(q.h) {
		r.fail("the session has %d positions, want %d", q.s.Len(), len(q.h))
	}
}

// branch continues a sequence from an earlier position and then restores its first branch.
func (r *script) branch() {
	q := r.sequence()
	if q == nil || len(q.h) < attention.PageTokens {
		return
	}
	r.begin("branch of %d", len(q.h))
	s, err := q.s.Snapshot(len(q.h))
	if err != nil {
		r.fail("%v", err)
		return
	}
	r.snapshots = append(r.snapshots, &saved{s, q.h})
	r.truncateTo(q, r.random.IntN(len(q.h)))
	r.together([]func() pending{func() pending { return r.step(q) }})
	r.restoreTo(q, r.snapshots[len(r.snapshots)-1], s.Len())
	r.together([]func() pending{func() pending { return r.step(q) }})
}

func (r *script) closeSnapshot() {
	if len(r.snapshots) == 0 {
		return
	}
	i := r.random.IntN(len(r.snapshots))
	r.begin("close a snapshot of %d", len(r.snapshots[i].h))
	r.close(r.snapshots[i].s)
	r.snapshots = slices.Delete(r.snapshots, i, i+1)
}

func (r *script) closeSequence() {
	if len(r.sequences) == 0 {
		return
	}
	i := r.random.IntN(len(r.sequences))
	r.begin("close a sequence of %d", len(r.sequences[i].h))
	r.close(r.sequences[i].s)
	r.sequences = slices.Delete(r.sequences, i, i+1)
}

func (r *script) close(c io.Closer) {
	if err := c.Close(); err != nil {
		r.fail("closing: %v", err)
	}
}

// tooLong makes requests beyond the capacity of a sequence and beyond the context.
func (r *script) tooLong() {
	if q := r.sequence(); q != nil {
		n := q.s.Cap() - len(q.h) + 1
		r.begin("%d tokens after %d of %d", n, len(q.h), q.s.Cap())
		r.forward(r.Context(), q, r.texts[0][:n], model.WantGreedy)
	}
	r.begin("a generation beyond the context")
	for _, err := range r.g.Tokens(r.Context(), r.texts[0][:randomContext-1], generate.Params{MaxTokens: 2}) {
		r.judge(r.Context(), randomContext-1, 2, randomContext, err)
	}
}

// closeAll closes what the script opened.
func (r *script) closeAll() {
	for len(r.generations) > 0 {
		r.stopGeneration()
	}
	for len(r.sequences) > 0 {
		r.closeSequence()
	}
	for len(r.snapshots) > 0 {
		r.closeSnapshot()
	}
}

// oracle computes histories, each alone on an engine of its own.
type oracle struct {
	testing.TB
	m       *model.Model
	device  driver.Device
	o       accel.Options
	outputs map[history]row
}

// check compares the outputs that a script has seen.
func (o *oracle) check(r *script) {
	long := slices.Clone(r.seen) // a replay gives the outputs of all beginnings of its history
	slices.SortStableFunc(long, func(a, b seen) int { return len(b.h) - len(a.h) })
	for _, s := range long {
		if _, ok := o.outputs[s.h]; !ok {
			o.replay(r.exact, s.h)
		}
	}
	wrong := 0
	for _, s := range r.seen {
		want := o.outputs[s.h]
		if s.logits == "" {
			want.logits = ""
		}
		if s.row != want && wrong < 3 {
			wrong++
			o.Errorf("operation %s: the output at position %d is %v, alone %v", s.operation, len(s.h)-1, s.row, want)
		}
	}
	for _, g := range r.done {
		want, logits := o.generate(g.prompt, g.p)
		if n := len(g.tokens); n > len(want) || !slices.Equal(g.tokens, want[:n]) || g.complete && n < len(want) {
			o.Errorf("operation %s: generated %v, alone %v", g.operation, g.tokens, want)
		}
		for n, hash := range g.trace {
			if hash != logits[n] {
				o.Errorf("operation %s: the logits after %d positions are %s, alone %s", g.operation, n, hash, logits[n])
			}
		}
	}
	if o.Failed() {
		o.Logf("operations:\n%s", strings.Join(r.operations, "\n"))
	}
}

// engine opens an engine. The caller closes it.
func (o *oracle) engine() *accel.Engine {
	e, err := accel.New(o.Context(), o.m, o.device, o.o)
	if err != nil {
		o.Fatal(err)
	}
	return e
}

// replay computes a history and keeps the outputs of its positions.
func (o *oracle) replay(exact bool, whole history) {
	e := o.engine()
	defer checkClosed(o, e)
	s := openSession(o, e)
	defer s.Close()
	vocab := o.m.Config.Vocab
	for rest := whole; len(rest) > 0; {
		tokens := rest.run()
		out, err := s.Forward(o.Context(), tokens, model.WantAll)
		if err != nil {
			o.Fatal(err)
		}
		for i := range tokens {
			logits := out.Logits[i*vocab:][:vocab]
			o.outputs[whole[:len(whole)-len(rest)+i+1]] = row{model.Argmax(logits), hashLogits(logits)}
		}
		rest = rest[len(tokens):]
	}
}

// generate generates without a prefix cache.
func (o *oracle) generate(prompt []int, p generate.Params) ([]int, trace) {
	e, logits := o.engine(), trace{}
	defer checkClosed(o, e)
	ctx := context.WithValue(o.Context(), traceKey{}, logits)
	g := collect(generate.Tokens(ctx, traced{e}, prompt, p))
	if g.Err != nil {
		o.Fatal(g.Err)
	}
	return g.IDs, logits
}
