package cuda

import (
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

func BenchmarkHardwareLaunch(b *testing.B) {
	d := gpu(b)
	f := kernel(b, d, "count_up")
	s := must(d.NewStream())(b)
	out := must(d.Alloc(4 * 64))(b)
	l := launchOf(f, 64, 64, pack(out.Address(), uint32(64), uint32(1)))
	for _, c := range []struct {
		name  string
		batch int
	}{{"1 per section", 1}, {"100 per section", 100}} {
		launches := make([]driver.Launch, c.batch)
		for i := range launches {
			launches[i] = l
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				ok(b, s.Launch(launches...))
				if i*c.batch%500 == 0 { // the queue holds about a thousand
					ok(b, s.Synchronize())
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.batch), "ns/launch")
		})
	}
}

func BenchmarkHardwareGraphLaunch(b *testing.B) {
	d := gpu(b)
	f := kernel(b, d, "count_up")
	s := must(d.NewStream())(b)
	out := must(d.Alloc(4 * 64))(b)
	l := launchOf(f, 64, 64, pack(out.Address(), uint32(64), uint32(1)))
	g := must(s.Capture(func() error {
		for range 100 {
			if err := s.Launch(l); err != nil {
				return err
			}
		}
		return nil
	}))(b)
	b.ReportAllocs()
	for b.Loop() {
		ok(b, g.Launch(s))
		ok(b, s.Synchronize())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*100), "ns/node")
}

func BenchmarkHardwareTransfer(b *testing.B) {
	d := gpu(b)
	s := must(d.NewStream())(b)
	const n = 256 << 20
	host := make([]byte, n)
	buf := must(d.Alloc(n))(b)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(n)
		for b.Loop() {
			ok(b, s.Write(buf.Address(), host))
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(n)
		for b.Loop() {
			ok(b, s.Read(host, buf.Address()))
		}
	})
}
