package emu

import (
	"slices"

	"github.com/lockstep-go/lockstep/driver"
)

// taskKind is what a stream can be asked to do.
type taskKind uint8

const (
	taskLaunch taskKind = iota
	taskWrite           // from src's bytes
	taskWriteAsync
	taskReadAsync
	taskCopy
	taskFill
	taskRecord
)

// task is one piece of a stream's work, or a node of a graph.
type task struct {
	kind   taskKind
	launch driver.Launch
	dst    driver.Address
	src    driver.Address
	host   []byte
	pinned *pinned
	offset int
	bytes  int64
	value  byte
	event  *event
	begins bool // a graph, which waits for all before it
}

type stream struct {
	object
	tasks   []task   // not yet run
	queued  int      // tasks so far
	done    int      // of them have run
	capture *capture // nil unless a capture is in progress
}

// NewStream makes a stream.
func (d *Device) NewStream() (driver.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("NewStream"); err != nil {
		return nil, err
	}
	s := &stream{object: d.object(&d.live.Streams)}
	d.streams[s] = true
	return s, nil
}

// put queues a task, or captures it. Late streams run it when something waits for it.
func (s *stream) put(op string, t task) error {
	if s.capture != nil {
		return s.capture.put(op, t)
	}
	s.tasks = append(s.tasks, t)
	s.queued++
	if s.d.opts.LateStreams {
		return nil
	}
	return s.runUntil(s.queued)
}

// runUntil runs the stream's work up to a task's number.
func (s *stream) runUntil(at int) error {
	for s.done < at && len(s.tasks) > 0 {
		t := s.tasks[0]
		s.tasks = s.tasks[1:]
		s.done++
		if err := s.d.perform(s, &t); err != nil {
			return err
		}
	}
	return s.d.fault
}

// perform does a task. A fault in asynchronous work takes the device.
func (d *Device) perform(s *stream, t *task) error {
	if d.fault != nil {
		return d.fault
	}
	if t.begins {
		d.chain++
	}
	switch t.kind {
	case taskLaunch:
		return d.launch(&t.launch)
	case taskRecord:
		if t.event.stream == s && t.event.at == s.done {
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

// transfer moves bytes. Its addresses were live when it was queued.
func (d *Device) transfer(t *task) error {
	d.chain++ // the next kernel waits for it
	at := t.dst
	if t.kind == taskReadAsync {
		at = t.src
	}
	if t.pinned != nil && t.pinned.closed {
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

// begin takes the device's lock and checks that the stream can be used; end lets go.
func (s *stream) begin(op string) error {
	s.d.mu.Lock()
	return s.usable(op)
}

func (s *stream) end() { s.d.mu.Unlock() }

// Launch checks kernels against their entries and queues them.
func (s *stream) Launch(launches ...driver.Launch) error {
	defer s.end()
	if err := s.begin("Launch"); err != nil {
		return err
	}
	for _, l := range launches {
		f, ok := l.Function.(*function)
		if !ok || f.module.d != s.d {
			return invalid("Launch", "the function is not of this device")
		}
		if err := f.module.usable("Launch"); err != nil {
			return err
		}
		if err := f.prog.check(&l, &s.d.props); err != nil {
			return err
		}
		l.Params = slices.Clone(l.Params)
		if err := s.put("Launch", task{kind: taskLaunch, launch: l}); err != nil {
			return err
		}
	}
	return nil
}

// queue checks the device ranges of a transfer and queues it.
func (s *stream) queue(op string, t task, ranges ...driver.Address) error {
	if t.bytes < 0 {
		return invalid(op, "%d bytes", t.bytes)
	}
	if t.bytes == 0 {
		return nil
	}
	for _, at := range ranges {
		if _, _, _, err := s.d.memory.find(uint64(at), t.bytes); err != nil {
			return invalid(op, "%v", err)
		}
	}
	return s.put(op, t)
}

// Write copies src to the device.
func (s *stream) Write(dst driver.Address, src []byte) error {
	defer s.end()
	if err := s.begin("Write"); err != nil {
		return err
	}
	return s.queue("Write", task{kind: taskWrite, dst: dst, host: slices.Clone(src), bytes: int64(len(src))}, dst)
}

// Read runs the stream's work and copies from the device.
func (s *stream) Read(dst []byte, src driver.Address) error {
	defer s.end()
	if err := s.begin("Read"); err != nil {
		return err
	}
	if s.capture != nil {
		return s.capture.refuse("Read")
	}
	if len(dst) == 0 {
		return s.runUntil(s.queued)
	}
	seg, off, _, err := s.d.memory.find(uint64(src), int64(len(dst)))
	if err != nil {
		return invalid("Read", "%v", err)
	}
	if err := s.runUntil(s.queued); err != nil {
		return err
	}
	copy(dst, seg.data[off:])
	return nil
}

// host checks a range of pinned memory.
func (s *stream) host(op string, p driver.Pinned, offset, bytes int) (*pinned, error) {
	mem, ok := p.(*pinned)
	if !ok || mem.d != s.d {
		return nil, invalid(op, "the pinned memory is not of this device")
	}
	if err := mem.usable(op); err != nil {
		return nil, err
	}
	if offset < 0 || bytes < 0 || offset > len(mem.bytes) || bytes > len(mem.bytes)-offset {
		return nil, invalid(op, "bytes %d to %d of %d pinned ones", offset, offset+bytes, len(mem.bytes))
	}
	return mem, nil
}

// WriteAsync queues a copy from pinned memory.
func (s *stream) WriteAsync(dst driver.Address, src driver.Pinned, offset, bytes int) error {
	defer s.end()
	if err := s.begin("WriteAsync"); err != nil {
		return err
	}
	mem, err := s.host("WriteAsync", src, offset, bytes)
	if err != nil {
		return err
	}
	return s.queue("WriteAsync", task{kind: taskWriteAsync, dst: dst, pinned: mem, offset: offset, bytes: int64(bytes)}, dst)
}

// ReadAsync queues a copy to pinned memory, which holds poison until it has run.
func (s *stream) ReadAsync(dst driver.Pinned, offset int, src driver.Address, bytes int) error {
	defer s.end()
	if err := s.begin("ReadAsync"); err != nil {
		return err
	}
	mem, err := s.host("ReadAsync", dst, offset, bytes)
	if err != nil {
		return err
	}
	if s.capture == nil {
		for i := range bytes {
			mem.bytes[offset+i] = poison
		}
	}
	return s.queue("ReadAsync", task{kind: taskReadAsync, src: src, pinned: mem, offset: offset, bytes: int64(bytes)}, src)
}

// Copy queues a copy within the device.
func (s *stream) Copy(dst, src driver.Address, bytes int64) error {
	defer s.end()
	if err := s.begin("Copy"); err != nil {
		return err
	}
	if dst < src+driver.Address(bytes) && src < dst+driver.Address(bytes) {
		return invalid("Copy", "the ranges overlap")
	}
	return s.queue("Copy", task{kind: taskCopy, dst: dst, src: src, bytes: bytes}, dst, src)
}

// Fill queues setting bytes.
func (s *stream) Fill(dst driver.Address, value byte, bytes int64) error {
	defer s.end()
	if err := s.begin("Fill"); err != nil {
		return err
	}
	return s.queue("Fill", task{kind: taskFill, dst: dst, value: value, bytes: bytes}, dst)
}
