package main

import (
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
	"github.com/lockstep-go/lockstep/ref"
)

type planCmd struct {
	modelFlag
	deviceFlag
	Sequences int  `default:"1" help:"Sequences that decode together, at most 256 (${default})." placeholder:"N"`
	Positions int  `default:"0" help:"Positions per sequence; 0: the context of the model (${default})." placeholder:"N"`
	Chunk     int  `default:"0" help:"Prompt tokens per forward pass; 0: 2048 or the context, whichever is less (${default})." placeholder:"N"`
	Launches  bool `help:"List the kernel launches of a decoding step and of a prompt chunk."`
}

func (c *planCmd) Help() string {
	return "Allocates nothing. For a GPU it opens the device to read its properties and its free memory."
}

func (c *planCmd) Run(e *env) error {
	if err := c.check(); err != nil {
		return err
	}
	m, err := c.open()
	if err != nil {
		return err
	}
	defer m.Close()
	if limit := m.Config.Context; c.Positions > limit {
		return fmt.Errorf("--positions: %s: %w", c.name(), model.CheckCapacity(c.Positions, limit))
	}
	if c.Positions == 0 {
		c.Positions = m.Config.Context
	}
	switch c.Device {
	case lockstep.CPU:
		return c.onCPU(e, m)
	case lockstep.Auto:
		return c.auto(e, m)
	}
	dev, err := e.openFlag(c.Device)
	if err != nil {
		return err
	}
	defer dev.Close()
	if err := c.onDevice(e, m, dev); err != nil {
		return fmt.Errorf("--device %s: %s: %w", c.Device, c.name(), err)
	}
	return nil
}

func (c *planCmd) check() error {
	switch {
	case c.Sequences < 1 || c.Sequences > maxSequences:
		return usagef("--sequences: %d, want 1 to %d", c.Sequences, maxSequences)
	case c.Positions < 0:
		return usagef("--positions: %d, want 0 or more", c.Positions)
	case c.Chunk < 0:
		return usagef("--chunk: %d, want 0 or more", c.Chunk)
	case c.Launches && c.Device == lockstep.CPU:
		return usagef("--launches: --device cpu has none")
	}
	return checkKV(c.Device, c.KV)
}

// auto plans for the device that auto selects.
func (c *planCmd) auto(e *env, m *model.Model) error {
	dev, err := openDevice(lockstep.GPU)
	if err == nil {
		defer dev.Close()
		if err = c.onDevice(e, m, dev); err == nil {
			return nil
		}
	}
	why := oneLine(err)
	if errors.Is(err, driver.ErrNoDriver) {
		why = "no GPU driver" // without the list of libraries
	}
	if err := e.stdout("auto selects the CPU: %s\n\n", why); err != nil {
		return err
	}
	return c.onCPU(e, m)
}

// onCPU prints an estimate, even if the reference refuses the model: the weights, as inspect
// counts them, and the KV cache.
func (c *planCmd) onCPU(e *env, m *model.Model) error {
	format := c.KV.Format(quant.F32)
	cache := kvValues(m.Config, c.Positions) * int64(c.Sequences) * int64(format.BlockBytes())
	weights := inspect(c.name(), m.File).Memory.Weights
	w := tabwriter.NewWriter(e, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "weights\t%s\t  mapped from the file\n", size(weights))
	fmt.Fprintf(w, "KV cache\t%s\t  %d × %d positions, %v\n", size(cache), c.Sequences, c.Positions, format)
	fmt.Fprintf(w, "total\t%s\t  without workspace\n", size(weights+cache))
	if err := errors.Join(e.stdout("cpu\n"), w.Flush()); err != nil {
		return err
	}
	if _, err := ref.New(m, ref.Options{Numerics: ref.Numerics{KV: c.KV}}); err != nil {
		return fmt.Errorf("--device cpu: %s: %w", c.name(), err)
	}
	return nil
}

// kvValues returns the number of values in a KV cache of the given positions.
func kvValues(c model.Config, positions int) int64 {
	return int64(c.CacheWidth()) * int64(positions)
}

// onDevice prints the plan, even if the model does not fit.
func (c *planCmd) onDevice(e *env, m *model.Model, dev driver.Device) error {
	props := dev.Properties()
	free, _, err := dev.Memory()
	if err != nil {
		return err
	}
	o := c.accelOptions(c.Positions)
	o.MaxSequences, o.KVPages, o.Chunk = c.Sequences, o.KVPages*c.Sequences, c.Chunk
	p, tooLarge := accel.PlanMemory(m, props, free, o)
	if tooLarge != nil && !errors.Is(tooLarge, driver.ErrOutOfMemory) {
		return tooLarge
	}
	if err := e.stdout("%s, compute capability %d.%d, %d SMs\n%v", props.Name, props.ComputeCapability/10, props.ComputeCapability%10, props.SMs, p); err != nil {
		return err
	}
	if tooLarge != nil || !c.Launches {
		return tooLarge
	}
	step, err := accel.LaunchesFor(m, props, o, c.Sequences, c.Positions, false)
	if err != nil {
		return err
	}
	if err := e.printLaunches(fmt.Sprintf("decoding step of %d sequences", c.Sequences), step); err != nil {
		return err
	}
	tokens := min(p.Chunk, c.Positions)
	chunk, err := accel.LaunchesFor(m, props, o, tokens, c.Positions, true)
	if err != nil {
		return err
	}
	return e.printLaunches(fmt.Sprintf("prompt chunk of %d tokens", tokens), chunk)
}

// printLaunches prints the launches of a forward pass, with equal layers in one row.
func (e *env) printLaunches(title string, list []accel.Launch) error {
	if err := e.stdout("\n%s: %d launches\n", title, len(list)); err != nil {
		return err
	}
	w := tabwriter.NewWriter(e, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "layers\toperation\tkernel\tCTAs\tthreads\tshared")
	for _, r := range layerRanges(list) {
		for _, s := range r.launches {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d × %d × %d\t%d\t%d\n", r, s.Op, s.Kernel, s.Grid[0], s.Grid[1], s.Grid[2], s.Block[0], s.Shared)
		}
	}
	return w.Flush()
}

// layerRange is a range of layers with equal launches.
type layerRange struct {
	first, last int // -1: outside of the layers
	launches    []accel.Launch
}

func (r layerRange) String() string {
	switch {
	case r.first < 0:
		return "-"
	case r.first == r.last:
		return fmt.Sprint(r.first)
	}
	return fmt.Sprintf("%d to %d", r.first, r.last)
}

// layerRanges merges neighboring layers whose launches differ only in the layer.
func layerRanges(list []accel.Launch) (ranges []layerRange) {
	equal := func(a, b accel.Launch) bool { a.Layer = b.Layer; return a == b }
	for len(list) > 0 {
		layer, n := list[0].Layer, 1
		for n < len(list) && list[n].Layer == layer {
			n++
		}
		if last := len(ranges) - 1; layer >= 0 && last >= 0 && ranges[last].last >= 0 && slices.EqualFunc(ranges[last].launches, list[:n], equal) {
			ranges[last].last = layer
		} else {
			ranges = append(ranges, layerRange{layer, layer, list[:n]})
		}
		list = list[n:]
	}
	return ranges
}
