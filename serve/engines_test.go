package serve

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"runtime"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/internal/faultinject"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// testContext is the context of the models of these tests, several pages of the accelerator's cache.
const testContext = 256

// oneLayer returns a random llama of one layer with a vocabulary of bytes.
func oneLayer(t *testing.T) *model.Model {
	t.Helper()
	spec := tiny.New("llama", 1)
	spec.Set(".context_length", uint32(testContext))
	spec.OneLayer()
	spec.AddVocab(true)
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fixture is a server with its engine and device, closed by close.
type fixture struct {
	device *faultinject.Device // nil: the CPU
	engine model.Engine
	g      *generate.Generator
	server *Server
	http   *httptest.Server
	client *loadClient
}

// emulatorCache keeps decoded kernels for all emulated devices.
var emulatorCache emu.Cache

// openDevice opens an emulated device, or the first GPU.
func openDevice(t *testing.T, gpu bool) *faultinject.Device {
	t.Helper()
	open := func() (driver.Device, error) {
		return emu.Open(emu.Options{SMs: 1, IgnoreRaces: true, Cache: &emulatorCache})
	}
	if gpu {
		open = func() (driver.Device, error) { return cuda.Open(0) }
	}
	dev, err := open()
	if err != nil {
		t.Fatal(err)
	}
	return faultinject.New(dev)
}

// onAccelerator serves a model on a device.
func onAccelerator(t *testing.T, m *model.Model, dev *faultinject.Device, a accel.Options, o Options) *fixture {
	t.Helper()
	e, err := accel.New(t.Context(), m, dev, a)
	if err != nil {
		t.Fatal(err)
	}
	return newFixture(t, &fixture{device: dev, engine: e}, o)
}

// onReference serves a model on the CPU with a cache of some pages.
func onReference(t *testing.T, m *model.Model, pages int, o Options) *fixture {
	t.Helper()
	e, err := ref.New(m, ref.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return newFixture(t, &fixture{engine: &pagedEngine{Engine: e, pages: pages}}, o)
}

func newFixture(t *testing.T, r *fixture, o Options) *fixture {
	t.Helper()
	var err error
	if r.g, err = generate.New(r.engine, generate.Options{}); err != nil {
		t.Fatal(err)
	}
	if r.server, err = New(r.g, o); err != nil {
		t.Fatal(err)
	}
	r.http = httptest.NewServer(r.server)
	r.client = newLoadClient(r.http.URL)
	return r
}

// idle waits until no request is left.
func (r *fixture) idle(t *testing.T) {
	t.Helper()
	eventually(t, "no request is left", func() bool {
		r.server.mu.Lock()
		active := r.server.active
		r.server.mu.Unlock()
		l := r.g.Load()
		return active == 0 && l.Running == 0 && l.Waiting == 0 && l.Preempted == 0
	})
}

// close closes everything. No page of the cache and no object of the device may be left.
func (r *fixture) close(t *testing.T) {
	t.Helper()
	r.idle(t)
	r.client.http.CloseIdleConnections()
	r.http.Close()
	if err := r.g.Close(); err != nil {
		t.Error(err)
	}
	if l := r.engine.Limits(); l.FreePages != l.Pages {
		t.Errorf("%d of %d pages are free", l.FreePages, l.Pages)
	}
	if err := r.engine.Close(); err != nil {
		t.Error(err)
	}
	if r.device == nil {
		return
	}
	for _, o := range r.device.OpenObjects() {
		t.Errorf("not closed: %v", o)
	}
	if err := r.device.Close(); err != nil {
		t.Error(err)
	}
}

// leftovers counts what a test may not leave behind.
type leftovers struct{ goroutines, files int }

// countLeftovers counts goroutines and, on Linux, open files.
func countLeftovers() leftovers {
	files, _ := os.ReadDir("/proc/self/fd")
	return leftovers{runtime.NumGoroutine(), len(files)}
}

// check waits until no more is left than there was.
func (before leftovers) check(t *testing.T) {
	t.Helper()
	var now leftovers
	defer func() {
		if t.Failed() {
			t.Logf("left: %+v", now)
		}
	}()
	eventually(t, fmt.Sprintf("no more than %+v are left", before), func() bool {
		now = countLeftovers()
		return now.goroutines <= before.goroutines && now.files <= before.files
	})
}

// pagedEngine gives a cache of pages to an engine that limits no sequence.
type pagedEngine struct {
	model.Engine
	pages, used int
}

// pageTokens is the number of positions of a page of a pagedEngine.
const pageTokens = 16

// pagedSequence holds pages for its positions and for those that it has reserved.
type pagedSequence struct {
	model.Sequence
	engine *pagedEngine
	held   int
	out    int // pages that it held when it was swapped out
}

func (e *pagedEngine) Limits() model.Limits {
	l := e.Engine.Limits()
	l.Sequences, l.PageTokens, l.Pages, l.FreePages = 24, pageTokens, e.pages, e.pages-e.used
	return l
}

func (e *pagedEngine) NewSequence(capacity int) (model.Sequence, error) {
	s, err := e.Engine.NewSequence(capacity)
	if err != nil {
		return nil, err
	}
	return &pagedSequence{Sequence: s, engine: e}, nil
}

func (e *pagedEngine) Step(ctx context.Context, rows []model.Row) (model.Pass, error) {
	inner := make([]model.Row, len(rows))
	for i, r := range rows {
		s := r.Sequence.(*pagedSequence)
		if err := s.Reserve(s.Len() + max(len(r.Tokens), 1)); err != nil {
			return nil, err
		}
		inner[i] = r
		inner[i].Sequence = s.Sequence
	}
	return e.Engine.Step(ctx, inner)
}

func (e *pagedEngine) Choose(ctx context.Context, choices []model.Choose) (model.Pass, error) {
	inner := make([]model.Choose, len(choices))
	for i, c := range choices {
		inner[i] = c
		inner[i].Sequence = c.Sequence.(*pagedSequence).Sequence
	}
	return e.Engine.Choose(ctx, inner)
}

// hold makes the sequence hold n pages.
func (s *pagedSequence) hold(n int) error {
	e := s.engine
	if free := e.pages - e.used; n-s.held > free {
		return &model.CacheFullError{Need: n - s.held, Free: free, Pages: e.pages, PageTokens: pageTokens}
	}
	e.used += n - s.held
	s.held = n
	return nil
}

func pagesOf(positions int) int { return (positions + pageTokens - 1) / pageTokens }

func (s *pagedSequence) Reserve(n int) error { return s.hold(max(s.held, pagesOf(n))) }

func (s *pagedSequence) Truncate(n int) error {
	if err := s.Sequence.Truncate(n); err != nil {
		return err
	}
	return s.hold(pagesOf(n))
}

func (s *pagedSequence) Fork(n int) (model.Sequence, error) {
	inner, err := s.Sequence.Fork(n)
	if err != nil {
		return nil, err
	}
	fork := &pagedSequence{Sequence: inner, engine: s.engine}
	if err := fork.hold(pagesOf(n)); err != nil {
		inner.Close()
		return nil, err
	}
	return fork, nil
}

func (s *pagedSequence) SwapOut() error {
	if err := s.Sequence.SwapOut(); err != nil {
		return err
	}
	s.out = s.held
	return s.hold(0)
}

func (s *pagedSequence) SwapIn() error {
	if err := s.hold(s.out); err != nil {
		return err
	}
	return s.Sequence.SwapIn()
}

func (s *pagedSequence) Close() error {
	if err := s.hold(0); err != nil {
		return err
	}
	return s.Sequence.Close()
}
