package lockstep_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/internal/faultinject"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

const embedded = "golden/model/lockstep-tiny.gguf"

// opener returns an Options.OpenDevice that opens an emulator, or fails with err. It checks
// at the end of the test that nothing is left on the device.
func opener(t *testing.T, o emu.Options, err error) func(lockstep.Device) (driver.Device, error) {
	return func(lockstep.Device) (driver.Device, error) {
		if err != nil {
			return nil, err
		}
		dev, err := emu.Open(o)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() {
			if live := dev.Live(); live != (emu.Live{}) {
				t.Errorf("left on the device: %+v", live)
			}
		})
		return dev, nil
	}
}

// TestProgressPanics demands that Open closes the device and the file if Options.Progress
// panics.
func TestProgressPanics(t *testing.T) {
	var dev *faultinject.Device
	defer func() {
		if recover() == nil {
			t.Error("the panic was lost")
		}
		if calls := dev.Calls(); calls[len(calls)-1] != faultinject.DeviceClose {
			t.Errorf("the last call is %v, want %v", calls[len(calls)-1], faultinject.DeviceClose)
		}
		if maps, err := os.ReadFile("/proc/self/maps"); err == nil && strings.Contains(string(maps), embedded) {
			t.Error("the file is still mapped")
		}
	}()
	open := opener(t, emu.Options{SMs: 4}, nil)
	lockstep.Open(t.Context(), embedded, lockstep.Options{
		Device: lockstep.GPU,
		Accel:  accel.Options{KVPages: 1, Progress: func(int64, int64) { panic("from a callback") }},
		OpenDevice: func(d lockstep.Device) (driver.Device, error) {
			inner, err := open(d)
			dev = faultinject.New(inner)
			return dev, err
		},
	})
}

