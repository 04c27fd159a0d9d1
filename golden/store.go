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
	"os"
	"path/filepath"
	"slices"

	"github.com/lockstep-go/lockstep/internal/atomicfile"
	"github.com/lockstep-go/lockstep/internal/npy"
	"github.com/lockstep-go/lockstep/model"
)

// ErrDiffers means golden files that are not what is computed now.
var ErrDiffers = errors.New("golden files differ")

// Store is a directory of golden files and the means to make them. The engine is
// given, not chosen here, so that any engine can be held to them.
type Store struct {
	Dir   string // this package's directory in a checkout
	Cases []Case // nil: all; else only these are computed, and nothing is said of the others
	New   func(*model.Model) (model.Engine, error)
	Done  func(Case) // when not nil, is called after each case

	whole bool // Cases are all that the directory is to hold
}

func (s Store) part() bool { return s.Cases != nil && !s.whole }

const logitsDir = "logits"

// computed is what the golden directory should hold of the cases.
type computed struct {
	manifest manifest
	logits   map[string][]byte // file below Dir: content
}

// Update computes the cases and writes their files and the manifest. When they
// are all cases, logits of cases that are no more are removed.
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

// Verify computes the cases and compares them with the files to the bit. The error
// wraps ErrDiffers and says what differs and by how much.
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
		found = append(found, fmt.Errorf("%s: belongs to no case", file))
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: %w", ErrDiffers, errors.Join(found...))
	}
	return nil
}

func (s Store) write(file string, content []byte) error {
	return atomicfile.Write(filepath.Join(s.Dir, file), func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// strays lists logits that no case has.
func (s Store) strays(want computed) ([]string, error) {
	if s.part() {
		return nil, nil // they may be of the other cases
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

// compute runs all cases, each model loaded once.
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

// computeModel runs the cases of one model and puts their files into logits.
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
		tok, err := m.NeedTokenizer()
		if err != nil {
			return entry{}, nil, err
		}
		tokens = tok.Prompt(c.Prompt, false)
	}
	session, err := eng.NewSession(len(tokens))
	if err != nil {
		return entry{}, nil, err
	}
	defer session.Close()
	out, err := session.Forward(ctx, tokens, model.WantAll)
	if err != nil {
		return entry{}, nil, err
	}
	rows, vocab := len(tokens), m.Config.Vocab
	if c.Last > 0 {
		rows = min(rows, c.Last)
	}
	shape := []int{rows, vocab}
	var content bytes.Buffer
	if err := npy.Write(&content, shape, out.Logits[(len(tokens)-rows)*vocab:]); err != nil {
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
