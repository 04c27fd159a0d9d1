package conformance

import (
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// refEngine returns the reference with a tiny model.
func refEngine(t testing.TB, arch string) model.Engine {
	t.Helper()
	spec := tiny.New(arch, 1)
	spec.AddVocab(arch != "gpt2") // one model without BOS
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	e, err := ref.New(m, ref.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// fullArchitectures are tested with all behaviors. They differ in position encoding,
// windows, BOS and recurrent states. Code above the session does not depend on the architecture.
var fullArchitectures = []string{"llama", "gemma2", "gpt2", "qwen35"}

func TestReference(t *testing.T) {
	for _, arch := range model.Architectures() {
		behaviors := slices.Concat(sequenceBehaviors, errorBehaviors)
		if slices.Contains(fullArchitectures, arch) {
			behaviors = Behaviors()
		}
		e := refEngine(t, arch)
		for _, b := range behaviors {
			t.Run(arch+"/"+b.Name, func(t *testing.T) { b.Check(t, e) })
		}
	}
}

func TestBehaviorNames(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range Behaviors() {
		if b.Name == "" || b.Reason == "" || b.run == nil || seen[b.Name] {
			t.Errorf("behavior %q (%s) is incomplete or there twice", b.Name, b.Reason)
		}
		seen[b.Name] = true
	}
}
