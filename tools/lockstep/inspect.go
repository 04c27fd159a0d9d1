package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
)

type inspectCmd struct {
	File modelFile `arg:"" help:"GGUF file, or the first part of a split model, or a name that lockstep models lists."`
	JSON bool      `name:"json" help:"Print JSON, without long arrays and texts."`
}

// inspection describes a GGUF file.
type inspection struct {
	File     string       `json:"file"`
	Parts    int          `json:"parts"` // files of a split model, else 1
	Version  uint32       `json:"version"`
	Bytes    int64        `json:"bytes"` // of all parts
	Metadata []keyInfo    `json:"metadata"`
	Tensors  []tensorInfo `json:"tensors"`
	Weights  int64        `json:"parameters"`
	Memory   memory       `json:"memory"`
	Refused  string       `json:"cannot_run,omitempty"`      // why no engine can run it; "": it can
	NoText   string       `json:"cannot_tokenize,omitempty"` // why its vocabulary cannot be used; "": it can, or there is none
	Warnings []string     `json:"warnings,omitempty"`        // see model.Model
}

type keyInfo struct {
	Key    string `json:"key"`
	Type   string `json:"type"`
	Length int    `json:"length,omitempty"` // of an array
	Value  any    `json:"value,omitempty"`  // nil: too long

	text string // for the table
}

type tensorInfo struct {
	Name   string `json:"name"`
	Format string `json:"format"`
	Dims   []int  `json:"dims"`   // the length of a row first
	Part   int    `json:"part"`   // that has the data, from 1
	Offset int64  `json:"offset"` // in that part
	Bytes  int64  `json:"bytes"`
}

// memory estimates the memory of a running model, in bytes, without workspace.
type memory struct {
	Weights int64 `json:"weights"`
	Context int   `json:"context,omitempty"` // positions of the KV cache; 0: unknown
	KVF16   int64 `json:"kv_cache_f16,omitempty"`
	KVF32   int64 `json:"kv_cache_f32,omitempty"`
}

func (c *inspectCmd) Run(e *env) error {
	f, err := gguf.Open(string(c.File.file))
	if err != nil {
		return err
	}
	defer f.Close()
	info := inspect(string(c.File.file), f)
	if !c.JSON {
		return info.print(e)
	}
	text, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return err
	}
	return e.stdout("%s\n", text)
}

func inspect(path string, f *gguf.File) inspection {
	info := inspection{
		File: path, Parts: max(1, len(f.Paths())), Version: f.Version(), Bytes: f.Size(), Metadata: []keyInfo{}, Tensors: []tensorInfo{},
	}
	room := maxJSONValues
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		info.Metadata = append(info.Metadata, describeKey(key, v, &room))
	}
	for _, t := range f.Tensors() {
		n := int64(len(t.Data))
		info.Tensors = append(info.Tensors, tensorInfo{t.Name, t.Format.String(), t.Dims, t.Part + 1, t.Offset, n})
		info.Memory.Weights += n
		info.Weights += int64(t.Elements())
	}
	if _, err := model.LoadTokenizer(f); err != nil {
		info.NoText = oneLine(err)
	}
	m, err := model.Load(f)
	if err != nil {
		info.Refused = oneLine(err)
		return info
	}
	c := m.Config
	info.Warnings = m.Warnings
	info.Memory.Context = c.Context
	values := kvValues(c, c.Context)
	info.Memory.KVF16, info.Memory.KVF32 = 2*values, 4*values
	return info
}

const (
	// maxJSONArray is the length of the longest array in the JSON output.
	maxJSONArray = 256
	// maxJSONValues is the number of bytes of all values in the JSON output.
	maxJSONValues = 16 << 20
)

// describeKey subtracts the size of the value from room, and leaves the value out if it does
// not fit.
func describeKey(key string, v gguf.Value, room *int) keyInfo {
	k := keyInfo{Key: key, Type: v.TypeName(), text: v.String()}
	if v.IsArray() {
		k.Length = v.Len()
	}
	if v.Len() > maxJSONArray {
		return k
	}
	value := jsonValue(v)
	if size := jsonSize(value); size <= *room {
		k.Value = value
		*room -= size
	}
	return k
}

// jsonSize estimates the size of a value of jsonValue in bytes.
func jsonSize(value any) (n int) {
	switch value := value.(type) {
	case string:
		return len(value)
	case []string:
		for _, s := range value {
			n += len(s)
		}
		return n
	case []int64:
		return 8 * len(value)
	case []any:
		return 8 * len(value)
	}
	return 8
}

// jsonValue returns a value for encoding/json: byte arrays become numbers, NaN and
// infinities become text.
func jsonValue(v gguf.Value) any {
	if ints, err := v.Ints(); err == nil {
		return ints
	}
	if floats, err := v.Floats(); err == nil {
		all := make([]any, len(floats))
		for i, x := range floats {
			all[i] = orText(x)
		}
		return all
	}
	if x, err := v.Float(); err == nil {
		return orText(x)
	}
	return v.Any()
}

func orText(x float64) any {
	if finite(x) == nil {
		return fmt.Sprint(x)
	}
	return x
}

// print writes the inspection as a table.
func (i *inspection) print(e *env) error {
	w := tabwriter.NewWriter(e, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	parts := ""
	if i.Parts > 1 {
		parts = fmt.Sprintf("%d parts, ", i.Parts)
	}
	line("%s: GGUF version %d, %s%s, %d keys, %d tensors", printable(i.File), i.Version, parts, size(i.Bytes), len(i.Metadata), len(i.Tensors))
	line("\nMetadata")
	for _, k := range i.Metadata {
		line("  %s\t%s\t%s", printable(k.Key), k.Type, printable(k.text))
	}
	if len(i.Tensors) > 0 {
		line("\nTensors")
	}
	for _, t := range i.Tensors {
		line("  %s\t%s\t%s\t%s", printable(t.Name), t.Format, dimsText(t.Dims), size(t.Bytes))
	}
	line("\nMemory")
	line("  weights\t%s\t%d parameters", size(i.Memory.Weights), i.Weights)
	if i.Memory.Context > 0 {
		line("  KV cache of %d positions\t%s in F16\t%s in F32", i.Memory.Context, size(i.Memory.KVF16), size(i.Memory.KVF32))
	}
	for _, w := range i.Warnings {
		line("\nwarning: %s", w)
	}
	if i.NoText != "" {
		line("\nThe vocabulary of this file cannot be used: %s", printable(i.NoText))
	}
	if i.Refused != "" {
		line("\nThis file cannot be run: %s", printable(i.Refused))
	}
	return w.Flush()
}
