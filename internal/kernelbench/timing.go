package kernelbench

import (
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/lockstep-go/lockstep/driver"
)

// effort is how long a measurement takes.
type effort struct {
	readBytes    int64 // that the bandwidth limits read: many times any L2
	matrixRounds int   // of the loop that the matrix limit runs
	// A graph of launches takes about graph or more, so that its own start hardly
	// counts, and it is repeated for about total.
	graph, total time.Duration
}

var full = effort{readBytes: 4 << 30, matrixRounds: 20000, graph: time.Millisecond, total: 100 * time.Millisecond}

// A graph has no more launches than graphMost, however short they are. It is timed
// between repeatsLeast and repeatsMost times; the median is reported.
const (
	graphMost    = 512
	repeatsLeast = 5
	repeatsMost  = 15
	warmUp       = 2 // more that are not counted
)

// timeCase gives the seconds a launch of the case took in each repeat, in order of size.
func timeCase(dev driver.Device, lib *library, c Case, e effort) ([]float64, error) {
	r, err := newRig(dev, lib)
	if err != nil {
		return nil, err
	}
	defer r.close()
	distinct, err := r.launches(c, r.distinct(int64(c.Bytes)))
	if err != nil {
		return nil, err
	}
	pass := func() error { return r.stream.Launch(distinct...) }
	if err := pass(); err != nil { // the first loads code and wakes clocks
		return nil, err
	}
	once, err := r.time(pass)
	if err != nil {
		return nil, err
	}
	n := len(distinct)
	passes := max(1, min(int(e.graph/max(once, 1))+1, graphMost/n))
	return r.timeGraph(slices.Repeat(distinct, passes), int(e.total/max(once*time.Duration(passes), 1)))
}

// timeGraph captures the launches, runs the graph about so many times, and gives the
// seconds a launch took in each run, in order of size.
func (r *Rig) timeGraph(list []driver.Launch, repeats int) ([]float64, error) {
	g, err := r.stream.Capture(func() error { return r.stream.Launch(list...) })
	if err != nil {
		return nil, err
	}
	defer g.Close()
	var times []float64
	for i := range warmUp + max(repeatsLeast, min(repeats, repeatsMost)) {
		d, err := r.time(func() error { return g.Launch(r.stream) })
		if err != nil {
			return nil, err
		}
		if d <= 0 {
			return nil, fmt.Errorf("%d launches took %v by the device's clock", len(list), d)
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
