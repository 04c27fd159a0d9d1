package cuda

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-go/lockstep/internal/ptxlog"
)

// judge remembers the error of a kernel that the compiler made slow.
func (d *Device) judge(kernel string, r ptxlog.Report) {
	err := r.Check(kernel)
	if err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow[kernel] = fmt.Errorf("cuda: %w", err)
}

// SlowKernels returns an error for each kernel that the driver's compiler made slow, sorted by
// kernel. Such a kernel uses local memory, or the compiler warned about it, for example that it
// serializes wgmma. Its results are right. A kernel is judged when Module.Function returns it. Close
// keeps the errors.
func (d *Device) SlowKernels() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, kernel := range slices.Sorted(maps.Keys(d.slow)) {
		errs = append(errs, d.slow[kernel])
	}
	return errs
}
