package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/internal/kernelbench"
	"github.com/lockstep-go/lockstep/internal/modelbench"
	"github.com/lockstep-go/lockstep/internal/nvml"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/quant"
	"github.com/lockstep-go/lockstep/ref"
)

// benchTarget are the flags of the model and the device to measure.
type benchTarget struct {
	modelFlag
	Preset string `help:"Instead of --model: a model of this shape with random weights, in a temporary file: ${presets}." placeholder:"P"`
	Quant  string `help:"With --preset: block format of the weights: ${formats}." placeholder:"T"`
	Layers int    `help:"With --preset: number of layers, instead of the model's own." placeholder:"N"`

	Device lockstep.Device `enum:"gpu,emu,cpu" default:"gpu" help:"Device: gpu, an NVIDIA GPU; cpu; emu, an emulated GPU, whose speed means nothing (${default})." placeholder:"gpu|emu|cpu"`
	KV     model.KVFormat  `name:"kv" help:"Format of the KV cache: f32 on the CPU alone (default: f32 on the CPU, f16 on a GPU)." placeholder:"f16|bf16|f32"`
}

type benchModelCmd struct {
	benchTarget

	Depths      []int         `default:"0,2048,8192" help:"Decode one sequence after N cached positions (${default})." placeholder:"N,…"`
	Prompts     []int         `default:"512,2048,8192" help:"Prefill prompts of N tokens (${default})." placeholder:"N,…"`
	Batches     []int         `default:"4,16,64" help:"Decode N sequences together, for each of --batch-depths (${default})." placeholder:"N,…"`
	BatchDepths []int         `default:"0,2048" help:"Cached positions of each sequence of --batches (${default})." placeholder:"N,…"`
	First       int           `default:"0" help:"Before all else, time the first tokens of a prompt of N tokens, which wait for kernels; 0: do not (${default})." placeholder:"N"`
	Repeats     int           `default:"5" help:"Maximum number of repeats (${default})." placeholder:"N"`
	Steps       int           `default:"0" help:"Decoding steps per repeat; 0: as many as --budget allows, up to 128 (${default})." placeholder:"N"`
	Budget      time.Duration `default:"4s" help:"Approximate time of all repeats of one case; a case whose preparation takes ten times as long is skipped (${default})." placeholder:"T"`

	againstFlag
	JSON outPath `name:"json" help:"Also write the results as JSON." placeholder:"F"`
	Plot outPath `help:"Draw a roofline and the shares of the limits as SVG." placeholder:"F.svg"`
}

func (c *benchModelCmd) Help() string {
	return "Each speed is the median over the repeats after a warm-up. On a GPU it is compared with a limit measured in the same run: " +
		"the time to read the weights that a pass uses and the cached keys and values once per pass, or the time of two FLOP per matrix parameter and token " +
		"at the matrix rate (the better of mma.sync and wgmma), whichever is longer. An empty list measures nothing: --batches=."
}

func (c *benchModelCmd) Run(e *env) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := e.checkOutputs(c.outputs(), c.Model.file, c.Against); err != nil {
		return err
	}
	earlier, err := readEarlier[modelbench.Report](c.againstFlag, modelbench.Benchmark, modelbench.Version)
	if err != nil {
		return err
	}
	m, err := c.openTarget(e)
	if err != nil {
		return err
	}
	defer m.close()
	if now := m.describe(); earlier != nil && earlier.report.Model != now {
		return earlier.refuse("results of %s; the model here is %s",
			printable(earlier.report.Model.String()), printable(now.String()))
	}
	b, err := c.newBench(e, m)
	if err != nil {
		return fmt.Errorf("--device %s: %s: %w", c.Device, m.name, err)
	}
	defer b.close()
	return c.measure(e, b, earlier)
}

