package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/internal/atomicfile"
	"github.com/lockstep-go/lockstep/internal/modelbench"
	"github.com/lockstep-go/lockstep/model"
)

type benchModelCmd struct {
	modelFlag
	Preset string `help:"In place of --model: this shape, with random weights in a temporary file: ${presets}." placeholder:"P"`
	Quant  string `help:"With --preset: block format of the weights: ${formats}." placeholder:"T"`
	Layers int    `help:"With --preset: layers, in place of the model's own number." placeholder:"N"`

	Device lockstep.Device `enum:"gpu,emu,cpu" default:"gpu" help:"What computes: gpu, an NVIDIA GPU; cpu; emu, an emulated GPU, whose speed says nothing (${default})." placeholder:"gpu|emu|cpu"`
	KV     model.KVFormat  `name:"kv" help:"Format of the keys and values in the cache (default: f32 on the CPU, f16 on a GPU)." placeholder:"f16|bf16|f32"`

	NoLookahead bool `help:"Have the engine queue each step when it is asked for. Otherwise a GPU begins steps that go on with the likeliest token as soon as those before are done."`

	Depths  []int         `default:"0,2048,8192" help:"Decode one sequence behind so many positions (${default})." placeholder:"N,…"`
	Prompts []int         `default:"512,2048,8192" help:"Compute prompts of so many tokens (${default})." placeholder:"N,…"`
	Batches []int         `default:"1,4,16,64" help:"Decode so many sequences at the same time (${default})." placeholder:"N,…"`
	Repeats int           `default:"5" help:"Most repeats of a figure (${default})." placeholder:"N"`
	Steps   int           `default:"0" help:"Steps of a repeat; 0: as many as --budget allows, up to 128 (${default})." placeholder:"N"`
	Budget  time.Duration `default:"4s" help:"About how long the repeats of one figure take; what needs ten times as long to get ready is skipped (${default})." placeholder:"T"`

	JSON path `name:"json" help:"Write the figures to this file, too." placeholder:"F"`
	Plot path `help:"Draw a roofline and the shares of the limits into this file." placeholder:"F.svg"`
}

func (c *benchModelCmd) Help() string {
	return "A figure is the median over repeats, after one that does not count. On a GPU it stands beside the share of what the device " +
		"reached in the same run that a perfect engine would be bound by: for decoding the read bandwidth, over the bytes of the weights that a " +
		"step reads; for prompts the rate of the matrix units by bf16 mma.sync, over two operations a weight and token. Keys, values and attention are not " +
		"in either count. Empty lists leave figures out: --batches=."
}

func (c *benchModelCmd) Run(e *env) error {
	if err := c.check(); err != nil {
		return err
	}
	s, err := c.subject() // first, for a preset takes a while
	if err != nil {
		return err
	}
	defer s.close()
	m, err := c.load(e)
	if err != nil {
		return err
	}
	defer m.close()
	if err := s.prepare(e, c, m); err != nil {
		return err
	}
	defer s.engine.Close()
	return c.measure(e, m, s)
}

// measure measures, and shows what was measured even if not all was.
func (c *benchModelCmd) measure(e *env, m *benchModel, s *benchSubject) error {
	o := s.options
	o.Show = func(r modelbench.Result) { e.note("%s", noteOf(r)) }
	rep := s.report
	rep.Version, rep.Date = modelbench.Version, time.Now().UTC().Format(time.RFC3339)
	rep.Model = modelbench.Describe(m.Model, m.title, m.quant)
	var err error
	rep.Results, err = modelbench.Run(e.ctx, s.engine, o)
	if s.after != nil {
		s.after()
	}
	if len(rep.Results) == 0 {
		return err
	}
	return errors.Join(err, e.showModelBench(rep), c.write(rep), failures(rep.Results))
}

func (c *benchModelCmd) write(rep modelbench.Report) error {
	if c.JSON != "" {
		text, err := json.MarshalIndent(rep, "", "  ")
		if err == nil {
			err = writeFile(string(c.JSON), append(text, '\n'))
		}
		if err != nil {
			return fmt.Errorf("--json: %w", err)
		}
	}
	if c.Plot != "" {
		err := atomicfile.Write(string(c.Plot), func(w io.Writer) error { return rep.Plot(w) })
		if err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	return nil
}

// failures is an error if a figure could not be measured.
func failures(list []modelbench.Result) error {
	i := slices.IndexFunc(list, func(r modelbench.Result) bool { return r.Err != "" })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("%v: %s", list[i].Case, list[i].Err)
}

// check looks at the flags before anything takes time: first at what is to be measured,
// then at how, then at where it is to go.
func (c *benchModelCmd) check() error {
	if err := c.checkModel(); err != nil {
		return err
	}
	switch {
	case len(c.Depths)+len(c.Prompts)+len(c.Batches) == 0:
		return usagef("--depths, --prompts, --batches: nothing is to be measured")
	case c.NoLookahead && c.Device == lockstep.CPU:
		return usagef("--no-lookahead: there is none to leave out on --device cpu")
	case c.Budget <= 0:
		return usagef("--budget: %v, want more than 0", c.Budget)
	case c.JSON != "" && c.JSON == c.Plot:
		return usagef("--plot: %s is the file of --json", c.Plot)
	}
	for _, f := range []struct {
		flag  string
		list  []int
		least int
	}{
		{"--depths", c.Depths, 0}, {"--prompts", c.Prompts, 1}, {"--batches", c.Batches, 1},
		{"--repeats", []int{c.Repeats}, 1}, {"--steps", []int{c.Steps}, 0},
	} {
		for _, n := range f.list {
			if n < f.least {
				return usagef("%s: %d, want %d or more", f.flag, n, f.least)
			}
		}
	}
	for _, f := range []struct {
		flag string
		out  path
	}{{"--json", c.JSON}, {"--plot", c.Plot}} {
		if err := checkOutput(f.flag, string(f.out), string(c.Model)); f.out != "" && err != nil {
			return err
		}
	}
	return nil
}

// checkModel looks at what is said of the model: the name of a preset before what goes
// with it.
func (c *benchModelCmd) checkModel() error {
	switch {
	case c.Preset != "" && c.Model != "":
		return usagef("--preset: there is a --model already")
	case c.Preset == "" && c.Quant != "":
		return usagef("--quant: is for --preset; a file has its own")
	case c.Preset == "" && c.Layers != 0:
		return usagef("--layers: is for --preset; a file has its own")
	case c.Preset == "":
		return nil
	}
	_, err := c.synth().plan()
	return err
}
