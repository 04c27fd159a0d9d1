package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// quiet is how long something may last before it gets a progress bar.
const quiet = time.Second

// progress shows how far a long task is, on a terminal only.
type progress struct {
	w     io.Writer // nil: nothing is shown
	what  string
	bytes bool // the count is one of bytes
	total int64
	done  int64
	begin time.Time
	bar   *progressbar.ProgressBar // nil until the task has lasted for a while
}

// progress begins a task of a number of steps.
func (e *env) progress(what string, total int64) *progress {
	p := &progress{what: what, total: total, begin: time.Now()}
	if isTerminal(e.errw) {
		p.w = e.errw
	}
	return p
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// add counts n more steps.
func (p *progress) add(n int) {
	p.done += int64(n)
	switch {
	case p.w == nil:
	case p.bar != nil:
		p.bar.Add(n)
	case time.Since(p.begin) >= quiet:
		p.bar = progressbar.NewOptions64(p.total,
			progressbar.OptionSetWriter(p.w),
			progressbar.OptionSetDescription(p.what),
			progressbar.OptionShowBytes(p.bytes),
			progressbar.OptionShowCount(),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(true),
		)
		p.bar.Add64(p.done)
	}
}

// end takes the bar off the terminal.
func (p *progress) end() {
	if p.bar != nil {
		p.bar.Clear()
	}
}
