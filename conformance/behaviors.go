// Package conformance holds what every engine must do as cases that are data: a
// unique name, a reason and a check. An engine is held to all of them with a few
// lines of test.
package conformance

import (
	"context"
	"slices"

	"github.com/lockstep-go/lockstep/model"
)

// T is what a check needs of a *testing.T.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any) // must not return
	Context() context.Context
}

// Behavior is something that an engine must do, whatever model it computes.
type Behavior struct {
	Name   string // unique
	Reason string // why it is asked for, or which bug it finds
	run    func(r *rig)
}

// Behaviors are those that need nothing but an engine. The model must have a
// vocabulary and a context of at least MinContext positions.
func Behaviors() []Behavior {
	return slices.Concat(sessionBehaviors, failureBehaviors, generationBehaviors, textBehaviors, prefixBehaviors, parallelBehaviors)
}

// MinContext is the shortest context on which Behaviors can be checked.
const MinContext = 64

// Check holds an engine to the behavior. Sessions that are still open at the end
// are a failure, too.
func (b Behavior) Check(t T, e model.Engine) {
	t.Helper()
	m := e.Model()
	if m.Tokenizer == nil || m.Config.Context < MinContext {
		t.Fatalf("the model needs a vocabulary and %d positions", MinContext)
	}
	r := &rig{T: t, e: &spy{Engine: e}, vocab: m.Config.Vocab}
	b.run(r)
	for _, s := range r.sessions {
		if err := s.Close(); err != nil {
			t.Errorf("closing a session: %v", err)
		}
	}
	if n := r.e.openSessions(); n != 0 {
		t.Errorf("%d sessions were left open", n)
	}
}
