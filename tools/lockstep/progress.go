package main

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

const (
	showAfter = time.Second            // shorter tasks show no bar
	throttle  = 100 * time.Millisecond // shortest time between two updates
)

// progress is the progress bar of a task. It is shown on a terminal only.
type progress struct {
	what  string
	total int64
	bytes bool // the unit is bytes

	mu    sync.Mutex
	done  int64
	bar   *progressbar.ProgressBar // nil: not shown
	timer *time.Timer
}

// progress starts a task of total items.
func (e *env) progress(what string, total int64) *progress {
	return e.begin(&progress{what: what, total: total})
}

// progressBytes starts a task of total bytes.
func (e *env) progressBytes(what string, total int64) *progress {
	return e.begin(&progress{what: what, total: total, bytes: true})
}

func (e *env) begin(p *progress) *progress {
	if isTerminal(e.errw) {
		p.show(e.errw, showAfter)
	}
	return p
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// show draws the bar after the given time.
func (p *progress) show(w io.Writer, while time.Duration) {
	p.bar = progressbar.NewOptions64(p.total,
		progressbar.OptionSetWriter(delayedWriter{w, time.Now().Add(while)}),
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

// delayedWriter discards what is written before a time.
type delayedWriter struct {
	io.Writer
	from time.Time
}

func (l delayedWriter) Write(b []byte) (int, error) {
	if time.Now().Before(l.from) {
		return len(b), nil
	}
	return l.Writer.Write(b)
}

// add counts n more items or bytes.
func (p *progress) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += int64(n)
	if p.bar != nil {
		p.bar.Add(n)
	}
}

// end removes the bar.
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
