package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/lockstep-go/lockstep/internal/atomicfile"
	"github.com/lockstep-go/lockstep/model/gguf"
)

// outPath is the name of a file to write.
type outPath string

func (p *outPath) UnmarshalText(text []byte) error {
	if string(text) == "-" {
		return errors.New("-: want a regular file, not standard output; ./- is a file of that name")
	}
	return (*path)(p).UnmarshalText(text)
}

// output is a file to write, and the flag that names it. An empty file means no output.
type output struct {
	flag  string
	file  outPath
	model bool // it will be a GGUF file, which may replace another
}

// checkOutputs returns an error if an output cannot be written, or if it is standard output,
// one of the inputs or another output. Commands call it before they compute.
func (e *env) checkOutputs(outputs []output, inputs ...path) error {
	files := inputFiles(inputs)
	for i, o := range outputs {
		if o.file == "" {
			continue
		}
		for _, other := range outputs[:i] {
			if sameFile(string(o.file), string(other.file)) {
				return usagef("%s: %s is the file of %s", o.flag, o.file, other.flag)
			}
		}
		for _, in := range files {
			if sameFile(string(o.file), in) {
				return fmt.Errorf("%s: %s is the input %s", o.flag, o.file, in)
			}
		}
		if e.isStdout(string(o.file)) {
			return fmt.Errorf("%s: %s is standard output", o.flag, o.file)
		}
		if err := atomicfile.Check(string(o.file)); err != nil && !(o.model && errors.Is(err, atomicfile.ErrModel)) {
			return fmt.Errorf("%s: %w", o.flag, err)
		}
	}
	return nil
}

// inputFiles returns the names of the inputs, with all parts of split models.
func inputFiles(inputs []path) (files []string) {
	for _, in := range inputs {
		f, err := gguf.Open(string(in))
		if err != nil { // no model, or the command will say what is wrong with it
			files = append(files, string(in))
			continue
		}
		files = append(files, f.Paths()...)
		f.Close()
	}
	return files
}

// sameFile reports whether two names are of one file. Neither must exist.
func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	if errA == nil && errB == nil {
		return os.SameFile(infoA, infoB)
	}
	absA, errA := filepath.Abs(a)
	absB, errB := filepath.Abs(b)
	return a != "" && b != "" && errA == nil && errB == nil && absA == absB
}

// isStdout reports whether standard output goes to a file of that name.
func (e *env) isStdout(name string) bool {
	f, ok := e.out.(*os.File)
	if !ok {
		return false
	}
	out, err := f.Stat()
	if err != nil || !out.Mode().IsRegular() {
		return false
	}
	info, err := os.Stat(name)
	return err == nil && os.SameFile(out, info)
}

// write replaces the file, if there is one to write. The error names the flag.
func (o output) write(write func(io.Writer) error) error {
	if o.file == "" {
		return nil
	}
	if err := atomicfile.Write(string(o.file), write); err != nil {
		return fmt.Errorf("%s: %w", o.flag, err)
	}
	return nil
}

func (o output) writeText(text []byte) error {
	return o.write(func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// writeJSON writes v as indented JSON.
func (o output) writeJSON(v any) error {
	return o.write(func(w io.Writer) error {
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		_, err = w.Write(append(text, '\n'))
		return err
	})
}
