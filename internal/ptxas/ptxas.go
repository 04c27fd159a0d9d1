// Package ptxas runs NVIDIA's offline assembler over PTX text, for tests: it proves
// that a text is accepted, and says what each kernel costs in registers, spills and
// shared memory. It is not the driver's compiler, whose figures may differ.
//
// The assembler is no part of this module: tools/get-ptxas fetches it. Without it
// tests skip, see [Need].
package ptxas

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// The variables of the environment that this package reads.
const (
	envPath    = "LOCKSTEP_PTXAS"         // the path of the assembler
	envRequire = "LOCKSTEP_REQUIRE_PTXAS" // not empty: a test without it fails
	envCache   = "LOCKSTEP_PTXAS_CACHE"   // off: every text is assembled again
)

// fetched is where tools/get-ptxas puts the assembler, below the module's directory.
var fetched = filepath.Join("bin", "ptxas-12.4")

// ErrNotFound says that there is no assembler on this machine.
var ErrNotFound = errors.New("no ptxas found")

// Find returns the path of ptxas: what LOCKSTEP_PTXAS names, else the one that
// tools/get-ptxas fetched for the module around the working directory, else the
// first on PATH. It returns [ErrNotFound] if there is none, and another error if
// LOCKSTEP_PTXAS names something that is no program.
func Find() (string, error) {
	if path := os.Getenv(envPath); path != "" {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("%s: %w", envPath, err)
		}
		return filepath.Abs(found)
	}
	dir, err := moduleDir()
	if err != nil {
		return "", err
	}
	if dir != "" {
		if path, err := exec.LookPath(filepath.Join(dir, fetched, "ptxas")); err == nil {
			return path, nil
		}
	}
	if path, err := exec.LookPath("ptxas"); err == nil {
		return filepath.Abs(path)
	}
	return "", ErrNotFound
}

// moduleDir is the nearest directory at or above the working directory that holds
// a go.mod; empty if there is none.
func moduleDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", nil
		}
		dir = above
	}
}

// Assembler is a ptxas that runs on this machine. Its methods may be called
// concurrently.
type Assembler struct {
	path    string
	version string        // all that --version prints, down to the build
	cache   cache         // of what ptxas printed
	slots   chan struct{} // holds a value for each ptxas that runs
}

// New returns the assembler at path. At most GOMAXPROCS processes of it run at a
// time. What it prints is kept in the user's cache directory, below
// lockstep/ptxas, unless LOCKSTEP_PTXAS_CACHE is off or there is no such directory.
func New(path string) (*Assembler, error) {
	out, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w: %s", path, err, strings.TrimSpace(string(out)))
	}
	return &Assembler{
		path:    path,
		version: string(out),
		cache:   userCache(),
		slots:   make(chan struct{}, runtime.GOMAXPROCS(0)),
	}, nil
}

// Need returns the assembler that [Find] finds, one for the whole process. A test
// is skipped if there is none, but fails if LOCKSTEP_REQUIRE_PTXAS is set or if the
// one found does not run.
func Need(t testing.TB) *Assembler {
	t.Helper()
	a, err := theOne()
	need(t, err)
	return a
}

var theOne = sync.OnceValues(func() (*Assembler, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	return New(path)
})

func need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrNotFound) && os.Getenv(envRequire) == "":
		t.Skipf("%v: tools/get-ptxas fetches it, or set %s", err, envPath)
	default:
		t.Fatalf("%v (%s=%q, %s=%q)", err, envPath, os.Getenv(envPath), envRequire, os.Getenv(envRequire))
	}
}
