package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/lockstep-go/lockstep/model"
)

const (
	showAfter = time.Second            // shorter tasks show no progress
	throttle  = 100 * time.Millisecond // shortest time between two updates
)

// progress shows the progress of a task in one line of a terminal.
type progress struct {
	what  string
	total int64
	bytes bool // the unit is bytes

	mu           sync.Mutex
	done         int64
	begun        bool      // prompted was called
	free         int64     // the part of done that took no time
	out          io.Writer // nil: not shown
	start, drawn time.Time
	showAt       time.Time
	timer        *time.Timer
	width        int // of the drawn line
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
	if e.screen != nil {
		p.show(e.screen)
	}
	return p
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// show draws the progress on w after showAfter, and then at each update.
func (p *progress) show(w io.Writer) {
	p.out, p.start = w, time.Now()
	p.showAt = p.start.Add(showAfter)
	p.timer = time.AfterFunc(showAfter, func() { p.add(0) })
}

// add counts n more items or bytes.
func (p *progress) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(int64(n))
}

// skip counts n more items or bytes that took no time. It takes them back if n is negative.
func (p *progress) skip(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += n
	p.count(n)
}

// prompted counts the tokens of a prompt before a pass of its sequence. Those before the first
// pass took no time: the prefix cache had them.
func (p *progress) prompted(rows []model.Row) {
	if !rows[0].Prompt {
		return
	}
	done := int64(rows[0].Sequence.Len())
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun {
		p.begun, p.free = true, done
	}
	p.count(done - p.done)
}

func (p *progress) count(n int64) {
	p.done += n
	if now := time.Now(); p.out != nil && !now.Before(p.showAt) && now.Sub(p.drawn) >= throttle {
		p.drawn = now
		p.draw(now.Sub(p.start))
	}
}

func (p *progress) draw(elapsed time.Duration) {
	line := fmt.Sprintf("%s %3d%%, %d of %d", p.what, 100*p.done/max(p.total, 1), p.done, p.total)
	if p.bytes {
		line = fmt.Sprintf("%s %3d%%, %s of %s", p.what, 100*p.done/max(p.total, 1), size(p.done), size(p.total))
	}
	if p.done > p.free {
		if p.bytes {
			line += fmt.Sprintf(", %s/s", size(int64(float64(p.done-p.free)/elapsed.Seconds())))
		}
		left := time.Duration(float64(elapsed) * float64(p.total-p.done) / float64(p.done-p.free))
		line += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	fmt.Fprintf(p.out, "\r%-*s", p.width, line)
	p.width = len(line)
}

// end removes the line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil {
		return
	}
	p.timer.Stop()
	if p.width > 0 {
		fmt.Fprintf(p.out, "\r%*s\r", p.width, "")
	}
	p.out = nil
}

// uploadProgress shows the upload of weights to a GPU. It returns an
// accel.Options.Progress and a function that removes the line.
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
