package main

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A bar comes when a task has lasted for a while, whether or not it has got anywhere by
// then, and changes no more often than one sees.
const (
	quiet    = time.Second
	throttle = 100 * time.Millisecond
)

// progress shows how far a long task is, on a terminal only.
type progress struct {
	what  string
	total int64
	bytes bool // the count is one of bytes

	mu    sync.Mutex
	done  int64
	bar   *progressbar.ProgressBar // nil: nothing is shown
	timer *time.Timer
}

// progress begins a task of a number of steps.
func (e *env) progress(what string, total int64) *progress {
	return e.begin(&progress{what: what, total: total})
}

// progressBytes begins a task of a number of bytes.
func (e *env) progressBytes(what string, total int64) *progress {
	return e.begin(&progress{what: what, total: total, bytes: true})
}

func (e *env) begin(p *progress) *progress {
	if isTerminal(e.errw) {
		p.show(e.errw, quiet)
	}
	return p
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// show has the bar drawn, once the task has lasted for a while.
func (p *progress) show(w io.Writer, while time.Duration) {
	p.bar = progressbar.NewOptions64(p.total,
		progressbar.OptionSetWriter(late{w, time.Now().Add(while)}),
		progressbar.OptionSetDescription(p.what),
		progressbar.OptionShowBytes(p.bytes),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(throttle),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(true),
	)
	p.bar.StartWithoutRender() // its clock
	p.timer = time.AfterFunc(while+throttle, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.bar != nil {
			p.bar.RenderBlank()
		}
	})
}

// late takes no notice of what is written before a time.
type late struct {
	io.Writer
	from time.Time
}

func (l late) Write(b []byte) (int, error) {
	if time.Now().Before(l.from) {
		return len(b), nil
	}
	return l.Writer.Write(b)
}

// add counts n more steps.
func (p *progress) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += int64(n)
	if p.bar != nil {
		p.bar.Add(n)
	}
}

// end takes the bar off the terminal.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		p.timer.Stop()
		p.bar.Clear()
		p.bar = nil
	}
}

// uploadProgress shows the upload of weights to a GPU. It returns an
// accel.Options.Progress and a function that removes the bar.
func (e *env) uploadProgress() (report func(done, total int64), end func()) {
	var p *progress
	shown := int64(0)
	report = func(done, total int64) {
		if p == nil {
			p = e.progressBytes("upload", total)
		}
		p.add(int(done - shown))
		shown = done
	}
	return report, func() {
		if p != nil {
			p.end()
		}
	}
}
