package ptxas

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Assemble assembles text for a target such as "sm_80" and reports on its entries,
// by name. If ptxas refuses the text the error is a [*Refusal].
func (a *Assembler) Assemble(text []byte, target string) (map[string]Report, error) {
	key := cacheKey(a.version, target, text)
	out, hit := a.cache.load(key)
	if !hit {
		var err error
		if out, err = a.run(text, target); err != nil {
			return nil, err
		}
		a.cache.store(key, out)
	}
	reports, err := parse(out)
	if err == nil && len(reports) == 0 && bytes.Contains(text, []byte(".entry")) {
		err = fmt.Errorf("no entry in what it prints: %q", out)
	}
	if err != nil {
		return nil, fmt.Errorf("ptxas -v -arch=%s: %w", target, err)
	}
	return reports, nil
}

// run returns what ptxas -v prints on a text that it accepts.
func (a *Assembler) run(text []byte, target string) ([]byte, error) {
	a.slots <- struct{}{}
	defer func() { <-a.slots }()
	dir, err := os.MkdirTemp("", "lockstep-ptxas-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "text.ptx"), text, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(a.path, "-v", "-arch="+target, "-o", "text.cubin", "text.ptx")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return nil, refusal(out, text, target)
	}
	if err != nil {
		return nil, fmt.Errorf("%s -arch=%s: %w: %s", a.path, target, err, out)
	}
	return out, nil
}

// Job is a text to assemble for a target.
type Job struct {
	Text   []byte
	Target string
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
			outcomes[i].Reports, outcomes[i].Err = a.Assemble(job.Text, job.Target)
		})
	}
	wg.Wait()
	return outcomes
}
