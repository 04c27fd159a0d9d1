package golden

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/lockstep-go/lockstep/internal/atomicfile"
	"github.com/lockstep-go/lockstep/internal/npy"
	"github.com/lockstep-go/lockstep/model"
)

// errDiffers means golden files that differ from what is computed now.
var errDiffers = errors.New("golden files differ")

// Store computes golden files and compares them with a directory.
type Store struct {
	Dir   string                                   // the directory golden of a checkout
	Cases []Case                                   // nil: all; else the other cases are ignored
	New   func(*model.Model) (model.Engine, error) // makes the engine that computes
	Done  func(Case)                               // called after each case; may be nil

	whole bool // Cases are all cases of the directory
}

// partial reports whether the directory has other cases too.
func (s Store) partial() bool { return s.Cases != nil && !s.whole }

const logitsDir = "logits"

// computed is what the directory should contain of the cases.
type computed struct {
	manifest manifest
	logits   map[string][]byte // file below Dir: content
}

// Update computes the cases and writes their files and the manifest. If these are all
// cases, it removes the files of cases that no longer exist.
func (s Store) Update(ctx context.Context) error {
	want, err := s.compute(ctx)
	if err != nil {
		return err
	}
	text, err := s.manifestWith(want.manifest)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(s.Dir, logitsDir), 0o755); err != nil {
		return err
	}
	for file, content := range want.logits {
		if err := s.write(file, content); err != nil {
			return err
		}
	}
	if err := s.write(manifestName, text); err != nil {
		return err
	}
	strays, err := s.strays(want)
	for _, file := range strays {
		err = errors.Join(err, os.Remove(filepath.Join(s.Dir, file)))
	}
	return err
}

// Verify computes the cases and compares them with the files, bit for bit. The error
// lists each file that differs, and by how much.
func (s Store) Verify(ctx context.Context) error {
	want, err := s.compute(ctx)
	if err != nil {
		return err
	}
	var found []error
	for _, file := range slices.Sorted(maps.Keys(want.logits)) {
		have, err := os.ReadFile(filepath.Join(s.Dir, file))
		if err != nil {
			found = append(found, err)
		} else if !bytes.Equal(have, want.logits[file]) {
			found = append(found, fmt.Errorf("%s: %s", file, describe(have, want.logits[file])))
		}
	}
	if err := s.verifyManifest(want.manifest); err != nil {
		found = append(found, err)
	}
	strays, err := s.strays(want)
	if err != nil {
		found = append(found, err)
	}
	for _, file := range strays {
		found = append(found, fmt.Errorf("%s: no case has this file", file))
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: %w", errDiffers, errors.Join(found...))
	}
	return nil
}

func (s Store) write(file string, content []byte) error {
	return atomicfile.Write(filepath.Join(s.Dir, file), func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// strays lists the files of no case.
func (s Store) strays(want computed) ([]string, error) {
	if s.partial() {
		return nil, nil
	}
	entries, err := os.ReadDir(filepath.Join(s.Dir, logitsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var strays []string
	for _, e := range entries {
		file := logitsDir + "/" + e.Name()
		if _, ok := want.logits[file]; !ok {
			strays = append(strays, file)
		}
	}
	return strays, nil
}

// compute runs the cases. It loads each model once.
func (s Store) compute(ctx context.Context) (computed, error) {
	cases := s.Cases
	if cases == nil {
		cases = Cases()
	}
	out := computed{manifest{provenance, map[string]string{}, nil}, map[string][]byte{}}
	for len(cases) > 0 {
		file := cases[0].Model
		n := slices.IndexFunc(cases, func(c Case) bool { return c.Model != file })
		if n < 0 {
			n = len(cases)
		}
		entries, err := s.computeModel(ctx, file, cases[:n], out.logits)
		if err != nil {
			return computed{}, fmt.Errorf("golden: %s: %w", file, err)
		}
		sum, err := hashFile(filepath.Join(s.Dir, file))
		if err != nil {
			return computed{}, fmt.Errorf("golden: %w", err)
		}
		out.manifest.Models[file] = sum
		out.manifest.Files = append(out.manifest.Files, entries...)
		cases = cases[n:]
	}
	return out, nil
}

// computeModel runs the cases of one model and adds their files to logits.
func (s Store) computeModel(ctx context.Context, file string, cases []Case, logits map[string][]byte) ([]entry, error) {
	m, err := model.Open(filepath.Join(s.Dir, file))
	if err != nil {
		return nil, err
	}
	defer m.Close()
	eng, err := s.New(m)
	if err != nil {
		return nil, err
	}
	defer eng.Close()
	var entries []entry
	for _, c := range cases {
		e, content, err := computeCase(ctx, eng, c)
		if err != nil {
			return nil, fmt.Errorf("case %q: %w", c.Name, err)
		}
		logits[e.File] = content
		entries = append(entries, e)
		if s.Done != nil {
			s.Done(c)
		}
	}
	return entries, nil
}

func computeCase(ctx context.Context, eng model.Engine, c Case) (entry, []byte, error) {
	m := eng.Model()
	tokens := c.Tokens
	if tokens == nil {
		var err error
		if tokens, err = m.Prompt(c.Prompt, false, m.Config.Context); err != nil {
			return entry{}, nil, err
		}
	}
	sequence, err := eng.NewSequence(len(tokens))
	if err != nil {
		return entry{}, nil, err
	}
	defer sequence.Close()
	out, err := model.Forward(ctx, eng, model.Row{Sequence: sequence, Tokens: tokens, Prompt: true, Want: model.WantAll})
	if err != nil {
		return entry{}, nil, err
	}
	positions, vocab := len(tokens), m.Config.Vocab
	if c.Last > 0 {
		positions = min(positions, c.Last)
	}
	shape := []int{positions, vocab}
	var content bytes.Buffer
	if err := npy.Write(&content, shape, out.Logits[(len(tokens)-positions)*vocab:]); err != nil {
		return entry{}, nil, err
	}
	return entry{
		File: c.file(), Model: c.Model, Reason: c.Reason, Prompt: c.Prompt, Tokens: tokens,
		Shape: shape, SHA256: hash(content.Bytes()),
	}, content.Bytes(), nil
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func hashFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	return hash(b), err
}

// describe tells how one .npy file differs from another.
func describe(have, want []byte) string {
	haveShape, a, err := npy.Read(bytes.NewReader(have))
	if err != nil {
		return err.Error()
	}
	wantShape, b, err := npy.Read(bytes.NewReader(want))
	if err != nil {
		return err.Error()
	}
	if !slices.Equal(haveShape, wantShape) {
		return fmt.Sprintf("shape %v, computed %v", haveShape, wantShape)
	}
	differ, largest, finite := 0, 0.0, true
	for i := range a {
		if math.Float32bits(a[i]) == math.Float32bits(b[i]) {
			continue
		}
		differ++
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if !(d <= math.MaxFloat64) {
			finite = false
		}
		largest = max(largest, d)
	}
	if !finite {
		return fmt.Sprintf("%d of %d numbers differ, some of them are not finite", differ, len(a))
	}
	return fmt.Sprintf("%d of %d numbers differ, by at most %.3g", differ, len(a), largest)
}
