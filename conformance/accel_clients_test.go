package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// clientGroup is an engine that many goroutines call.
type clientGroup struct {
	e      *accel.Engine
	tokens []int
	shared model.Snapshot // of 70 positions; all clients that restore it share its whole page
}

// client makes one request and stops at the first error.
type client struct {
	ctx    context.Context
	s      model.Session
	tokens []int
	logits []float32
	err    error
}

func (c *client) forward(tokens []int, want model.Want) {
	if c.err != nil {
		return
	}
	var out model.Output
	out, c.err = c.s.Forward(c.ctx, tokens, want)
	c.tokens, c.logits = append(c.tokens, out.Greedy), append(c.logits, out.Logits...)
}

// greedy continues with the last chosen token.
func (c *client) greedy() {
	if c.err == nil {
		c.forward(c.tokens[len(c.tokens)-1:], model.WantGreedy)
	}
}

func (c *client) restore(from model.Snapshot, n int) {
	if c.err == nil {
		c.err = c.s.Restore(from, n)
	}
}

func (c *client) snapshot(n int) (snap model.Snapshot) {
	if c.err == nil {
		snap, c.err = c.s.Snapshot(n)
	}
	return snap
}

func (c *client) truncate(n int) {
	if c.err == nil {
		c.err = c.s.Truncate(n)
	}
}

// requestVariants is the number of variants of each request.
const requestVariants = 3

// clientRequests are the kinds of requests. v selects a variant: other tokens, same calls.
var clientRequests = []struct {
	name string
	do   func(r *clientGroup, c *client, v int)
}{
	{"prompt and step", func(r *clientGroup, c *client, v int) {
		c.forward(r.tokens[v:][:2+v], model.WantGreedy)
		c.forward(r.tokens[v:][:1], model.WantLast)
	}},
	{"restored", func(r *clientGroup, c *client, v int) {
		c.restore(r.shared, 64+v)
		c.forward(r.tokens[v:][:1], model.WantLast)
	}},
	{"greedy", func(r *clientGroup, c *client, v int) {
		c.restore(r.shared, 66)
		c.forward(r.tokens[v:][:1], model.WantLast)
		c.greedy()
	}},
	{"snapshot of its own", func(r *clientGroup, c *client, v int) {
		c.restore(r.shared, 70)
		snap := c.snapshot(66)
		c.truncate(30 + v)
		c.forward(r.tokens[:1], model.WantLast) // writes to a shared page
		c.restore(snap, 65-v)
		if snap != nil {
			c.err = errors.Join(c.err, snap.Close())
		}
		c.forward(r.tokens[:1], model.WantLast)
	}},
}

// ask makes request i in a new session. It retries while the cache is full.
func (r *clientGroup) ask(ctx context.Context, i int) (string, error) {
	for {
		s, err := r.e.NewSession(0)
		if err != nil {
			return "", err
		}
		c := &client{ctx: ctx, s: s}
		clientRequests[i%len(clientRequests)].do(r, c, i/len(clientRequests)%requestVariants)
		if err := s.Close(); err != nil {
			return "", err
		}
		if !errors.Is(c.err, accel.ErrKVFull) {
			return fmt.Sprint(c.tokens, hashLogits(c.logits)), c.err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// snapshotOf computes a prompt and returns a snapshot of it.
func (r *clientGroup) snapshotOf(t testing.TB, s model.Session, n int) model.Snapshot {
	t.Helper()
	if _, err := s.Forward(t.Context(), r.tokens[:n], model.WantNothing); err != nil {
		t.Fatal(err)
	}
	snap, err := s.Snapshot(n)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// TestAccelGoroutines calls one engine from many goroutines, each with its own sequence,
// and demands the bits that each computes alone. Sequences share pages, copy and release
// them, and some are canceled. The cache holds a few sequences at a time, and evicts a
// snapshot.
func TestAccelGoroutines(t *testing.T) {
	const callers, pages = 256, 48
	m := minimalModel(t)
	r := &clientGroup{
		e:      accelEngine(t, m, smallDevice, accel.Options{MaxSequences: 16, KVPages: pages, Chunk: 96}),
		tokens: testTokens(m.Config.Vocab, 80),
	}
	first, other := openSession(t, r.e), openSession(t, r.e)
	r.shared = r.snapshotOf(t, first, 70)
	swapped := r.snapshotOf(t, other, 64)
	other.Close()
	var alone []string
	for i := range len(clientRequests) * requestVariants {
		got, err := r.ask(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		alone = append(alone, got)
	}
	for i, a := range alone {
		if strings.Count(strings.Join(alone, "\n"), a) != 1 {
			t.Errorf("two requests give the result of request %d: %s", i, a)
		}
	}
	begin := make(chan struct{})
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			ctx := t.Context()
			gaveUp := i%7 == 6
			if gaveUp {
				after, cancel := newCountdown(ctx, i%5)
				defer cancel()
				ctx = after
			}
			<-begin
			got, err := r.ask(ctx, i)
			switch {
			case gaveUp && errors.Is(err, context.Canceled):
			case err != nil:
				t.Errorf("client %d: %v", i, err)
			case got != alone[i%len(alone)]:
				t.Errorf("client %d, %s: got %s, want %s", i, clientRequests[i%len(clientRequests)].name, got, alone[i%len(alone)])
			}
		})
	}
	close(begin)
	group.Wait()
	s := r.e.Stats()
	t.Logf("%+v", s)
	if s.LargestBatch < 2 || s.SwapOuts == 0 {
		t.Errorf("no step had two sequences, or no snapshot was evicted: %+v", s)
	}
	for _, c := range []io.Closer{first, r.shared, swapped} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if s := r.e.Stats(); s.PagesInUse > 0 || s.Snapshots > 0 {
		t.Errorf("%d pages are still in use, and %d snapshots open", s.PagesInUse, s.Snapshots)
	}
}
