package accel_test

import (
	"errors"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
)

// TestPlanReserve demands that a cache that takes all memory, and a cache of given size, leave
// the reserve to the driver.
func TestPlanReserve(t *testing.T) {
	m, free := tinyModel(t), int64(256<<20)
	dev, err := emu.Open(emu.Options{SMs: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	m.Config.Context = 1 << 20 // so that memory bounds the cache
	p, err := accel.PlanFor(m, dev.Properties(), free, accel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	unused := p.Free - p.Need()
	if p.Reserve < free/64 || unused < p.Reserve {
		t.Errorf("the plan leaves %d of %d bytes free, and reserves %d", unused, p.Free, p.Reserve)
	}
	const rounding = 16 << 20 // allocations are rounded up to pages of the GPU
	if unused > p.Reserve+rounding {
		t.Errorf("the plan leaves %d of %d bytes free, but reserves only %d", unused, p.Free, p.Reserve)
	}
	more := p.Pages + int((unused-p.Reserve/2)/p.PageBytes)
	if _, err := accel.PlanFor(m, dev.Properties(), free, accel.Options{KVPages: more}); !errors.Is(err, driver.ErrOutOfMemory) {
		t.Errorf("%d pages, which take half of the reserve: error %v, want %v", more, err, driver.ErrOutOfMemory)
	}
}
