package faulty

import (
	"slices"

	"github.com/lockstep-go/lockstep/driver"
)

type stream struct{ object[driver.Stream] }

// NewStream makes a stream of the inner device.
func (d *Device) NewStream() (driver.Stream, error) {
	o, err := makeObject(d, DeviceNewStream, StreamClose, 0, d.inner.NewStream)
	if err != nil {
		return nil, err
	}
	return &stream{o}, nil
}

// Launch fails as a whole: no kernel of a launch that is to fail is queued.
func (s *stream) Launch(launches ...driver.Launch) error {
	return s.d.call(StreamLaunch, func() error {
		list := slices.Clone(launches) // the caller's are not to change
		for i := range list {
			list[i].Function = bare(list[i].Function)
		}
		return s.inner.Launch(list...)
	})
}

func (s *stream) Write(dst driver.Address, src []byte) error {
	return s.d.call(StreamWrite, func() error { return s.inner.Write(dst, src) })
}

func (s *stream) Read(dst []byte, src driver.Address) error {
	return s.d.call(StreamRead, func() error { return s.inner.Read(dst, src) })
}

func (s *stream) WriteAsync(dst driver.Address, src driver.Pinned, offset, bytes int) error {
	return s.d.call(StreamWriteAsync, func() error { return s.inner.WriteAsync(dst, bare(src), offset, bytes) })
}

func (s *stream) ReadAsync(dst driver.Pinned, offset int, src driver.Address, bytes int) error {
	return s.d.call(StreamReadAsync, func() error { return s.inner.ReadAsync(bare(dst), offset, src, bytes) })
}

func (s *stream) Copy(dst, src driver.Address, bytes int64) error {
	return s.d.call(StreamCopy, func() error { return s.inner.Copy(dst, src, bytes) })
}

func (s *stream) Fill(dst driver.Address, value byte, bytes int64) error {
	return s.d.call(StreamFill, func() error { return s.inner.Fill(dst, value, bytes) })
}

func (s *stream) Record(e driver.Event) error {
	return s.d.call(StreamRecord, func() error { return s.inner.Record(bare(e)) })
}

func (s *stream) Synchronize() error { return s.d.call(StreamSynchronize, s.inner.Synchronize) }

// Capture is three calls, because CUDA has one each to begin a capture, to end it and to
// instantiate the graph.
func (s *stream) Capture(record func() error) (driver.Graph, error) {
	o, err := makeObject(s.d, StreamCapture, GraphClose, 0, func() (driver.Graph, error) {
		g, err := s.inner.Capture(func() error {
			if err := record(); err != nil {
				return err
			}
			_, err := s.d.begin(StreamEndCapture)
			return err
		})
		if err != nil {
			return nil, err
		}
		if _, err := s.d.begin(StreamInstantiate); err != nil {
			g.Close()
			return nil, err
		}
		return g, nil
	})
	if err != nil {
		return nil, err
	}
	return &graph{o}, nil
}

type graph struct{ object[driver.Graph] }

func (g *graph) Launch(on driver.Stream) error {
	return g.d.call(GraphLaunch, func() error { return g.inner.Launch(bare(on)) })
}
