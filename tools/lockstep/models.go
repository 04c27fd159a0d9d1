package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/internal/library"
	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
)

// modelFlag is the --model flag.
type modelFlag struct {
	Model modelFile `short:"m" env:"LOCKSTEP_MODEL" help:"Model: a GGUF file, or its first part, or a name that lockstep models lists (default: a small embedded model)." placeholder:"F"`
}

// name returns the model's name for messages.
func (m modelFlag) name() string {
	if m.Model.file == "" {
		return "the embedded model"
	}
	return m.Model.String()
}

// open loads the model. The caller closes it.
func (m modelFlag) open() (*model.Model, error) {
	if m.Model.file == "" {
		return golden.Model()
	}
	return model.Open(string(m.Model.file))
}

// modelFile is a model on the command line: a file, or a name of package library.
type modelFile struct {
	file path
	name string // "" if the command line has the file
}

func (m *modelFile) UnmarshalText(text []byte) error {
	*m = modelFile{}
	if library.IsName(string(text)) {
		m.name = string(text)
	}
	return m.file.UnmarshalText(text)
}

// String returns the model as the command line has it.
func (m modelFile) String() string { return cmp.Or(m.name, string(m.file)) }

// find sets the file of a name.
func (m *modelFile) find() error {
	if m.name == "" {
		return nil
	}
	c, err := caches()
	if err != nil {
		return err
	}
	file, err := c.Find(m.name)
	if errors.Is(err, library.ErrNotFound) {
		err = fmt.Errorf("%w; lockstep models lists those that are here", err)
		if strings.HasPrefix(m.name, "hf:") {
			err = fmt.Errorf("%w, lockstep pull downloads others", err)
		}
	}
	m.file = path(file)
	return err
}

// findModels finds the files of all models of a command. It runs after the command line is parsed, so that a flag still
// replaces a variable whose name no model has.
func findModels(c *kong.Context) error {
	values := slices.Clone(c.Selected().Positional)
	for _, f := range c.Flags() {
		values = append(values, f.Value)
	}
	for _, v := range values {
		if m, ok := v.Target.Addr().Interface().(*modelFile); ok {
			if err := m.find(); err != nil {
				return err
			}
		}
	}
	return nil
}

// caches returns the folders in which other programs keep models.
func caches() (library.Caches, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return library.Caches{}, fmt.Errorf("the folders of other programs: %w", err)
	}
	return library.FromEnvironment(os.Getenv, home), nil
}

type modelsCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *modelsCmd) Help() string {
	return "They are those of Ollama, LM Studio and the cache of Hugging Face on this machine. Every flag and argument for a model takes their names: " +
		"ollama:NAME[:TAG], lmstudio:PUBLISHER/REPOSITORY/FILE, hf:ORGANIZATION/REPOSITORY[:FORMAT]."
}

// foundModel describes a model of a cache. What its file does not tell is "" or 0.
type foundModel struct {
	Name    string `json:"name"`
	File    string `json:"file,omitempty"`
	Arch    string `json:"architecture,omitempty"`
	Format  string `json:"format,omitempty"`
	Bytes   int64  `json:"bytes,omitempty"`      // of all parts
	Refused string `json:"cannot_run,omitempty"` // why; "": it can
}

func (c *modelsCmd) Run(e *env) error {
	all, err := caches()
	if err != nil {
		return err
	}
	list, err := all.List()
	if err != nil {
		e.note("%s", oneLine(err))
	}
	found := []foundModel{}
	for _, m := range list {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		found = append(found, describeModel(m))
	}
	if c.JSON {
		text, err := json.MarshalIndent(found, "", "  ")
		if err != nil {
			return err
		}
		return e.stdout("%s\n", text)
	}
	if len(found) == 0 {
		e.note("no models of Ollama, LM Studio or Hugging Face are here")
		return nil
	}
	w := tabwriter.NewWriter(e, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tARCHITECTURE\tFORMAT\tSIZE\tRUNS")
	for _, m := range found {
		runs, bytes := "yes", ""
		if m.Refused != "" {
			runs = "no: " + printable(m.Refused)
		}
		if m.Bytes > 0 {
			bytes = size(m.Bytes)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", printable(m.Name), printable(m.Arch), m.Format, bytes, runs)
	}
	return w.Flush()
}

// describeModel opens a model of a cache.
func describeModel(m library.Model) foundModel {
	d := foundModel{Name: m.Name, File: m.Path}
	if m.Err != nil {
		d.Refused = oneLine(m.Err)
		return d
	}
	f, err := gguf.Open(m.Path)
	if err != nil {
		d.Refused = oneLine(err)
		return d
	}
	defer f.Close()
	arch, _ := f.Value("general.architecture")
	d.Arch, _ = arch.Str()
	d.Format, d.Bytes = formatOf(f), f.Size()
	loaded, err := model.Load(f)
	if err == nil {
		_, err = loaded.NeedTokenizer()
	}
	if err != nil {
		d.Refused = oneLine(err)
	}
	return d
}

// formatOf returns the recipe that a file names, or else the format of most bytes of its tensors.
func formatOf(f *gguf.File) string {
	v, _ := f.Value("general.file_type")
	if t, err := v.Uint(); err == nil {
		for _, name := range requant.Names() {
			if r, err := requant.ParseRecipe(name); err == nil && uint64(r.FileType()) == t {
				return name
			}
		}
	}
	bytes, most := map[string]int{}, ""
	for _, t := range f.Tensors() {
		name := t.Format.String()
		if bytes[name] += len(t.Data); bytes[name] > bytes[most] {
			most = name
		}
	}
	return most
}
