package accel_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/faultinject"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/quant"
)

// ledgerDevice is an emulated device that lists what is open.
func ledgerDevice(t *testing.T) *faultinject.Device {
	t.Helper()
	dev, err := emu.Open(emu.Options{SMs: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return faultinject.New(dev)
}

func tinyModel(t testing.TB) *model.Model {
	t.Helper()
	m, err := model.Load(tiny.New("llama", 1).File())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// oldDevice reports another compute capability.
type oldDevice struct {
	driver.Device
	capability int
}

func (d oldDevice) Properties() driver.Properties {
	p := d.Device.Properties()
	p.ComputeCapability = d.capability
	return p
}

func TestNewComputeCapability(t *testing.T) {
	m, dev := tinyModel(t), ledgerDevice(t)
	_, err := accel.New(t.Context(), m, oldDevice{dev, 75}, accel.Options{})
	if !errors.Is(err, accel.ErrComputeCapability) || !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "7.5") || !strings.Contains(err.Error(), "8.0") {
		t.Errorf("sm_75: error %v", err)
	}
	if _, err := accel.PlanMemory(m, oldDevice{dev, 75}.Properties(), 1<<30, accel.Options{}); !errors.Is(err, accel.ErrComputeCapability) {
		t.Errorf("PlanMemory: error %v", err)
	}
	for _, c := range dev.Calls() {
		if c == faultinject.DeviceAlloc || c == faultinject.DeviceAllocPinned {
			t.Errorf("memory was allocated: %v", c)
		}
	}
	if _, err := accel.PlanMemory(m, oldDevice{dev, 80}.Properties(), 1<<30, accel.Options{}); err != nil {
		t.Errorf("sm_80: error %v", err)
	}
}

// TestNewCanceled cancels New before the upload and in the middle of it.
func TestNewCanceled(t *testing.T) {
	m := tinyModel(t)
	for name, after := range map[string]int64{"before": 0, "in the middle": 2000} {
		t.Run(name, func(t *testing.T) {
			dev := ledgerDevice(t)
			ctx, cancel := context.WithCancel(t.Context())
			if after == 0 {
				cancel()
			}
			uploaded := int64(0)
			e, err := accel.New(ctx, m, dev, accel.Options{Progress: func(done, total int64) {
				uploaded = done
				if done >= after {
					cancel()
				}
			}})
			if !errors.Is(err, context.Canceled) || e != nil {
				t.Errorf("error %v", err)
			}
			if after > 0 && uploaded < after {
				t.Errorf("canceled after %d bytes, want at least %d", uploaded, after)
			}
			if left := dev.OpenObjects(); len(left) > 0 {
				t.Errorf("still open: %v", left)
			}
		})
	}
}

// panics runs f and demands that it panics with a value.
func panics(t *testing.T, value any, f func()) {
	t.Helper()
	defer func() {
		if got := recover(); got != value {
			t.Errorf("recovered %v, want %v", got, value)
		}
	}()
	f()
}

// TestProgressPanics demands that New releases the device's objects and the model if
// Options.Progress panics, in the first call and in the last.
func TestProgressPanics(t *testing.T) {
	for name, when := range map[string]func(done, total int64) bool{
		"first": func(done, _ int64) bool { return true },
		"last":  func(done, total int64) bool { return done == total },
	} {
		t.Run(name, func(t *testing.T) {
			m, dev := tinyModel(t), ledgerDevice(t)
			panics(t, name, func() {
				accel.New(t.Context(), m, dev, accel.Options{Progress: func(done, total int64) {
					if when(done, total) {
						panic(name)
					}
				}})
			})
			if left := dev.OpenObjects(); len(left) > 0 {
				t.Errorf("still open: %v", left)
			}
			if err := m.Close(); err != nil {
				t.Errorf("closing the model: %v", err)
			}
		})
	}
}

// TestFileCutShort truncates the model's file while New reads it: by one byte, which then
// reads as zero, and to one page, so that a read behind it faults.
func TestFileCutShort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not truncate a mapped file")
	}
	data := tiny.New("llama", 1).Bytes()
	for name, size := range map[string]int64{"by one byte": int64(len(data) - 1), "to one page": int64(os.Getpagesize())} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
			m, err := model.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			dev := ledgerDevice(t)
			_, err = accel.New(t.Context(), m, dev, accel.Options{Progress: func(int64, int64) {
				if err := os.Truncate(path, size); err != nil {
					t.Error(err)
				}
			}})
			if !errors.Is(err, gguf.ErrTruncated) {
				t.Errorf("error %v, want %v", err, gguf.ErrTruncated)
			}
			if left := dev.OpenObjects(); err != nil && len(left) > 0 {
				t.Errorf("still open: %v", left)
			}
		})
	}
}

