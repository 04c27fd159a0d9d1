package serve

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-go/lockstep/generate/constraint"
	"github.com/lockstep-go/lockstep/model"
)

// maxStructures is the number of compiled structures that a server keeps. A large one takes up
// to 100 MB.
const maxStructures = 16

// structures keeps the structures that were compiled last. It is safe for concurrent use.
type structures struct {
	vocabulary func() (*constraint.Vocabulary, error)
	compiling  chan struct{} // full while one compiles, so that the model keeps the other CPU cores

	mu   sync.Mutex
	kept []*compiled // the one used last is last
}

func newStructures(vocabulary func() (*constraint.Vocabulary, error)) *structures {
	return &structures{vocabulary: sync.OnceValues(vocabulary), compiling: make(chan struct{}, 1)}
}

// compiled is a structure that is compiled, or that a goroutine compiles.
type compiled struct {
	source  string
	waiting int           // requests; the compilation stops when the last one leaves
	cancel  func()        // stops it
	done    chan struct{} // closed when the fields below are set
	result  *constraint.Constraint
	err     error
	panic   any
}

// compile returns the constraint of a structure. Its errors name the field. If ctx ends and no
// other request waits for the same structure, the compilation stops.
func (s *structures) compile(ctx context.Context, t *structure) (*constraint.Constraint, error) {
	c := s.find(t)
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	if unfinished := s.leave(c); unfinished {
		return nil, ctx.Err()
	}
	switch {
	case c.panic != nil:
		panic(c.panic)
	case c.err == nil:
		return c.result, nil
	}
	if _, noVocabulary := s.vocabulary(); noVocabulary != nil {
		return nil, unsupported(t.param, "%s", shorten(noVocabulary.Error(), 500))
	}
	param, why := t.explain(c.err)
	return nil, badRequest(param, "%s", why)
}

// leave ends the wait of a request. It drops a structure that failed, and stops a compilation that
// no request waits for. It reports whether the compilation is unfinished.
func (s *structures) leave(c *compiled) (unfinished bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.waiting--
	drop := false
	select {
	case <-c.done:
		drop = c.result == nil
	default:
		unfinished, drop = true, c.waiting == 0
	}
	if drop {
		c.cancel()
		s.kept = slices.DeleteFunc(s.kept, func(k *compiled) bool { return k == c })
	}
	return unfinished
}

// find returns the entry of a structure. If there is none, it adds one and begins to compile it.
func (s *structures) find(t *structure) *compiled {
	source := string(marshal(t.source))
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.kept, func(k *compiled) bool { return k.source == source })
	var c *compiled
	if i >= 0 {
		c = s.kept[i]
		s.kept = slices.Delete(s.kept, i, i+1)
	} else {
		ctx, cancel := context.WithCancel(context.Background())
		c = &compiled{source: source, cancel: cancel, done: make(chan struct{})}
		go s.run(ctx, c, t.source)
		if len(s.kept) == maxStructures {
			s.kept = slices.Delete(s.kept, 0, 1)
		}
	}
	c.waiting++
	s.kept = append(s.kept, c)
	return c
}

// run compiles a structure.
func (s *structures) run(ctx context.Context, c *compiled, source constraint.Structure) {
	defer close(c.done)
	defer c.cancel()
	defer func() { c.panic = recover() }() // it panics again where a request waits
	select {
	case s.compiling <- struct{}{}:
		defer func() { <-s.compiling }()
	case <-ctx.Done():
		c.err = ctx.Err()
		return
	}
	v, err := s.vocabulary()
	if err != nil {
		c.err = err
		return
	}
	c.result, c.err = v.Compile(ctx, source)
}

// explain returns the field that an error of package constraint or answer is about, and the reason.
func (t *structure) explain(err error) (param, why string) {
	parts := strings.SplitN(err.Error(), ": ", 3) // the package, the name of the part, and the reason
	param = t.param
	if len(parts) == 3 && strings.HasPrefix(parts[1], "tools[") {
		param = parts[1]
	}
	return param, shorten(parts[len(parts)-1], 500)
}

// mask is a generate.Params.Mask whose errors name the field.
func (t *structure) mask() func(generated []int) ([]uint32, error) {
	next := t.masks()
	return func(generated []int) ([]uint32, error) {
		mask, err := next(generated)
		if err != nil {
			_, why := t.explain(err)
			return nil, badRequest(t.param, "%s", why)
		}
		return mask, nil
	}
}

var errNoEnd = errors.New("the vocabulary has no token that ends a text")

// newVocabulary returns the tokens of a model as constraints need them.
func newVocabulary(m *model.Model) (*constraint.Vocabulary, error) {
	t, err := m.NeedTokenizer()
	if err != nil {
		return nil, err
	}
	tokens, control := make([][]byte, m.Config.Vocab), map[int]string{}
	var ends []int
	for id := range tokens {
		tokens[id] = t.Bytes(id)
		if text := t.Control(id); text != "" {
			control[id] = text
		}
		if t.Stops(id) {
			ends = append(ends, id)
		}
	}
	if len(ends) == 0 {
		return nil, errNoEnd
	}
	return constraint.NewVocabulary(tokens, ends, control)
}
