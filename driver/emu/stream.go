package emu

import (
	"errors"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/driver"
)

// taskKind is an operation of a stream.
type taskKind uint8

const (
	taskLaunch taskKind = iota
	taskWrite           // from host
	taskWriteAsync
	taskReadAsync
	taskCopy
	taskFill
	taskRecord
)

// task is an operation in a stream, or a node of a graph.
type task struct {
	kind        taskKind
	launch      driver.Launch
	dst         driver.Address
	src         driver.Address
	host        []byte
	pinned      *pinned
	offset      int // in pinned
	bytes       int64
	value       byte // of a fill
	event       *event
	beginsGraph bool // the first node of a graph
}

type stream struct {
	object  object
	tasks   []task      // not run yet
	queued  int         // number of tasks queued so far
	done    int         // number of tasks that have run
	capture *capture    // records instead of queueing; nil if not capturing
	stop    func() bool // see InterruptIf

	interrupted error // of a kernel; the next call that waits for the stream returns it
}

var _ driver.Interruptible = (*stream)(nil)

// InterruptIf stops kernels once stop returns true. A CTA asks it between turns.
func (s *stream) InterruptIf(stop func() bool) {
	s.object.dev.mu.Lock()
	defer s.object.dev.mu.Unlock()
	s.stop = stop
}

// NewStream returns a stream.
func (d *Device) NewStream() (driver.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("NewStream"); err != nil {
		return nil, err
	}
	s := &stream{object: d.newObject(&d.live.Streams)}
	d.streams[s] = true
	return s, nil
}

// put captures a task, or queues it and, unless streams are late, runs it.
func (s *stream) put(op string, t task) error {
	if s.capture != nil {
		return s.capture.put(op, t)
	}
	s.tasks = append(s.tasks, t)
	s.queued++
	if s.object.dev.opts.LateStreams {
		return nil
	}
	return s.runUntil(s.queued)
}

// runUntil runs tasks until n have run since the stream was made. If a kernel was interrupted,
// now or since the last call, it returns that once.
func (s *stream) runUntil(n int) error {
	if err := s.run(n); err != nil {
		return err
	}
	err := s.interrupted
	s.interrupted = nil
	return err
}

// run runs tasks until n have run. After an interrupted kernel, it goes on with the next task,
// which is interrupted too if it is a kernel.
func (s *stream) run(n int) error {
	for s.done < n && len(s.tasks) > 0 {
		t := s.tasks[0]
		s.tasks = s.tasks[1:]
		s.done++
		switch err := s.object.dev.perform(s, &t); {
		case errors.Is(err, driver.ErrInterrupted):
			s.interrupted = err
		case err != nil:
			return err
		}
	}
	return s.object.dev.fault
}

// perform runs a task. A fault in it loses the device.
func (d *Device) perform(s *stream, t *task) error {
	if d.fault != nil {
		return d.fault
	}
	if t.beginsGraph {
		d.chain++
	}
	switch t.kind {
	case taskLaunch:
		return d.launch(&t.launch, s.stop)
	case taskRecord:
		if t.event.stream == s && t.event.number == s.done {
			t.event.done, t.event.ticks = true, d.ticks
		}
	default:
		if err := d.transfer(t); err != nil {
			d.fault = err
			return err
		}
	}
	return nil
}

// transfer runs a task that moves bytes. Its memory was live when it was queued, and may not be
// now.
func (d *Device) transfer(t *task) error {
	d.chain++ // the next kernel begins after it
	at := t.dst
	if t.kind == taskReadAsync {
		at = t.src
	}
	if t.pinned != nil && t.pinned.object.closed {
		return &driver.Error{Op: "emu.Stream", Kind: driver.ErrDeviceLost, Detail: "a copy from or to " + t.pinned.seg.name}
	}
	seg, off, _, err := d.memory.find(uint64(at), t.bytes)
	if err != nil {
		return &driver.Error{Op: "emu.Stream", Kind: driver.ErrDeviceLost, Detail: err.Error()}
	}
	n := int(t.bytes)
	switch t.kind {
	case taskReadAsync:
		t.pinned.seg.copyFrom(t.offset, seg, off, n)
		return nil
	case taskWriteAsync:
		copy(seg.data[off:off+n], t.pinned.bytes[t.offset:])
	case taskWrite:
		copy(seg.data[off:off+n], t.host)
	case taskFill:
		for i := range n {
			seg.data[off+i] = t.value
		}
	case taskCopy:
		from, fromOff, _, err := d.memory.find(uint64(t.src), t.bytes)
		if err != nil {
			return &driver.Error{Op: "emu.Stream.Copy", Kind: driver.ErrDeviceLost, Detail: err.Error()}
		}
		seg.copyFrom(off, from, fromOff, n)
		return nil
	}
	seg.define(off, n)
	return nil
}

// doUncaptured is do for a call that cannot be captured.
func (s *stream) doUncaptured(op string, f func() error) error {
	return s.object.do(op, func() error {
		if s.capture != nil {
			return s.capture.refuse(op)
		}
		return f()
	})
}

// Launch checks kernels and queues them.
func (s *stream) Launch(launches ...driver.Launch) error {
	return s.object.do("Launch", func() error {
		for _, l := range launches {
			f, ok := l.Function.(*function)
			if !ok || f.module.object.dev != s.object.dev {
				return invalid("Launch", "the function is of another device")
			}
			if err := f.module.object.usable("Launch"); err != nil {
				return err
			}
			if err := f.prog.check(&l, &s.object.dev.props); err != nil {
				return err
			}
			l.Params = slices.Clone(l.Params)
			if err := s.put("Launch", task{kind: taskLaunch, launch: l}); err != nil {
				return err
			}
		}
		return nil
	})
}