// TestModelInUse closes a model while New reads its weights and after it has.
func TestModelInUse(t *testing.T) {
	m, dev := tinyModel(t), ledgerDevice(t)
	tried := false
	e, err := accel.New(t.Context(), m, dev, accel.Options{Progress: func(int64, int64) {
		tried = true
		if err := m.Close(); !errors.Is(err, model.ErrInUse) {
			t.Errorf("closing a model during New: %v, want ErrInUse", err)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := m.Close(); err != nil || !tried {
		t.Errorf("closing a model after New: %v", err)
	}
}

// TestUnsupportedFormat plans models with weights in each format, and in one that does not
// exist. If a format has no kernels, PlanMemory and New return an error and do not panic.
func TestUnsupportedFormat(t *testing.T) {
	dev, m := ledgerDevice(t), narrowModel(t, 2)
	w := &m.Weights
	for _, f := range append(quant.Formats(), quant.Format(99)) {
		for name, matrix := range map[string]*model.Matrix{
			"embedding": &w.Embedding, "output": &w.Output.W, "Q": &w.Layers[1].Q.W, "down": &w.Layers[0].Down.W,
		} {
			was := matrix.Format
			matrix.Format = f
			_, err := accel.PlanMemory(m, dev.Properties(), 1<<40, accel.Options{})
			if err != nil && !errors.Is(err, model.ErrUnsupported) {
				t.Errorf("%s in %v: error %v", name, f, err)
			}
			if !slices.Contains(product.Formats(), f) {
				if err == nil {
					t.Errorf("%s in %v: no error", name, f)
				}
				if _, err := accel.New(t.Context(), m, dev, accel.Options{}); !errors.Is(err, model.ErrUnsupported) {
					t.Errorf("%s in %v: New returns the error %v", name, f, err)
				}
			}
			matrix.Format = was
		}
	}
}

// TestCloseOrder closes sequences, and waits for a step, after their engine is closed.
func TestCloseOrder(t *testing.T) {
	e := idleEngine(t, accel.Options{})
	s := newSequence(t, e)
	if _, err := model.Forward(t.Context(), e, model.Row{Sequence: s, Tokens: make([]int, 64), Prompt: true}); err != nil {
		t.Fatal(err)
	}
	fork, err := s.Fork(60)
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.Step(t.Context(), []model.Row{{Sequence: fork, Tokens: []int{1}, Want: model.WantToken}})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []io.Closer{e, fork, fork, s, s, e} {
		if err := c.Close(); err != nil {
			t.Errorf("Close %d: %v", i, err)
		}
	}
	if results, err := p.Wait(); err != nil || len(results) != 1 {
		t.Errorf("a step that was queued before Close: %v, error %v", results, err)
	}
	if s := e.Stats(); s.Sequences != 0 || s.PagesInUse != 0 {
		t.Errorf("%d sequences are open, %d pages in use", s.Sequences, s.PagesInUse)
	}
	if _, err := s.Fork(0); !errors.Is(err, model.ErrClosed) {
		t.Errorf("a fork of a closed sequence: error %v", err)
	}
	if _, err := e.NewSequence(0); !errors.Is(err, model.ErrClosed) {
		t.Errorf("a sequence of a closed engine: error %v", err)
	}
}

// queriedContext is canceled from the n-th query of Err on.
type queriedContext struct {
	context.Context
	n int
}

func (c *queriedContext) Err() error {
	if c.n--; c.n <= 0 {
		return context.Canceled
	}
	return nil
}

// TestCanceledBetweenLayers cancels a prompt at each query of its context. Step queries it when
// it begins, and before each segment of the chunk: the embedding and each layer.
func TestCanceledBetweenLayers(t *testing.T) {
	e := idleEngine(t, accel.Options{})
	if err := e.Prepare(t.Context(), nil); err != nil { // loading kernels queries the context too
		t.Fatal(err)
	}
	s := newSequence(t, e)
	const queries = 1 + 1 + tiny.Layers
	for n := 1; n <= queries+1; n++ {
		_, err := model.Forward(&queriedContext{t.Context(), n}, e, model.Row{Sequence: s, Tokens: make([]int, 3), Prompt: true, Want: model.WantLogits})
		if canceled := errors.Is(err, context.Canceled); canceled != (n <= queries) {
			t.Errorf("canceled at query %d: error %v", n, err)
		}
		if used := e.Stats().PagesInUse; err != nil && (s.Len() != 0 || used != 0) {
			t.Errorf("canceled at query %d: %d positions in %d pages", n, s.Len(), used)
		}
	}
}

// TestUnsupportedMixture refuses a mixture of experts whose combination no kernel computes.
func TestUnsupportedMixture(t *testing.T) {
	m, err := model.Load(tiny.New("qwen2moe", 1).File())
	if err != nil {
		t.Fatal(err)
	}
	dev := ledgerDevice(t)
	if _, err := accel.PlanMemory(m, dev.Properties(), 1<<40, accel.Options{}); err != nil {
		t.Fatal(err)
	}
	m.Weights.Layers[1].FFNPostNorm = m.Weights.Layers[1].FFNNorm
	_, err = accel.PlanMemory(m, dev.Properties(), 1<<40, accel.Options{})
	if !errors.Is(err, model.ErrUnsupported) || !strings.Contains(err.Error(), "layer 1: a gate of the shared expert") {
		t.Errorf("error %v", err)
	}
}
