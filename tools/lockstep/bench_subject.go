package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelbench"
	"github.com/lockstep-go/lockstep/internal/modelbench"
	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
	"github.com/lockstep-go/lockstep/ref"
)

// benchModel is the model to measure with.
type benchModel struct {
	*model.Model
	name  string // what messages call it
	title string
	quant string
	dir   string // of its file, if it is a temporary one
}

func (m *benchModel) close() {
	if m.Model != nil {
		m.Model.Close() // before its file goes
	}
	if m.dir != "" {
		os.RemoveAll(m.dir)
	}
}

// load opens the model, or makes it.
func (c *benchModelCmd) load(e *env) (*benchModel, error) {
	if c.Preset != "" {
		return c.synthesise(e)
	}
	loaded, err := c.open()
	if err != nil {
		return nil, err
	}
	m := &benchModel{Model: loaded, name: c.name(), title: loaded.Config.Name, quant: quantOf(loaded)}
	if m.title == "" {
		m.title = filepath.Base(m.name)
	}
	return m, nil
}

// synth is the command that makes the model of a preset.
func (c *benchModelCmd) synth() *synthCmd {
	return &synthCmd{Preset: c.Preset, Quant: c.Quant, Layers: c.Layers, Seed: 1}
}

// synthesise makes the model of a preset, in a temporary file.
func (c *benchModelCmd) synthesise(e *env) (_ *benchModel, err error) {
	m := &benchModel{name: "--preset " + c.Preset, quant: c.Quant}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.dir, err = os.MkdirTemp("", "lockstep-bench-"); err != nil {
		return nil, fmt.Errorf("--preset: %w", err)
	}
	s := c.synth()
	s.Out = path(filepath.Join(m.dir, "model.gguf"))
	quietly := *e
	quietly.out = e.errw
	if err := s.Run(&quietly); err != nil {
		return nil, err
	}
	if m.Model, err = model.Open(string(s.Out)); err != nil {
		return nil, err
	}
	m.title = m.Config.Name
	return m, nil
}

// quantOf is the name of the recipe that a file says it was made by, else the format of
// its first matrix.
func quantOf(m *model.Model) string {
	v, _ := m.File.Value("general.file_type")
	if t, err := v.Uint(); err == nil {
		for _, name := range requant.Names() {
			if r, err := requant.ParseRecipe(name); err == nil && uint64(r.FileType()) == t {
				return name
			}
		}
	}
	return m.Weights.Layers[0].Q.W.Format.String()
}

// benchSubject is the engine to measure, with what is known of it. It is made in two
// steps: its device, and when there is a model its engine.
type benchSubject struct {
	device  driver.Device // nil: the CPU
	meter   meter         // nil: energy is unknown
	engine  model.Engine
	options modelbench.Options
	report  modelbench.Report // what the engine and the device are
	after   func()            // says what was odd; may be nil
}

func (s *benchSubject) close() {
	if s.meter != nil {
		s.meter.Close()
	}
	if s.device != nil {
		s.device.Close()
	}
}

// subject opens the device.
func (c *benchModelCmd) subject() (*benchSubject, error) {
	s := &benchSubject{options: modelbench.Options{
		Depths: c.Depths, Prompts: c.Prompts, Batches: c.Batches,
		Repeats: c.Repeats, Steps: c.Steps, Budget: c.Budget,
	}}
	if c.Device == lockstep.CPU {
		return s, nil
	}
	var err error
	s.device, err = openFlag(c.Device)
	return s, err
}

// prepare makes the engine, which is to be closed before the model.
func (s *benchSubject) prepare(e *env, c *benchModelCmd, m *benchModel) error {
	if s.device == nil {
		return s.onCPU(c, m)
	}
	if err := s.onDevice(e, c, m); err != nil {
		return fmt.Errorf("--device %s: %s: %w", c.Device, m.name, err)
	}
	return nil
}

func (s *benchSubject) onCPU(c *benchModelCmd, m *benchModel) error {
	eng, err := ref.NewWith(m.Model, ref.Options{Numerics: ref.Numerics{KV: c.KV}})
	if err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	s.engine = eng
	s.report.Engine, s.report.KV = "ref", c.KV.Format(quant.F32).String()
	s.report.Device.Name = fmt.Sprintf("CPU, %s, %d threads", runtime.GOARCH, runtime.GOMAXPROCS(0))
	return nil
}

// benchSequences is how many sequences the engine is to step together.
const benchSequences = 64

// limits measures what the GPU reaches, while its memory is free.
func (s *benchSubject) limits(e *env) error {
	e.note("limits of %s", s.device.Properties().Name)
	limits, err := kernelbench.MeasureLimits(s.device)
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	s.options.Limits, s.report.Limits = &limits, &limits
	return nil
}

// countsOf reads an engine's counters.
func countsOf(eng *accel.Engine) func() modelbench.Counts {
	return func() modelbench.Counts {
		s := eng.Stats()
		return modelbench.Counts{
			Steps: s.Steps, Rows: s.StepTokens, Chunks: s.Chunks,
			LookaheadSteps: s.AsyncSteps, LookaheadWasted: s.AsyncDiscarded, Captures: s.Captures,
		}
	}
}

// onDevice uploads the model. The cache gets what the figures need of the memory that is
// left.
func (s *benchSubject) onDevice(e *env, c *benchModelCmd, m *benchModel) error {
	o := accel.Options{KV: c.KV, MaxSequences: benchSequences, SyncScheduling: c.NoLookahead}
	free, _, err := s.device.Memory()
	if err != nil {
		return err
	}
	plan, err := accel.PlanFor(m.Model, s.device.Properties(), free, o)
	if err != nil {
		return err
	}
	if c.Device == lockstep.GPU {
		if err := s.limits(e); err != nil {
			return err
		}
		s.count(e)
	}
	o.KVPages = max(1, min(plan.Pages, s.options.Pages(m.Config.Context, kvPage)))
	progress, end := e.uploadProgress()
	o.Progress = progress
	eng, err := accel.New(e.ctx, m.Model, s.device, o)
	end()
	if err != nil {
		return err
	}
	s.engine = eng
	s.options.Sequences, s.options.Warm, s.options.Counts = benchSequences, eng.Warm, countsOf(eng)
	s.options.Cache = modelbench.Cache{Pages: o.KVPages, PagePositions: kvPage}
	s.report.Engine, s.report.KV, s.report.Device = "accel", c.KV.Format(quant.F16).String(), kernelbench.DeviceOf(s.device)
	if c.NoLookahead {
		s.report.Engine += " without lookahead"
	}
	s.after = func() {
		if st := eng.Stats(); st.CaptureFailures > 0 {
			e.note("%d passes ran without graphs: %s", st.CaptureFailures, oneLine(errors.Join(st.CaptureError)))
		}
	}
	return nil
}