// check validates the flags before anything takes time.
func (c *benchModelCmd) check() error {
	if err := c.checkModel(); err != nil {
		return err
	}
	switch {
	case c.First+len(c.Depths)+len(c.Prompts)+len(c.Batches)*len(c.BatchDepths) == 0:
		return usagef("--first, --depths, --prompts, --batches: nothing to measure")
	case c.Budget <= 0:
		return usagef("--budget: %v, want more than 0", c.Budget)
	}
	for _, f := range []struct {
		flag  string
		list  []int
		least int
	}{
		{"--depths", c.Depths, 0}, {"--prompts", c.Prompts, 1}, {"--batches", c.Batches, 1}, {"--batch-depths", c.BatchDepths, 0},
		{"--first", []int{c.First}, 0}, {"--repeats", []int{c.Repeats}, 1}, {"--steps", []int{c.Steps}, 0},
	} {
		for _, n := range f.list {
			if n < f.least {
				return usagef("%s: %d, want %d or more", f.flag, n, f.least)
			}
		}
	}
	return nil
}

// outputs returns the JSON file and the chart.
func (c *benchModelCmd) outputs() []output {
	return []output{{flag: "--json", file: c.JSON}, {flag: "--plot", file: c.Plot}}
}

// checkModel validates the flags that describe the model and its cache.
func (c *benchTarget) checkModel() error {
	if err := checkKV(c.Device, c.KV); err != nil {
		return err
	}
	switch {
	case c.Preset != "" && c.Model.file != "":
		return usagef("--preset: excludes --model")
	case c.Preset == "" && c.Quant != "":
		return usagef("--quant: needs --preset")
	case c.Preset == "" && c.Layers != 0:
		return usagef("--layers: needs --preset")
	case c.Preset == "":
		return nil
	}
	_, err := c.synth().plan()
	return err
}

// benchModel is the model to measure, and the device to measure it on.
type benchModel struct {
	*model.Model
	device driver.Device // nil: the CPU
	name   string        // for messages
	title  string        // for the report
	quant  string
	temp   string // file of a preset; "": none
}

func (m *benchModel) describe() modelbench.Model {
	return modelbench.Describe(m.Model, m.title, m.quant)
}

func (m *benchModel) close() {
	m.Model.Close()
	os.Remove(m.temp) // on systems that remove no open file
	if m.device != nil {
		m.device.Close()
	}
}

// openTarget opens the device of --device and the model.
func (c *benchTarget) openTarget(e *env) (*benchModel, error) {
	var dev driver.Device
	if c.Device != lockstep.CPU { // first, because making the model of a preset takes long
		var err error
		if dev, err = e.openFlag(c.Device); err != nil {
			return nil, err
		}
	}
	m, err := c.load(e)
	if err != nil {
		if dev != nil {
			dev.Close()
		}
		return nil, err
	}
	m.device = dev
	return m, nil
}

// load opens the model of --model or makes that of --preset.
func (c *benchTarget) load(e *env) (*benchModel, error) {
	if c.Preset != "" {
		return c.makePreset(e)
	}
	m, err := c.open()
	if err != nil {
		return nil, err
	}
	title := m.Config.Name
	if title == "" {
		title = filepath.Base(c.name())
	}
	return &benchModel{Model: m, name: c.name(), title: title, quant: formatOf(m.File)}, nil
}

// synth returns the command that makes the model of --preset.
func (c *benchTarget) synth() *synthCmd {
	return &synthCmd{Preset: c.Preset, Quant: c.Quant, Layers: c.Layers, Seed: 1}
}

// makePreset makes the model of --preset in a temporary file. It removes the file once it is
// open, so that nothing is left however the process ends.
func (c *benchTarget) makePreset(e *env) (*benchModel, error) {
	temp := filepath.Join(os.TempDir(), fmt.Sprintf("lockstep-bench-%016x.gguf", rand.Uint64()))
	defer os.Remove(temp)
	s := c.synth()
	s.Out = outPath(temp)
	toStderr := *e
	toStderr.out = e.errw
	if err := s.Run(&toStderr); err != nil {
		return nil, fmt.Errorf("--preset: %w", err)
	}
	m, err := model.Open(temp)
	if err != nil {
		return nil, err
	}
	return &benchModel{Model: m, name: "--preset " + c.Preset, title: m.Config.Name, quant: c.Quant, temp: temp}, nil
}

