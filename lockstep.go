// Package lockstep runs a GGUF language model on the best device of a machine.
//
//	m, err := lockstep.Open(ctx, "model.gguf", lockstep.Options{})
//	if err != nil {
//		return err
//	}
//	defer m.Close()
//	for token, err := range m.Generate(ctx, "Once upon a time", generate.Params{MaxTokens: 64}) {
//		if err != nil {
//			return err
//		}
//		fmt.Print(token.Text)
//	}
//
// A program that needs only the CPU can use packages model, ref and generate instead; it is
// then smaller and, without cgo, a static file.
package lockstep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/tokenizer"
	"github.com/lockstep-go/lockstep/ref"
)

// Device selects what computes a model.
type Device string

// The devices. Auto is the default: the first GPU if it can run the model, else the CPU.
const (
	Auto     Device = "auto"
	CPU      Device = "cpu" // package ref, in float64
	GPU      Device = "gpu" // package accel, on the first NVIDIA GPU
	Emulator Device = "emu" // package accel, on an emulated GPU: for tests of kernels, slow
)

// OpenDevice opens the GPU or the emulator. The caller closes it. If there is no GPU, the
// error wraps driver.ErrNoDriver or driver.ErrNoDevice.
func OpenDevice(d Device) (driver.Device, error) {
	switch d {
	case GPU:
		dev, err := cuda.Open(0)
		if err != nil {
			return nil, err // not dev: an interface that holds a nil *cuda.Device is not nil
		}
		return dev, nil
	case Emulator:
		// Kernels split their work by the number of SMs, so few SMs are faster to emulate.
		return emu.Open(emu.Options{SMs: 4, Memory: 4 << 30, IgnoreRaces: true})
	}
	return nil, fmt.Errorf("lockstep: no such device: %q, want %q or %q", d, GPU, Emulator)
}

// Options configures Open and New. The zero value selects Auto.
type Options struct {
	Device   Device           // "": Auto
	KV       model.KVFormat   // format of the KV cache; 0: f16 on a GPU, f32 on the CPU. No GPU has f32
	Generate generate.Options // limits of the scheduler behind Generate and Chat

	// Accel configures the engine on a GPU; its field KV is ignored. By default the KV
	// cache takes the free memory of the GPU, up to 16 sequences of the model's context.
	Accel accel.Options

	// OpenDevice, if set, replaces the function OpenDevice, for example to use another GPU.
	// Model.Close closes the device.
	OpenDevice func(Device) (driver.Device, error)
}

// Model is a model with the engine that computes it. It is safe for concurrent use, except
// for Close.
type Model struct {
	backend   backend
	generator *generate.Generator
	file      *model.Model // opened by Open and closed by Close; nil after New
}

// backend is an engine on its device.
type backend struct {
	engine model.Engine
	kind   Device
	device driver.Device // nil: the CPU
	noGPU  error         // why Auto chose the CPU
}

// Open loads a GGUF file, or a split model by its first file, and prepares it for a device; for
// a GPU it uploads the weights. The caller closes the result. Canceling ctx ends the upload.
func Open(ctx context.Context, path string, o Options) (m *Model, err error) {
	file, err := model.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if m == nil { // after an error, or if a function of the options panics
			err = errors.Join(err, file.Close())
		}
	}()
	if m, err = newModel(ctx, file, file, o); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// New is Open for a loaded model. The caller still owns the model, and closes it after the
// result.
//
// With Auto, New takes the CPU if it cannot open a GPU, or if the GPU cannot run the model:
// its memory is too small, its compute capability too low, or a format has no kernels.
// Device returns the reason. New returns other errors of the GPU, so that a fallback never
// hides a defect.
func New(ctx context.Context, m *model.Model, o Options) (*Model, error) {
	return newModel(ctx, m, nil, o)
}

func newModel(ctx context.Context, m, file *model.Model, o Options) (*Model, error) {
	b, err := newBackend(ctx, m, o)
	if err != nil {
		return nil, err
	}
	g, err := generate.New(b.engine, o.Generate)
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return &Model{b, g, file}, nil
}

