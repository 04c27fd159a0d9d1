// Package kernelbench measures the time of kernels on a device and compares it with a
// roofline limit: the read bandwidth or the tensor core rate, both measured in the same run.
package kernelbench

import (
	"context"
	"fmt"
	"regexp"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Case is a kernel with one shape.
type Case struct {
	Spec  kernel.Spec
	Shape string
	// Bytes is the least memory traffic of a launch: each input read once, each output
	// written once. FLOP is its work on tensor cores; 0: none. The one that takes longer
	// is the limit.
	Bytes, FLOP float64
	// Launch makes inputs and a launch on them. It is called again for launches on
	// other memory, so that no cache serves them.
	Launch func(r *Runner, k *ptx.Kernel) (ptx.Launch, error)
}

// name returns "kernel shape", which the regular expression of Run matches.
func (c Case) name() string { return c.Spec.Name() + " " + c.Shape }

// Device describes the measured device.
type Device struct {
	Name              string `json:"name"`
	DriverVersion     int    `json:"driver_version"`     // 12040 is CUDA 12.4
	ComputeCapability int    `json:"compute_capability"` // 90 is sm_90
	SMs               int    `json:"sms"`
	L2                int    `json:"l2_bytes"`
	Memory            int64  `json:"memory_bytes"`
}

// DeviceOf returns the description of dev.
func DeviceOf(dev driver.Device) Device {
	p := dev.Properties()
	return Device{p.Name, p.DriverVersion, p.ComputeCapability, p.SMs, p.L2, p.Memory}
}

// Limits are the measured limits of a device.
type Limits struct {
	ReadPlain float64 `json:"read_plain_bytes_per_second"` // 16-byte loads
	ReadBulk  float64 `json:"read_bulk_bytes_per_second"`  // cp.async.bulk; 0 below sm_90
	Copy      float64 `json:"copy_bytes_per_second"`       // bytes read plus bytes written
	MMA       float64 `json:"mma_sync_flop_per_second"`    // bf16 mma.sync on registers
	WGMMA     float64 `json:"wgmma_flop_per_second"`       // f16 wgmma on registers and shared memory; 0: the device has none
	Launch    float64 `json:"launch_seconds"`              // per nearly empty kernel in a graph
}

// Read returns the read bandwidth: the better one of both kinds of loads.
func (l Limits) Read() float64 { return max(l.ReadPlain, l.ReadBulk) }

// Matrix returns the matrix rate: that of the faster tensor core instruction.
func (l Limits) Matrix() float64 { return max(l.MMA, l.WGMMA) }

// Result is the measurement of a case.
type Result struct {
	Kernel  string  `json:"kernel"` // the entry's name
	Shape   string  `json:"shape"`
	Bytes   float64 `json:"bytes"`   // per launch, see Case
	FLOP    float64 `json:"flop"`    // per launch, see Case
	Seconds float64 `json:"seconds"` // per launch, median of the repeats
	Least   float64 `json:"least_seconds"`
	Most    float64 `json:"most_seconds"`
	Rate    float64 `json:"rate"`           // bytes/s or FLOP/s, whichever is the limit
	Unit    string  `json:"unit"`           // "B/s" or "FLOP/s"
	Share   float64 `json:"share_of_limit"` // of Limits.Read or Limits.Matrix
	Err     string  `json:"error,omitempty"`
}

// Report is a whole run. Its JSON is stable: fields keep their names, meaning and SI units,
// and Version counts incompatible changes. "kernel" and "shape" identify a result. A case
// that failed has "error", and 0 for what was not measured.
type Report struct {
	Benchmark string   `json:"benchmark"` // the constant Benchmark
	Version   int      `json:"version"`
	Device    Device   `json:"device"`
	Limits    Limits   `json:"limits"`
	Results   []Result `json:"results"`
}

// Benchmark and Version tell that JSON is that of a Report, and how to read it.
const (
	Benchmark = "kernels"
	Version   = 2
)

// Ratios returns the time of each case in an earlier report divided by its time now; 0 if one of
// them was not measured.
func (r Report) Ratios(earlier Report) []float64 {
	type key struct{ kernel, shape string }
	before := map[key]float64{}
	for _, res := range earlier.Results {
		before[key{res.Kernel, res.Shape}] = res.Seconds
	}
	ratios := make([]float64, len(r.Results))
	for i, res := range r.Results {
		if res.Seconds > 0 {
			ratios[i] = before[key{res.Kernel, res.Shape}] / res.Seconds
		}
	}
	return ratios
}

// Run measures the limits and then every case whose "kernel shape" matches pattern; nil
// matches all. A case that fails has its error in its result. show, if not nil, receives
// each result at once.
func Run(ctx context.Context, dev driver.Device, cases []Case, pattern *regexp.Regexp, show func(Result)) (Report, error) {
	return run(ctx, dev, choose(cases, pattern), full, show)
}

// choose returns the cases whose name matches pattern; nil matches all.
func choose(cases []Case, pattern *regexp.Regexp) []Case {
	var list []Case
	for _, c := range cases {
		if pattern == nil || pattern.MatchString(c.name()) {
			list = append(list, c)
		}
	}
	return list
}

func run(ctx context.Context, dev driver.Device, cases []Case, e effort, show func(Result)) (Report, error) {
	set := kernelcache.New(dev)
	defer set.Close()
	rep := Report{Benchmark: Benchmark, Version: Version, Device: DeviceOf(dev)}
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

// judge sets Rate, Unit and Share.
func (r *Result) judge(lim Limits) {
	work, limit := r.Bytes, lim.Read()
	r.Unit = "B/s"
	if r.FLOP*limit > r.Bytes*lim.Matrix() {
		work, limit, r.Unit = r.FLOP, lim.Matrix(), "FLOP/s"
	}
	r.Rate = work / r.Seconds
	if limit > 0 {
		r.Share = r.Rate / limit
	}
}