// bench is an engine to measure, with the options and the header of the report.
type bench struct {
	engine  model.Engine
	meter   meter // nil: energy is unknown
	options modelbench.Options
	report  modelbench.Report
}

func (b *bench) close() {
	b.engine.Close()
	if b.meter != nil {
		b.meter.Close()
	}
}

// newBench makes the engine.
func (c *benchModelCmd) newBench(e *env, m *benchModel) (*bench, error) {
	o := modelbench.Options{
		Depths: c.Depths, Prompts: c.Prompts, Batches: c.Batches, BatchDepths: c.BatchDepths,
		Repeats: c.Repeats, Steps: c.Steps, Budget: c.Budget,
	}
	r := modelbench.Report{
		Benchmark: modelbench.Benchmark, Version: modelbench.Version, Date: time.Now().UTC().Format(time.RFC3339), Model: m.describe(),
	}
	if m.device == nil {
		return c.onCPU(m, o, r)
	}
	return c.onDevice(e, m, o, r)
}

func (c *benchModelCmd) onCPU(m *benchModel, o modelbench.Options, r modelbench.Report) (*bench, error) {
	engine, err := ref.New(m.Model, ref.Options{Numerics: ref.Numerics{KV: c.KV}})
	if err != nil {
		return nil, err
	}
	o.KV = c.KV.Format(quant.F32)
	r.Engine, r.KV = "ref", o.KV.String()
	r.Device.Name = fmt.Sprintf("CPU, %s, %d threads", runtime.GOARCH, runtime.GOMAXPROCS(0))
	return &bench{engine: engine, options: o, report: r}, nil
}

// maxSequences is the largest batch of an engine.
const maxSequences = 256

// engineFor returns options of an engine that steps as many sequences together as the largest batch has, as far as an engine
// can.
func engineFor(batches []int, kv model.KVFormat) accel.Options {
	o := accel.Options{KV: kv}
	if len(batches) > 0 {
		o.MaxSequences = min(maxSequences, max(64, slices.Max(batches)))
	}
	return o
}

// onDevice measures the limits of a GPU and then uploads the model. The KV cache gets as
// many pages as the cases need and the memory allows.
func (c *benchModelCmd) onDevice(e *env, m *benchModel, o modelbench.Options, r modelbench.Report) (*bench, error) {
	dev := m.device
	ao := engineFor(c.Batches, c.KV)
	free, _, err := dev.Memory()
	if err != nil {
		return nil, err
	}
	plan, err := accel.PlanMemory(m.Model, dev.Properties(), free, ao)
	if err != nil {
		return nil, err
	}
	ao.KVPages = max(1, min(plan.Pages, max(o.Pages(m.Config.Context, attention.PageTokens), c.First/attention.PageTokens+1)))
	o.KV = c.KV.Format(quant.F16)
	r.Engine, r.KV, r.Device = "accel", o.KV.String(), kernelbench.DeviceOf(dev)
	var energy meter
	if c.Device == lockstep.GPU {
		e.note("measuring the limits of %s", dev.Properties().Name)
		limits, err := kernelbench.MeasureLimits(dev)
		if err != nil {
			return nil, fmt.Errorf("limits: %w", err)
		}
		o.Limits, r.Limits = &limits, &limits
		energy, r.Energy = e.startMeter(dev)
	}
	progress, end := e.uploadProgress()
	ao.Progress = progress
	engine, err := accel.New(e.ctx, m.Model, dev, ao)
	end()
	if err != nil {
		if energy != nil {
			energy.Close()
		}
		return nil, err
	}
	useMeter(&o, energy)
	o.Sequences, o.Counts = ao.MaxSequences, func() modelbench.Counts { return countsOf(engine) }
	o.Cache = modelbench.Cache{Pages: ao.KVPages, PageTokens: attention.PageTokens}
	return &bench{engine, energy, o, r}, nil
}

