package accel_test

import (
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
)

// carveoutDevice records the preferred shared-memory carve-outs, in percent.
type carveoutDevice struct {
	driver.Device
	preferred *percentages
}

type carveoutModule struct {
	driver.Module
	preferred *percentages
}

type carveoutFunction struct {
	driver.Function
	preferred *percentages
}

func (d carveoutDevice) Load(text []byte) (driver.Module, error) {
	m, err := d.Device.Load(text)
	return carveoutModule{m, d.preferred}, err
}

func (m carveoutModule) Function(name string) (driver.Function, error) {
	f, err := m.Module.Function(name)
	return carveoutFunction{f, m.preferred}, err
}

func (f carveoutFunction) PreferShared(percent int) { f.preferred.add(percent) }

// percentages is a set that several goroutines may add to, as kernels are loaded in parallel.
type percentages struct {
	mu  sync.Mutex
	set map[int]bool
}

func (p *percentages) add(percent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set[percent] = true
}

// TestSharedMemoryCarveout demands that all kernels prefer the same carve-out if a model has
// only float weights, and none if it has quantized weights.
func TestSharedMemoryCarveout(t *testing.T) {
	quantized, err := model.Open("../golden/quant/q8_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer quantized.Close()
	for _, c := range []struct {
		name  string
		model *model.Model
		want  int // different carve-outs
	}{{"float", tinyModel(t), 1}, {"quantized", quantized, 0}} {
		t.Run(c.name, func(t *testing.T) {
			preferred := &percentages{set: map[int]bool{}}
			e := newEngine(t, c.model, accel.Options{Eager: true}, func(inner driver.Device) driver.Device {
				return carveoutDevice{idleDevice{inner}, preferred}
			})
			if err := e.Prepare(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if len(preferred.set) != c.want {
				t.Errorf("kernels prefer %v percent of shared memory, want %d different values", preferred.set, c.want)
			}
		})
	}
}
