// Package kernelbench measures kernels on a device, each beside the limit of the
// device that it runs into: read bandwidth or the rate of the matrix units, both
// measured in the same run.
package kernelbench

import (
	"context"
	"fmt"
	"regexp"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Case is a kernel at one shape.
type Case struct {
	Spec  ptxgen.Spec
	Shape string
	// Bytes is the fewest that a launch must move through device memory: each
	// input read once, each output written once. FLOP is what it must compute on
	// the matrix units, 0 for kernels that do not use them. The one that takes a
	// perfect kernel longer is the limit.
	Bytes, FLOP float64
	// Launch makes inputs and a launch on them. It is called again for launches on
	// other memory, so that no cache serves them.
	Launch func(r *Rig, k *ptx.Kernel) (ptx.Launch, error)
}

// name is what a choice of cases is matched with.
func (c Case) name() string { return c.Spec.Name() + " " + c.Shape }

// Device says what was measured.
type Device struct {
	Name              string `json:"name"`
	DriverVersion     int    `json:"driver_version"`     // 12040 is CUDA 12.4
	ComputeCapability int    `json:"compute_capability"` // 90 is sm_90
	SMs               int    `json:"sms"`
	L2                int    `json:"l2_bytes"`
	Memory            int64  `json:"memory_bytes"`
}

// DeviceOf describes a device.
func DeviceOf(dev driver.Device) Device {
	p := dev.Properties()
	return Device{p.Name, p.DriverVersion, p.ComputeCapability, p.SMs, p.L2, p.Memory}
}

// Limits are what the device reached in this run.
type Limits struct {
	ReadPlain float64 `json:"read_plain_bytes_per_second"` // 16-byte loads
	ReadBulk  float64 `json:"read_bulk_bytes_per_second"`  // the copy engine; 0 where there is none
	Copy      float64 `json:"copy_bytes_per_second"`       // bytes read and written
	Matrix    float64 `json:"matrix_flop_per_second"`      // bf16 mma.sync in registers
	Launch    float64 `json:"launch_seconds"`              // an empty kernel after another in a graph
}

// Read is the best of the two ways to read.
func (l Limits) Read() float64 { return max(l.ReadPlain, l.ReadBulk) }

// Result is a case's measurement.
type Result struct {
	Kernel  string  `json:"kernel"` // the entry's name
	Shape   string  `json:"shape"`
	Bytes   float64 `json:"bytes"`   // of a launch, see Case
	FLOP    float64 `json:"flop"`    // of a launch, see Case
	Seconds float64 `json:"seconds"` // a launch, median of the repeats
	Least   float64 `json:"least_seconds"`
	Most    float64 `json:"most_seconds"`
	Rate    float64 `json:"rate"`           // bytes or FLOP a second, whichever is the limit
	Unit    string  `json:"unit"`           // "B/s" or "FLOP/s"
	Share   float64 `json:"share_of_limit"` // of Limits.Read or Limits.Matrix
	Err     string  `json:"error,omitempty"`
}

// Report is a whole run. Its JSON is stable: fields keep their names, units and
// meaning, in SI units without prefixes, and Version counts the changes that break
// that. Results have the order of Cases; those of a kernel at a shape are found by
// "kernel" and "shape". A case that failed has "error", and 0 for what was not measured.
type Report struct {
	Version int      `json:"version"`
	Device  Device   `json:"device"`
	Limits  Limits   `json:"limits"`
	Results []Result `json:"results"`
}

// Run measures the limits and then every case whose "kernel shape" matches only. A
// case that fails is a result with its error; show, when not nil, sees each result
// as it comes.
func Run(ctx context.Context, dev driver.Device, cases []Case, only *regexp.Regexp, show func(Result)) (Report, error) {
	return run(ctx, dev, choose(cases, only), full, show)
}

// choose lists the cases that match; all without an expression.
func choose(cases []Case, only *regexp.Regexp) []Case {
	var list []Case
	for _, c := range cases {
		if only == nil || only.MatchString(c.name()) {
			list = append(list, c)
		}
	}
	return list
}

func run(ctx context.Context, dev driver.Device, cases []Case, e effort, show func(Result)) (Report, error) {
	set := kernelcache.New(dev)
	defer set.Close()
	rep := Report{Version: 1, Device: DeviceOf(dev)}
	lib := newLibrary(set)
	if err := lib.load(ctx, cases); err != nil {
		return rep, err
	}
	var err error
	if rep.Limits, err = measureLimits(dev, lib, e); err != nil {
		return rep, err
	}
	for _, c := range cases {
		if err := ctx.Err(); err != nil {
			return rep, err
		}
		res := measure(dev, lib, c, rep.Limits, e)
		rep.Results = append(rep.Results, res)
		if show != nil {
			show(res)
		}
		if err := dev.Err(); err != nil {
			return rep, fmt.Errorf("%s: %w", c.name(), err)
		}
	}
	return rep, nil
}

func measure(dev driver.Device, lib *library, c Case, lim Limits, e effort) Result {
	res := Result{Kernel: c.Spec.Name(), Shape: c.Shape, Bytes: c.Bytes, FLOP: c.FLOP}
	times, err := timeCase(dev, lib, c, e)
	if err != nil {
		res.Err = err.Error()
		return res
	}
	res.Seconds, res.Least, res.Most = median(times), times[0], times[len(times)-1]
	res.judge(lim)
	return res
}

// judge compares the time with what the limits allow.
func (r *Result) judge(lim Limits) {
	work, limit := r.Bytes, lim.Read()
	r.Unit = "B/s"
	if r.FLOP*limit > r.Bytes*lim.Matrix {
		work, limit, r.Unit = r.FLOP, lim.Matrix, "FLOP/s"
	}
	r.Rate = work / r.Seconds
	if limit > 0 {
		r.Share = r.Rate / limit
	}
}