func countsOf(engine *accel.Engine) modelbench.Counts {
	s := engine.Stats()
	return modelbench.Counts{
		Steps: s.DecodeSteps, StepTokens: s.DecodeTokens, Chunks: s.Chunks,
		AsyncSteps: s.AsyncSteps, Captures: s.Captures,
	}
}

// meter is the energy counter of a GPU.
type meter interface {
	modelbench.Meter
	Condition() nvml.Condition
	Close() error
}

// openMeter opens the energy counter of a GPU. Tests replace it.
var openMeter = func(dev driver.Device) (meter, error) {
	gpu, ok := dev.(*cuda.Device)
	if !ok {
		return nil, fmt.Errorf("%w: %s does not count energy", driver.ErrUnsupported, dev.Properties().Name)
	}
	m, err := gpu.Meter()
	if err != nil {
		return nil, err // and not a nil *nvml.Meter in a non-nil interface
	}
	return m, nil
}

// startMeter opens the energy counter. If there is none, it prints why, and the benchmark
// runs without energy.
func (e *env) startMeter(dev driver.Device) (meter, *modelbench.Energy) {
	m, err := openMeter(dev)
	if err != nil {
		e.note("energy is unknown: %s%s", oneLine(err), e.hint(err))
		e.noteTried(err)
		return nil, &modelbench.Energy{Unknown: err.Error()}
	}
	return m, modelbench.EnergyBy(m)
}

// useMeter sets the options that a meter provides; m may be nil.
func useMeter(o *modelbench.Options, m meter) {
	if m != nil {
		o.Meter, o.Condition = m, func() *modelbench.Condition { return conditionOf(m) }
	}
}

// conditionOf returns the clocks and sensors of a GPU, or nil if it reports none.
func conditionOf(m meter) *modelbench.Condition {
	c := modelbench.Condition(m.Condition())
	if reflect.ValueOf(c).IsZero() {
		return nil
	}
	return &c
}

// measure runs the cases. It prints the results even if not all cases ran, but an interrupt
// leaves no files.
func (c *benchModelCmd) measure(e *env, b *bench, earlier *earlierRun[modelbench.Report]) error {
	o, rep := b.options, b.report
	o.Show = func(r modelbench.Result) { e.note("%s", resultLine(r)) }
	err := c.measureStart(e, b.engine, &rep)
	if err != nil {
		return err
	}
	rep.Results, err = modelbench.Run(e.ctx, b.engine, o)
	if eng, ok := b.engine.(*accel.Engine); ok {
		if s := eng.Stats(); s.CaptureFailures > 0 {
			e.note("%d passes ran without graphs: %s", s.CaptureFailures, oneLine(errors.Join(s.CaptureError)))
		}
	}
	if len(rep.Results) == 0 && rep.Start == nil {
		return err
	}
	err = errors.Join(err, e.printModelBench(rep, earlier))
	if e.ctx.Err() != nil {
		return err // without files: cases are missing
	}
	return errors.Join(err, c.write(rep), firstFailure(rep.Results))
}

// measureStart measures --first.
func (c *benchModelCmd) measureStart(e *env, engine model.Engine, rep *modelbench.Report) error {
	if c.First == 0 {
		return nil
	}
	s, err := modelbench.MeasureStart(e.ctx, engine, c.First)
	if err != nil {
		return fmt.Errorf("--first: %w", err)
	}
	rep.Start = &s
	e.note("%s", startLine(s))
	return nil
}

func (c *benchModelCmd) write(rep modelbench.Report) error {
	out := c.outputs()
	return errors.Join(out[0].writeJSON(rep), out[1].write(rep.Plot))
}

// firstFailure returns the error of the first case that failed.
func firstFailure(list []modelbench.Result) error {
	i := slices.IndexFunc(list, func(r modelbench.Result) bool { return r.Err != "" })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("%v: %s", list[i].Case, list[i].Err)
}
