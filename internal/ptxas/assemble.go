package ptxas

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Assemble assembles text for a target such as "sm_80" and reports on its entries,
// by name. If ptxas refuses the text the error is a [*Refusal].
func (a *Assembler) Assemble(text []byte, target string) (map[string]Report, error) {
	return a.assemble(Job{Text: text, Target: target})
}

func (a *Assembler) assemble(job Job) (map[string]Report, error) {
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
	reports, err := parse(out)
	if err == nil && len(reports) == 0 && bytes.Contains(text, []byte(".entry")) {
		err = fmt.Errorf("no entry in what it prints: %q", out)
	}
	if err != nil {
		return nil, fmt.Errorf("ptxas %s: %w", flags, err)
	}
	return reports, nil
}

// run returns what ptxas -v prints on a text that it accepts.
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
		return nil, refusal(out, job.Text, job.Target)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", a.path, strings.Join(options, " "), err, out)
	}
	return out, nil
}

// Job is a text to assemble for a target.
type Job struct {
	Text   []byte
	Target string
	Linked bool // as a driver's linker compiles, for which functions may be elsewhere
}

// Outcome is what [Assembler.Assemble] returns for a job.
type Outcome struct {
	Reports map[string]Report
	Err     error
}

// AssembleAll assembles several texts at a time, as many as the machine has
// processors for. The outcomes are in the order of the jobs.
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
