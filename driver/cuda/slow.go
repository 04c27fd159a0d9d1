package cuda

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-go/lockstep/internal/ptxlog"
)

// parseLog returns what the compiler's log says about each kernel. Figures that the log lacks are 0:
// Function reads the local memory itself.
func parseLog(ptx []byte, log string) map[string]ptxlog.Report {
	reports, _ := ptxlog.Parse([]byte(log), ptxlog.Entries(ptx))
	return reports
}

// slow reports whether one of the kernels is slow.
func slow(reports map[string]ptxlog.Report) bool {
	for kernel, r := range reports {
		if r.Check(kernel) != nil {
			return true
		}
	}
	return false
}

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
// serializes wgmma. Its results are right. A kernel is judged when Module.Function returns it. The
// compiler does not warn about a kernel whose machine code is in the driver's own cache already. Close keeps the errors.
func (d *Device) SlowKernels() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, kernel := range slices.Sorted(maps.Keys(d.slow)) {
		errs = append(errs, d.slow[kernel])
	}
	return errs
}
