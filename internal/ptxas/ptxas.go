// Package ptxas runs NVIDIA's offline assembler for tests. It checks that a PTX text is accepted
// and reports the registers, spills, shared memory and warnings of each kernel. The driver's
// compiler may give others.
//
// The assembler is not part of this module: tools/get-ptxas downloads it. Without it tests skip,
// see [Need].
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

	"github.com/lockstep-go/lockstep/internal/ptxlog"
)

// Environment variables.
const (
	envPath    = "LOCKSTEP_PTXAS"         // path of the assembler
	envRequire = "LOCKSTEP_REQUIRE_TOOLS" // if not empty, tests without a tool fail instead of skipping
	envCache   = "LOCKSTEP_PTXAS_CACHE"   // "off" disables the cache
)

// downloadDir is where tools/get-ptxas installs the assembler, below the module root.
var downloadDir = filepath.Join("bin", "ptxas-12.4")

var errNotFound = errors.New("ptxas: not found")

// find returns the path of ptxas: the value of LOCKSTEP_PTXAS, else the one that tools/get-ptxas
// installed for the enclosing module, else the first on PATH. The error is errNotFound if there is
// none, and another error if LOCKSTEP_PTXAS is not a program.
func find() (string, error) {
	if path := os.Getenv(envPath); path != "" {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("ptxas: %s: %w", envPath, err)
		}
		return filepath.Abs(found)
	}
	dir, err := moduleDir()
	if err != nil {
		return "", err
	}
	if dir != "" {
		if path, err := exec.LookPath(filepath.Join(dir, downloadDir, "ptxas")); err == nil {
			return path, nil
		}
	}
	if path, err := exec.LookPath("ptxas"); err == nil {
		return filepath.Abs(path)
	}
	return "", errNotFound
}

// moduleDir returns the nearest directory with a go.mod, from the working directory upward, or "".
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

// Assembler runs ptxas. It is safe for concurrent use.
type Assembler struct {
	path    string
	version string // the output of --version, which includes the build
	cache   cache
	slots   chan struct{} // a semaphore of running processes
}

// open returns the assembler at path. It runs at most GOMAXPROCS processes at a time. It caches
// outputs below lockstep/ptxas in the user's cache directory, unless LOCKSTEP_PTXAS_CACHE is "off".
func open(path string) (*Assembler, error) {
	out, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ptxas: %s --version: %w: %s", path, err, strings.TrimSpace(string(out)))
	}
	return &Assembler{
		path:    path,
		version: string(out),
		cache:   userCache(),
		slots:   make(chan struct{}, runtime.GOMAXPROCS(0)),
	}, nil
}

// Need returns the assembler that LOCKSTEP_PTXAS names, that tools/get-ptxas installed, or that is
// on PATH. If there is none, it skips the test. If LOCKSTEP_REQUIRE_TOOLS is set or the assembler
// does not run, it fails the test.
func Need(t testing.TB) *Assembler {
	t.Helper()
	a, err := shared()
	need(t, err)
	return a
}

var shared = sync.OnceValues(func() (*Assembler, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	return open(path)
})

func need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, errNotFound) && os.Getenv(envRequire) == "":
		t.Skipf("%v: run tools/get-ptxas or set %s", err, envPath)
	default:
		t.Fatalf("%v (%s=%q, %s=%q)", err, envPath, os.Getenv(envPath), envRequire, os.Getenv(envRequire))
	}
}

// Assemble assembles a text for a target such as "sm_80" and returns a report per entry name. If
// ptxas rejects the text, the error is a [*RejectedError].
func (a *Assembler) Assemble(text []byte, target string) (map[string]ptxlog.Report, error) {
	return a.assemble(Job{Text: text, Target: target})
}

func (a *Assembler) assemble(job Job) (map[string]ptxlog.Report, error) {
	text, options := job.Text, []string{"-v", "-arch=" + job.Target}
	if job.Linked {
		options = append(options, "--compile-only")
	}
	flags := strings.Join(options, " ")
	key := cacheKey(a.version, flags, text)
	out, hit := a.cache.load(key)
	if !hit {
		var err error
		if out, err = a.run(job, options); err != nil {
			return nil, err
		}
		a.cache.store(key, out)
	}
	reports, err := ptxlog.Parse(out, ptxlog.Entries(text))
	if err != nil {
		return nil, fmt.Errorf("ptxas %s: %w", flags, err)
	}
	return reports, nil
}

// run returns the output of ptxas -v for an accepted text.
func (a *Assembler) run(job Job, options []string) ([]byte, error) {
	a.slots <- struct{}{}
	defer func() { <-a.slots }()
	dir, err := os.MkdirTemp("", "lockstep-ptxas-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "text.ptx"), job.Text, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(a.path, append(options, "-o", "text.cubin", "text.ptx")...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return nil, parseRejection(out, job.Text, job.Target)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", a.path, strings.Join(options, " "), err, out)
	}
	return out, nil
}

// Job is an argument of AssembleAll.
type Job struct {
	Text   []byte
	Target string
	Linked bool // compile with --compile-only, as one of several texts to link
}

// Outcome is the result of a job, as of [Assembler.Assemble].
type Outcome struct {
	Reports map[string]ptxlog.Report
	Err     error
}

// AssembleAll assembles texts in parallel. The outcomes are in the order of the jobs.
func (a *Assembler) AssembleAll(jobs []Job) []Outcome {
	outcomes := make([]Outcome, len(jobs))
	var wg sync.WaitGroup
	for i, job := range jobs {
		wg.Go(func() {
			outcomes[i].Reports, outcomes[i].Err = a.assemble(job)
		})
	}
	wg.Wait()
	return outcomes
}
