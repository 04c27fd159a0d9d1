package accel_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
)

// wishing tells what its functions are asked for.
type wishing struct {
	driver.Device
	shared map[int]bool // percent
}

type wishingModule struct {
	driver.Module
	d wishing
}

type wishingFunction struct {
	driver.Function
	d wishing
}

func (d wishing) Load(text []byte) (driver.Module, error) {
	m, err := d.Device.Load(text)
	return wishingModule{m, d}, err
}

func (m wishingModule) Function(name string) (driver.Function, error) {
	f, err := m.Module.Function(name)
	return wishingFunction{f, m.d}, err
}

func (f wishingFunction) PreferShared(percent int) { f.d.shared[percent] = true }

// TestSharedMemory: the kernels of a model without quantized weights leave room for cache, all
// of them as much; those of others are asked for nothing.
func TestSharedMemory(t *testing.T) {
	quantized, err := model.Open("../golden/quant/q8_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer quantized.Close()
	numbers, err := model.Load(tiny.New("llama", 1).File())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		m    *model.Model
		want int // different wishes
	}{{"numbers", numbers, 1}, {"quantized", quantized, 0}} {
		t.Run(c.name, func(t *testing.T) {
			d := wishing{shared: map[int]bool{}}
			e := idleEngineOf(t, c.m, accel.Options{Eager: true}, func(inner driver.Device) driver.Device {
				d.Device = idle{inner}
				return d
			})
			if err := e.Warm(t.Context(), 4, 1); err != nil {
				t.Fatal(err)
			}
			if len(d.shared) != c.want {
				t.Errorf("kernels were asked for %v percent as shared memory, want %d wishes", d.shared, c.want)
			}
		})
	}
}