// queue queues a transfer after checking its ranges in device memory.
func (s *stream) queue(op string, t task, ranges ...driver.Address) error {
	return s.object.do(op, func() error {
		if t.bytes < 0 {
			return invalid(op, "%d bytes", t.bytes)
		}
		if t.pinned != nil {
			if err := s.checkPinned(op, &t); err != nil {
				return err
			}
		}
		if t.bytes == 0 {
			return nil
		}
		for _, at := range ranges {
			if _, _, _, err := s.object.dev.memory.find(uint64(at), t.bytes); err != nil {
				return invalid(op, "%v", err)
			}
		}
		if t.kind == taskReadAsync && s.capture == nil {
			for i := range t.bytes {
				t.pinned.bytes[int64(t.offset)+i] = poison // until the task has run
			}
		}
		return s.put(op, t)
	})
}

// checkPinned checks the range of a transfer in pinned memory.
func (s *stream) checkPinned(op string, t *task) error {
	mem := t.pinned
	if mem.object.dev != s.object.dev {
		return invalid(op, "the pinned memory is of another device")
	}
	if err := mem.object.usable(op); err != nil {
		return err
	}
	if n := int64(len(mem.bytes)); t.offset < 0 || int64(t.offset) > n || t.bytes > n-int64(t.offset) {
		return invalid(op, "bytes %d to %d of %d pinned bytes", t.offset, int64(t.offset)+t.bytes, n)
	}
	return nil
}

// Write queues a copy to the device.
func (s *stream) Write(dst driver.Address, src []byte) error {
	return s.queue("Write", task{kind: taskWrite, dst: dst, host: slices.Clone(src), bytes: int64(len(src))}, dst)
}

// WriteAsync queues a copy from pinned memory.
func (s *stream) WriteAsync(dst driver.Address, src driver.Pinned, offset, bytes int) error {
	mem, ok := src.(*pinned)
	if !ok {
		return invalid("WriteAsync", "the pinned memory is of another device")
	}
	return s.queue("WriteAsync", task{kind: taskWriteAsync, dst: dst, pinned: mem, offset: offset, bytes: int64(bytes)}, dst)
}

// ReadAsync queues a copy to pinned memory.
func (s *stream) ReadAsync(dst driver.Pinned, offset int, src driver.Address, bytes int) error {
	mem, ok := dst.(*pinned)
	if !ok {
		return invalid("ReadAsync", "the pinned memory is of another device")
	}
	return s.queue("ReadAsync", task{kind: taskReadAsync, src: src, pinned: mem, offset: offset, bytes: int64(bytes)}, src)
}

// Copy queues a copy within the device.
func (s *stream) Copy(dst, src driver.Address, bytes int64) error {
	if dst < src+driver.Address(bytes) && src < dst+driver.Address(bytes) {
		return invalid("Copy", "the ranges overlap")
	}
	return s.queue("Copy", task{kind: taskCopy, dst: dst, src: src, bytes: bytes}, dst, src)
}

// Fill queues a fill with a byte.
func (s *stream) Fill(dst driver.Address, value byte, bytes int64) error {
	return s.queue("Fill", task{kind: taskFill, dst: dst, value: value, bytes: bytes}, dst)
}

// Read runs the tasks of the stream, and copies from the device.
func (s *stream) Read(dst []byte, src driver.Address) error {
	return s.doUncaptured("Read", func() error {
		if len(dst) == 0 {
			return s.runUntil(s.queued)
		}
		seg, off, _, err := s.object.dev.memory.find(uint64(src), int64(len(dst)))
		if err != nil {
			return invalid("Read", "%v", err)
		}
		if err := s.runUntil(s.queued); err != nil {
			return err
		}
		copy(dst, seg.data[off:])
		return nil
	})
}

// Record queues an event.
func (s *stream) Record(ev driver.Event) error {
	return s.doUncaptured("Record", func() error {
		e, ok := ev.(*event)
		if !ok || e.object.dev != s.object.dev {
			return invalid("Record", "the event is of another device")
		}
		if err := e.object.usable("Record"); err != nil {
			return err
		}
		e.stream, e.number, e.done = s, s.queued+1, false
		return s.put("Record", task{kind: taskRecord, event: e})
	})
}

// Synchronize runs the tasks of the stream.
func (s *stream) Synchronize() error {
	return s.doUncaptured("Synchronize", func() error { return s.runUntil(s.queued) })
}

// Close runs the tasks of the stream and closes it.
func (s *stream) Close() error {
	d := s.object.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if s.object.usable("Close") == nil {
		err = s.runUntil(s.queued)
	}
	if s.object.closeLocked() {
		delete(d.streams, s)
	}
	return err
}

type event struct {
	object object
	stream *stream // in which it was recorded last; nil if never
	number int     // of the task that recorded it
	ticks  int64   // Device.ticks when it happened
	done   bool    // it has happened
}

// NewEvent returns an event.
func (d *Device) NewEvent() (driver.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("NewEvent"); err != nil {
		return nil, err
	}
	return &event{object: d.newObject(&d.live.Events)}, nil
}

func (e *event) Synchronize() error {
	return e.object.do("Event.Synchronize", func() error {
		if e.stream == nil {
			return nil
		}
		return e.stream.runUntil(e.number)
	})
}

// Since counts executed warp instructions as nanoseconds.
func (e *event) Since(earlier driver.Event) (elapsed time.Duration, err error) {
	err = e.object.do("Event.Since", func() error {
		from, ok := earlier.(*event)
		if !ok || !e.done || !from.done {
			return invalid("Event.Since", "the event has not happened")
		}
		elapsed = time.Duration(e.ticks - from.ticks)
		return nil
	})
	return elapsed, err
}

func (e *event) Close() error { return e.object.Close() }
