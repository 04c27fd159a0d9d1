package accel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/quant"
)

// Options configure an engine. The zero value suits most uses.
type Options struct {
	KV           model.KVFormat // format of the KV cache, KVF16 or KVBF16; 0: KVF16
	MaxSequences int            // maximum number of sequences per decode step, 1 to 256; 0: 64
	KVPages      int            // pages of the KV cache, 64 positions each, for all sequences; 0: as many as fit, at most MaxSequences contexts
	Chunk        int            // maximum number of prompt tokens per forward pass; 0: 2048, or the context if it is shorter
	Checkpoint   int            // positions between checkpoints of recurrent states; a truncated sequence restarts from its last one; 0: 1024
	Eager        bool           // launch kernels one by one instead of as graphs

	// Timer, if set, is called with kernel times after each list of launches: a forward pass, the logits of a
	// prompt, or sampling. It turns graphs off. Timer, Progress and Tap must not call the engine.
	Timer func(Timing)
	// Progress, if set, is called during New with the number of bytes queued for upload and in total.
	Progress func(done, total int64)
	// Tap, if set, is called with the results of operations. It turns graphs off, and
	// sequences share neither decode steps nor prompt chunks.
	Tap Tap
}

// Tap receives values [tokens, width] of operation op in a layer, or in layer -1 outside the
// layers. The first token is at the given position. The operations are those of ref.Tap, but
// keys and values are as the cache holds them. Tap must not keep or change values.
type Tap func(layer int, op string, position, width int, values []float32)

// maxSlots is the maximum number of batch slots of a decode step, and defaultSlots that of Options without
// MaxSequences. Each slot has buffers, and each size class up to their number has kernels and graphs to prepare.
const (
	maxSlots     = 256
	defaultSlots = 64
)

// ErrComputeCapability means that a GPU is older than the kernels' instructions. It is a
// driver.ErrUnsupported.
var ErrComputeCapability = fmt.Errorf("%w: compute capability too low", driver.ErrUnsupported)

// minCapability is the oldest architecture that the kernels run on: 8.0.
const minCapability = 80

// withDefaults checks the options and fills in the defaults.
func (o Options) withDefaults(cfg *model.Config) (Options, error) {
	o.KV = cmp.Or(o.KV, model.KVF16)
	if o.KV != model.KVF16 && o.KV != model.KVBF16 {
		return o, fmt.Errorf("accel: %w: Options.KV is %v; it can be f16 or bf16", model.ErrUnsupported, o.KV)
	}
	o.MaxSequences = cmp.Or(o.MaxSequences, defaultSlots)
	o.Chunk = min(cmp.Or(o.Chunk, 2048), cfg.Context)
	o.Checkpoint = cmp.Or(o.Checkpoint, 1024)
	for _, f := range []struct {
		name             string
		value, low, high int
	}{
		{"MaxSequences", o.MaxSequences, 1, maxSlots},
		{"KVPages", o.KVPages, 0, 1 << 30},
		{"Chunk", o.Chunk, 1, 1 << 20},
		{"Checkpoint", o.Checkpoint, 1, 1 << 30},
	} {
		if f.value < f.low || f.value > f.high {
			return o, fmt.Errorf("accel: Options.%s is %d; it can be %d to %d", f.name, f.value, f.low, f.high)
		}
	}
	return o, nil
}

// graphs reports whether decode steps run as graphs.
func (o *Options) graphs() bool { return !o.Eager && o.Tap == nil && o.Timer == nil }

// supported returns an error if the engine cannot plan the model for the device. Limits of
// kernels are not here: see plan.Layout.Check.
func supported(m *model.Model, props driver.Properties) error {
	if m == nil {
		return errors.New("accel: no model")
	}
	if have := props.ComputeCapability; have < minCapability {
		return fmt.Errorf("accel: %w: %d.%d, the kernels need %d.%d", ErrComputeCapability, have/10, have%10, minCapability/10, minCapability%10)
	}
	for l := range m.Config.Layers {
		if s := m.Config.LayerShape(l); s.ValueDim != s.HeadDim {
			return fmt.Errorf("accel: %w: head dim %d of values differs from head dim %d of keys", model.ErrUnsupported, s.ValueDim, s.HeadDim)
		}
	}
	if m.Config.ExpertInputs && m.Config.LayerNorm {
		return fmt.Errorf("accel: %w: weights of experts' inputs behind LayerNorm", model.ErrUnsupported)
	}
	check := func(layer int, f quant.Format) error {
		if slices.Contains(product.Formats(), f) {
			return nil
		}
		where := "embedding or output"
		if layer >= 0 {
			where = fmt.Sprintf("layer %d", layer)
		}
		return fmt.Errorf("accel: %w: weights in %v: %s: no kernels for the format", model.ErrUnsupported, f, where)
	}
	w := &m.Weights
	for _, x := range slices.Concat([]model.Matrix{w.Embedding, w.Position, w.InputEmbedding, w.InputProjection, w.Output.W}, w.StreamIn, w.StreamOut) {
		if err := check(-1, x.Format); err != nil && x.Rows > 0 {
			return err
		}
	}
	for i := range w.Layers {
		l := &w.Layers[i]
		if len(l.Experts) > 0 && l.SharedGate.Rows > 0 && l.FFNPostNorm.Weight != nil {
			return fmt.Errorf("accel: %w: layer %d: a gate of the shared expert and a norm after the experts", model.ErrUnsupported, i)
		}
		var list []model.Matrix
		for _, y := range l.Linears() {
			list = append(list, y.W)
		}
		for _, e := range l.Experts {
			list = append(list, e.Gate.W, e.Up.W, e.Down.W)
		}
		for _, x := range list {
			if err := check(i, x.Format); err != nil && x.Rows > 0 {
				return err
			}
		}
	}
	return nil
}
