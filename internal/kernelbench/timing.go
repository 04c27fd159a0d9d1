package kernelbench

import (
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/lockstep-go/lockstep/driver"
)

// effort controls how long a measurement takes.
type effort struct {
	readBytes        int64         // read by the bandwidth kernels, many times the L2 cache
	matrixIterations int           // iterations of the tensor core kernel
	graph            time.Duration // minimum run time of a graph, so that starting it takes negligible time
	total            time.Duration // approximate time of all repeats of a graph
}

var full = effort{readBytes: 4 << 30, matrixIterations: 20000, graph: time.Millisecond, total: 100 * time.Millisecond}

const (
	maxGraphLaunches = 512
	minRepeats       = 5
	maxRepeats       = 15
	warmUp           = 2 // repeats that do not count
)

// timeCase returns the sorted times of the repeats, in seconds per launch.
func timeCase(dev driver.Device, lib *library, c Case, e effort) ([]float64, error) {
	r, err := newRunner(dev, lib)
	if err != nil {
		return nil, err
	}
	defer r.close()
	distinct, err := r.launches(c, r.distinct(int64(c.Bytes)))
	if err != nil {
		return nil, err
	}
	launchAll := func() error { return r.stream.Launch(distinct...) }
	if err := launchAll(); err != nil { // warms up: loads code and raises the clocks
		return nil, err
	}
	once, err := r.time(launchAll)
	if err != nil {
		return nil, err
	}
	n := len(distinct)
	perGraph := max(1, min(int(e.graph/max(once, 1))+1, maxGraphLaunches/n)) // how often a graph launches all
	return r.timeGraph(slices.Repeat(distinct, perGraph), int(e.total/max(once*time.Duration(perGraph), 1)))
}

// timeGraph captures the launches in a graph and runs it repeats times, within minRepeats
// and maxRepeats. It returns the sorted times in seconds per launch.
func (r *Runner) timeGraph(list []driver.Launch, repeats int) ([]float64, error) {
	g, err := r.stream.Capture(func() error { return r.stream.Launch(list...) })
	if err != nil {
		return nil, err
	}
	defer g.Close()
	var times []float64
	for i := range warmUp + max(minRepeats, min(repeats, maxRepeats)) {
		d, err := r.time(func() error { return g.Launch(r.stream) })
		if err != nil {
			return nil, err
		}
		if d <= 0 {
			return nil, fmt.Errorf("%d launches: the device measured %v", len(list), d)
		}
		if i >= warmUp {
			times = append(times, d.Seconds()/float64(len(list)))
		}
	}
	slices.Sort(times)
	return times, nil
}

// median returns the median of sorted values, the lower one of an even number.
func median(sorted []float64) float64 { return stat.Quantile(0.5, stat.Empirical, sorted, nil) }

// time returns the device time of the operations that work queues, between two events.
func (r *Runner) time(work func() error) (time.Duration, error) {
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
