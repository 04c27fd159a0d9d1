package serve

import (
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
	compiling  sync.Mutex // one at a time, so that the model keeps the other CPU cores

	mu   sync.Mutex
	kept []*compiled // the one used last is last
}

type compiled struct {
	kind   structureKind
	source string
	get    func() (*constraint.Constraint, error)
}

// compile returns the constraint of a structure. Its errors name the field.
func (s *structures) compile(t *structure) (*constraint.Constraint, error) {
	c := s.find(t)
	result, err := c.get()
	if err == nil {
		return result, nil
	}
	s.mu.Lock()
	s.kept = slices.DeleteFunc(s.kept, func(k *compiled) bool { return k == c })
	s.mu.Unlock()
	if _, noVocabulary := s.vocabulary(); noVocabulary != nil {
		return nil, unsupported(t.param, "%s", shorten(noVocabulary.Error(), 500))
	}
	return nil, t.bad(err)
}

// find returns the element of a structure, after making one if there is none.
func (s *structures) find(t *structure) *compiled {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.kept, func(k *compiled) bool { return k.kind == t.kind && k.source == t.source })
	var c *compiled
	switch {
	case i >= 0:
		c = s.kept[i]
		s.kept = slices.Delete(s.kept, i, i+1)
	default:
		kind, source := t.kind, t.source
		c = &compiled{kind, source, sync.OnceValues(func() (*constraint.Constraint, error) {
			s.compiling.Lock()
			defer s.compiling.Unlock()
			v, err := s.vocabulary()
			if err != nil {
				return nil, err
			}
			switch kind {
			case jsonSchema:
				return v.Schema([]byte(source))
			case regularExpression:
				return v.Regexp(source)
			}
			return v.JSON(), nil
		})}
		if len(s.kept) == maxStructures {
			s.kept = slices.Delete(s.kept, 0, 1)
		}
	}
	s.kept = append(s.kept, c)
	return c
}

// bad is an error of package constraint as that of the field.
func (t *structure) bad(err error) *apiError {
	why := strings.SplitN(err.Error(), ": ", 3) // the package, what failed, and why
	return badRequest(t.param, "%s", shorten(why[len(why)-1], 500))
}

// mask is a generate.Params.Mask whose errors name the field.
func (t *structure) mask() func(generated []int) ([]uint32, error) {
	next := t.masks()
	return func(generated []int) ([]uint32, error) {
		mask, err := next(generated)
		if err != nil {
			return nil, t.bad(err)
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
