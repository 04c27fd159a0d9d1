package accel

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
)

// PrefillMode is how a prompt is computed.
type PrefillMode int

const (
	// PrefillF16 multiplies on tensor cores, with activations and weights rounded to 16 bits, and
	// attends by tiles. How a prompt is cut into chunks does not show in the bits, but
	// single steps give others: a sequence's first Forward, and any of several tokens,
	// is a prefill; any other Forward of one token is a step.
	PrefillF16 PrefillMode = iota
	// PrefillExact computes 16 positions at a time with the kernels of decoding: bit for bit
	// what single steps give.
	PrefillExact
)

// Options are the engine's settings; the zero value is good for most uses.
type Options struct {
	KV             model.KVFormat // 0: f16
	Prefill        PrefillMode
	MaxSequences   int  // sequences that step together, up to 64; 0: 16
	KVPages        int  // pages of 64 positions that all sequences share; 0: what memory leaves, no more than MaxSequences contexts
	Chunk          int  // positions of a prompt that are computed together; 0: 2048, or the context if that is less. PrefillExact: 16
	Eager          bool // no graphs
	SyncScheduling bool // a step of sequences that go on with the largest logit is queued when it is asked for, and not already with the step before
	// Timer, if set, is told what each kernel of a pass took. There are no graphs then. As
	// Tap and Progress, it must not call the engine.
	Timer func(Timing)
	// Progress, if set, is told during New how many bytes of the weights are uploaded.
	Progress func(done, total int64)
	// Tap, if set, is shown the result of operations. There are no graphs then, and
	// sequences do not step together.
	Tap Tap
}

// Tap is shown values [positions, width] after operation op of a layer (-1 outside the
// layers), the first row at the given position: the operations of ref.Tap, except that
// keys and values are shown as the cache holds them. It must not keep or change them.
type Tap func(layer int, op string, position, width int, values []float32)

const (
	page         = 64 // positions of a page of the cache
	mostRows     = 64 // of a pass that decodes
	stepwiseRows = 16 // positions of a prompt that take a pass with the kernels of decoding
)

func (o Options) withDefaults(cfg *model.Config) (Options, error) {
	if !o.KV.Valid() {
		return o, fmt.Errorf("accel: Options.KV is %v; it can be f16, bf16 or f32", o.KV)
	}
	o.KV = cmp.Or(o.KV, model.KVF16)
	if o.MaxSequences == 0 {
		o.MaxSequences = 16
	}
	if o.Chunk == 0 {
		o.Chunk = 2048
	}
	o.Chunk = min(o.Chunk, cfg.Context)
	if o.Prefill == PrefillExact {
		o.Chunk = stepwiseRows
	}
	for _, f := range []struct {
		name             string
		value, low, high int
	}{
		{"Prefill", int(o.Prefill), int(PrefillF16), int(PrefillExact)},
		{"MaxSequences", o.MaxSequences, 1, mostRows},
		{"KVPages", o.KVPages, 0, 1 << 30},
		{"Chunk", o.Chunk, 1, 1 << 20},
	} {
		if f.value < f.low || f.value > f.high {
			return o, fmt.Errorf("accel: Options.%s is %d; it can be %d to %d", f.name, f.value, f.low, f.high)
		}
	}
	return o, nil
}

// ErrComputeCapability means that a GPU is older than the kernels' instructions. It is a
// driver.ErrUnsupported.
var ErrComputeCapability = fmt.Errorf("%w: compute capability too low", driver.ErrUnsupported)

// minCapability is the oldest architecture that the kernels run on: 8.0.
const minCapability = 80

// supported returns an error if no kernels compute the model on the device.
func supported(m *model.Model, props driver.Properties) error {
	if m == nil {
		return errors.New("accel: no model")
	}
	if have := props.ComputeCapability; have < minCapability {
		return fmt.Errorf("accel: %w: %d.%d, the kernels need %d.%d", ErrComputeCapability, have/10, have%10, minCapability/10, minCapability%10)
	}
	c := &m.Config
	switch {
	case c.ValueDim != c.HeadDim:
		return fmt.Errorf("accel: %w: values of %d elements a head with keys of %d", model.ErrUnsupported, c.ValueDim, c.HeadDim)
	case c.HeadDim%8 != 0 || c.HeadDim > 256:
		return fmt.Errorf("accel: %w: a head of %d elements; kernels take multiples of 8 up to 256", model.ErrUnsupported, c.HeadDim)
	}
	for i := range m.Weights.Layers {
		if l := &m.Weights.Layers[i]; len(l.Experts) > 0 && l.FFNPostNorm.Weight != nil {
			return fmt.Errorf("accel: %w: layer %d has a norm behind its experts", model.ErrUnsupported, i)
		}
	}
	return nil
}

// rowsOf is the size of the pass, a power of two, that has room for so many rows.
func rowsOf(n int) int { return ceilPow2(n) }

func ceilPow2(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