func TestAuto(t *testing.T) {
	roomy := emu.Options{SMs: 4, IgnoreRaces: true}
	broken := errors.New("broken")
	for _, tt := range []struct {
		name   string
		device emu.Options
		kv     model.KVFormat
		err    error
		want   lockstep.Device
		reason error // why not the GPU
	}{
		{"GPU", roomy, 0, nil, lockstep.GPU, nil},
		{"no driver", roomy, 0, driver.ErrNoDriver, lockstep.CPU, driver.ErrNoDriver},
		{"broken driver", roomy, 0, broken, lockstep.CPU, broken},
		{"no memory", emu.Options{Memory: 1 << 20}, 0, nil, lockstep.CPU, driver.ErrOutOfMemory},
		{"f32 cache", roomy, model.KVF32, nil, lockstep.CPU, model.ErrUnsupported},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := lockstep.Open(t.Context(), embedded, lockstep.Options{KV: tt.kv, OpenDevice: opener(t, tt.device, tt.err), Accel: accel.Options{KVPages: 1}})
			if err != nil {
				t.Fatal(err)
			}
			if got, reason := m.Device(); got != tt.want || !errors.Is(reason, tt.reason) {
				t.Errorf("%s with reason %v, want %s with %v", got, reason, tt.want, tt.reason)
			}
			if _, ok := m.Engine().(*accel.Engine); ok != (tt.want == lockstep.GPU) {
				t.Errorf("the engine is a %T", m.Engine())
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGPUIsNotReplaced checks that only Auto falls back to the CPU.
func TestGPUIsNotReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		device emu.Options
		kv     model.KVFormat
		err    error
		want   error
	}{
		"no driver": {emu.Options{}, 0, driver.ErrNoDriver, driver.ErrNoDriver},
		"no memory": {emu.Options{Memory: 1 << 20}, 0, nil, driver.ErrOutOfMemory},
		"f32 cache": {emu.Options{}, model.KVF32, nil, model.ErrUnsupported},
	} {
		_, err := lockstep.Open(t.Context(), embedded, lockstep.Options{Device: lockstep.GPU, KV: tt.kv, OpenDevice: opener(t, tt.device, tt.err)})
		if !errors.Is(err, tt.want) || !strings.HasPrefix(err.Error(), embedded+": ") {
			t.Errorf("%s: error %v, want %v", name, err, tt.want)
		}
	}
}

// TestAutoReportsDefects checks that Auto does not fall back to the CPU if a GPU fails.
func TestAutoReportsDefects(t *testing.T) {
	open := opener(t, emu.Options{}, nil)
	_, err := lockstep.Open(t.Context(), embedded, lockstep.Options{OpenDevice: func(d lockstep.Device) (driver.Device, error) {
		dev, err := open(d)
		if err != nil {
			return nil, err
		}
		faulty := faultinject.New(dev)
		faulty.Fail(faultinject.Plan{Call: faultinject.StreamWriteAsync, N: 1})
		return faulty, nil
	}})
	if err == nil || !strings.Contains(err.Error(), "emulated sm_90") {
		t.Errorf("error %v, want that of the device", err)
	}
}

func TestCanceledUpload(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := lockstep.Open(ctx, embedded, lockstep.Options{OpenDevice: opener(t, emu.Options{}, nil)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func TestBadOptions(t *testing.T) {
	for want, o := range map[string]lockstep.Options{
		`no such device: "tpu"`: {Device: "tpu"},
		"bad parameter":         {Device: lockstep.Emulator, Generate: generate.Options{PromptTokens: -1}},
	} {
		if _, err := lockstep.Open(t.Context(), embedded, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := lockstep.Open(t.Context(), "none.gguf", lockstep.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want %v", err, os.ErrNotExist)
	}
	if _, err := lockstep.OpenDevice(lockstep.CPU); err == nil {
		t.Error("the CPU was opened as a device")
	}
}

// withTemplate returns the path of a copy of the embedded model with a chat template.
func withTemplate(t *testing.T, template string) string {
	t.Helper()
	f, err := gguf.Open(embedded)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := gguf.NewWriter()
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		err = errors.Join(err, w.Set(key, v))
	}
	err = errors.Join(err, w.Set("tokenizer.chat_template", template))
	for _, tensor := range f.Tensors() {
		err = errors.Join(err, w.Add(tensor.Info()))
	}
	path := filepath.Join(t.TempDir(), "chat.gguf")
	if err = errors.Join(err, w.WriteFile(path)); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestChat checks that a chat is a generation from the rendered template.
func TestChat(t *testing.T) {
	path := withTemplate(t, `{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}. {% endfor %}assistant:`)
	m, err := lockstep.Open(t.Context(), path, lockstep.Options{Device: lockstep.CPU, Generate: generate.Options{PrefixTokens: 1 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p := generate.Params{MaxTokens: 8}
	var got, want string
	for token, err := range m.Chat(t.Context(), []tokenizer.Message{{Role: "user", Content: "hello"}}, p) {
		if err != nil {
			t.Fatal(err)
		}
		got += fmt.Sprintln(token)
	}
	p.ParseSpecial = true
	for token, err := range m.Generate(t.Context(), "user: hello. assistant:", p) {
		if err != nil {
			t.Fatal(err)
		}
		want += fmt.Sprintln(token)
	}
	if got != want || got == "" {
		t.Errorf("the answer is %q, want %q", got, want)
	}
}

func TestNoChatTemplate(t *testing.T) {
	m, err := lockstep.Open(t.Context(), embedded, lockstep.Options{Device: lockstep.CPU})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	n := 0
	for token, err := range m.Chat(t.Context(), nil, generate.Params{MaxTokens: 1}) {
		if n++; token.ID != generate.NoToken || !errors.Is(err, tokenizer.ErrNoChatTemplate) {
			t.Errorf("token %v, error %v", token, err)
		}
	}
	if n != 1 {
		t.Errorf("%d elements, want the error alone", n)
	}
}

// TestNew checks that the caller's model stays open.
func TestNew(t *testing.T) {
	file, err := model.Open(embedded)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m, err := lockstep.New(t.Context(), file, lockstep.Options{Device: lockstep.CPU})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
