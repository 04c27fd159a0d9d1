// Package kernelbench measures kernels on a device, each beside the limit of the
// device that it runs into: read bandwidth or the rate of the matrix units, both
// measured in the same run.
package kernelbench

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/modules"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Case is a kernel at one shape.
type Case struct {
	Kernel string
	Shape  string
	// Bytes is the fewest that a launch must move through device memory: each
	// input read once, each output written once. FLOP is what it must compute.
	// The one that is not 0 names the limit; with both, FLOP does.
	Bytes, FLOP float64
	// Prepare makes the inputs and gives launches that do the same work on
	// different copies of them, so that no cache serves them.
	Prepare func(r *Rig) ([]ptx.Launch, error)
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
	Kernel  string  `json:"kernel"`
	Shape   string  `json:"shape"`
	Seconds float64 `json:"seconds"` // a launch, median of the repeats
	Least   float64 `json:"least_seconds"`
	Most    float64 `json:"most_seconds"`
	Rate    float64 `json:"rate"` // bytes or FLOP a second
	Unit    string  `json:"unit"` // "B/s" or "FLOP/s"
	Share   float64 `json:"share_of_limit"`
	Err     string  `json:"error,omitempty"`
}

// Report is a whole run.
type Report struct {
	Device  driver.Properties `json:"device"`
	Limits  Limits            `json:"limits"`
	Results []Result          `json:"results"`
}

// Run measures the limits and then every case whose "kernel shape" matches only. A
// case that fails is a result with its error; show, when not nil, sees each result
// as it comes.
func Run(ctx context.Context, dev driver.Device, cases []Case, only *regexp.Regexp, show func(Result)) (Report, error) {
	set := modules.New(dev)
	defer set.Close()
	rep := Report{Device: dev.Properties()}
	var err error
	if rep.Limits, err = measureLimits(dev, set); err != nil {
		return rep, err
	}
	for _, c := range cases {
		if err := ctx.Err(); err != nil {
			return rep, err
		}
		if only != nil && !only.MatchString(c.Kernel+" "+c.Shape) {
			continue
		}
		res := measure(dev, set, c, rep.Limits)
		rep.Results = append(rep.Results, res)
		if show != nil {
			show(res)
		}
		if err := dev.Err(); err != nil {
			return rep, fmt.Errorf("%s %s: %w", c.Kernel, c.Shape, err)
		}
	}
	return rep, nil
}

func measure(dev driver.Device, set *modules.Set, c Case, lim Limits) Result {
	res := Result{Kernel: c.Kernel, Shape: c.Shape, Unit: "B/s"}
	work, limit := c.Bytes, lim.Read()
	if c.FLOP > 0 {
		work, limit, res.Unit = c.FLOP, lim.Matrix, "FLOP/s"
	}
	times, err := timeCase(dev, set, c)
	if err != nil {
		res.Err = err.Error()
		return res
	}
	res.Seconds, res.Least, res.Most = times[len(times)/2], times[0], times[len(times)-1]
	res.Rate = work / res.Seconds
	res.Share = res.Rate / limit
	return res
}

// graphLaunches is how many launches a timed graph holds at least: enough that its
// own start does not count.
const graphLaunches = 20

// repeats is how many graphs are timed; the median is reported.
const repeats = 15

func timeCase(dev driver.Device, set *modules.Set, c Case) ([]float64, error) {
	r, err := newRig(dev, set)
	if err != nil {
		return nil, err
	}
	defer r.close()
	distinct, err := c.Prepare(r)
	if err == nil {
		err = r.err
	}
	if err != nil {
		return nil, err
	}
	var list []driver.Launch
	for len(list) < graphLaunches {
		for _, l := range distinct {
			d, err := set.Launch(l)
			if err != nil {
				return nil, err
			}
			list = append(list, d)
		}
	}
	return r.timeGraph(list)
}

// timeGraph captures the launches, runs the graph again and again, and gives the
// seconds a launch took in each run, in order of size.
func (r *Rig) timeGraph(list []driver.Launch) ([]float64, error) {
	g, err := r.stream.Capture(func() error { return r.stream.Launch(list...) })
	if err != nil {
		return nil, err
	}
	defer g.Close()
	x, err := g.Instantiate()
	if err != nil {
		return nil, err
	}
	defer x.Close()
	const warmUp = 3
	var times []float64
	for i := range warmUp + repeats {
		d, err := r.time(func() error { return x.Launch(r.stream) })
		if err != nil {
			return nil, err
		}
		if i >= warmUp {
			times = append(times, d.Seconds()/float64(len(list)))
		}
	}
	slices.Sort(times)
	return times, nil
}

// time measures what the stream does in work, by events.
func (r *Rig) time(work func() error) (time.Duration, error) {
	if err := r.stream.Record(r.begin); err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	if err := r.stream.Record(r.end); err != nil {
		return 0, err
	}
	if err := r.end.Synchronize(); err != nil {
		return 0, err
	}
	return r.end.Since(r.begin)
}