func newBackend(ctx context.Context, m *model.Model, o Options) (backend, error) {
	open := o.OpenDevice
	if open == nil {
		open = OpenDevice
	}
	switch kind := cmp.Or(o.Device, Auto); kind {
	case CPU:
		return onCPU(m, o, nil)
	case GPU, Emulator:
		dev, err := open(kind)
		if err != nil {
			return backend{}, err
		}
		return onDevice(ctx, m, o, kind, dev)
	case Auto:
		dev, err := open(GPU)
		if err != nil {
			return onCPU(m, o, err)
		}
		b, err := onDevice(ctx, m, o, GPU, dev)
		if errors.Is(err, driver.ErrOutOfMemory) || errors.Is(err, driver.ErrUnsupported) || errors.Is(err, model.ErrUnsupported) {
			return onCPU(m, o, err)
		}
		return b, err
	default:
		return backend{}, fmt.Errorf("lockstep: no such device: %q", kind)
	}
}

func onCPU(m *model.Model, o Options, noGPU error) (backend, error) {
	engine, err := ref.New(m, ref.Options{Numerics: ref.Numerics{KV: o.KV}})
	if err != nil {
		return backend{}, err
	}
	return backend{engine: engine, kind: CPU, noGPU: noGPU}, nil
}

// onDevice makes an engine that owns dev. It closes dev if it fails or panics.
func onDevice(ctx context.Context, m *model.Model, o Options, kind Device, dev driver.Device) (b backend, err error) {
	defer func() {
		if b.engine == nil {
			err = errors.Join(err, dev.Close())
		}
	}()
	o.Accel.KV = o.KV
	engine, err := accel.New(ctx, m, dev, o.Accel)
	if err != nil {
		return backend{}, fmt.Errorf("%s: %w", dev.Properties().Name, err)
	}
	return backend{engine: engine, kind: kind, device: dev}, nil
}

func (b backend) close() error {
	err := b.engine.Close()
	if b.device != nil {
		err = errors.Join(err, b.device.Close())
	}
	return err
}

// Generate continues a text. Breaking out of the loop ends the generation; an error is the
// last element. See generate.Generator.Text.
func (m *Model) Generate(ctx context.Context, prompt string, p generate.Params) iter.Seq2[generate.Token, error] {
	return m.generator.Text(ctx, prompt, p)
}

// Chat renders messages with the chat template of the file and generates the assistant's
// answer. The text of a special token inside a message is ordinary text. Errors of the
// messages and the template are those of tokenizer.Render.
func (m *Model) Chat(ctx context.Context, messages []tokenizer.Message, p generate.Params) iter.Seq2[generate.Token, error] {
	base := m.backend.engine.Model()
	prompt, err := base.Chat(tokenizer.Conversation{Messages: messages, Now: time.Now()}, base.Config.Context)
	if err != nil {
		return func(yield func(generate.Token, error) bool) {
			yield(generate.Token{ID: generate.NoToken}, fmt.Errorf("lockstep: chat: %w", err))
		}
	}
	return m.generator.Tokens(ctx, prompt, p)
}

// Generator returns the generator of Generate and Chat, for example for serve.New. Close closes it.
func (m *Model) Generator() *generate.Generator { return m.generator }

// Engine returns the engine: *ref.Engine on the CPU, else *accel.Engine. Close closes it.
func (m *Model) Engine() model.Engine { return m.backend.engine }

// Device returns what computes: CPU, GPU or Emulator. If Auto chose the CPU, the error is
// the reason why it did not choose the GPU.
func (m *Model) Device() (Device, error) { return m.backend.kind, m.backend.noGPU }

// Close releases the engine, the device, and the file that Open opened. No generation may
// be running.
func (m *Model) Close() error {
	err := errors.Join(m.generator.Close(), m.backend.close())
	if m.file != nil {
		err = errors.Join(err, m.file.Close())
	}
	return err
}
