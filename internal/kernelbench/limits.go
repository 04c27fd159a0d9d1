package kernelbench

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/peak"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// MeasureLimits measures the limits of a device. It temporarily allocates up to half of the
// free memory.
func MeasureLimits(dev driver.Device) (Limits, error) {
	set := kernelcache.New(dev)
	defer set.Close()
	return measureLimits(dev, newLibrary(set), full)
}

func measureLimits(dev driver.Device, lib *library, e effort) (Limits, error) {
	var lim Limits
	r, err := newRunner(dev, lib)
	if err != nil {
		return lim, err
	}
	defer r.close()
	bytes := min(e.readBytes, r.halfOfMemory())
	in, out := r.Zeros(bytes), r.Zeros(1<<22)
	p := dev.Properties()
	sms := max(p.SMs, 1)
	for _, perSM := range []int{2, 4, 8} {
		s := peak.Read()
		l, err := r.launchOf(s, func(k *ptx.Kernel) (ptx.Launch, error) {
			return s.Launch(k, peak.ReadArgs{In: in, Out: out, Bytes: bytes, CTAs: perSM * sms})
		})
		rate, err := r.rate(l, float64(bytes), err)
		if err != nil {
			return lim, fmt.Errorf("read bandwidth: %w", err)
		}
		lim.ReadPlain = max(lim.ReadPlain, rate)
	}
	if p.ComputeCapability >= 90 {
		s := peak.BulkRead()
		chunks := int(bytes) / peak.BulkChunkBytes
		l, err := r.launchOf(s, func(k *ptx.Kernel) (ptx.Launch, error) {
			return s.Launch(k, peak.BulkReadArgs{In: in, Out: out, Chunks: chunks, CTAs: sms})
		})
		if lim.ReadBulk, err = r.rate(l, float64(chunks*peak.BulkChunkBytes), err); err != nil {
			return lim, fmt.Errorf("read bandwidth of bulk copies: %w", err)
		}
	}
	if lim.MMA, err = r.mmaRate(sms, e.matrixIterations, out); err != nil {
		return lim, fmt.Errorf("rate of mma.sync: %w", err)
	}
	if kernelcache.MaxTarget(p).HasWGMMA() {
		if lim.WGMMA, err = r.wgmmaRate(sms, e.matrixIterations); err != nil {
			return lim, fmt.Errorf("rate of wgmma: %w", err)
		}
	}
	if lim.Copy, err = r.copyRate(in, bytes/2); err != nil {
		return lim, fmt.Errorf("copy bandwidth: %w", err)
	}
	lim.Launch, err = r.launchTime(out)
	return lim, err
}

// halfOfMemory returns half of the free memory, in bytes.
func (r *Runner) halfOfMemory() int64 {
	free, _, err := r.dev.Memory()
	r.setErr(err)
	return free / 2 &^ (1<<20 - 1)
}

func (r *Runner) mmaRate(sms, iterations int, out uint64) (float64, error) {
	s := peak.MMA()
	args := peak.MMAArgs{Out: out, Iterations: iterations, CTAs: 2 * sms}
	l, err := r.launchOf(s, func(k *ptx.Kernel) (ptx.Launch, error) { return s.Launch(k, args) })
	return r.rate(l, args.FLOP(), err)
}

// wgmmaRate multiplies random numbers: with constants, the tensor cores need less power and run at
// higher clocks than any model can.
func (r *Runner) wgmmaRate(sms, iterations int) (float64, error) {
	s := peak.WGMMA()
	args := peak.WGMMAArgs{
		A: r.Normal(quant.F16, 64*64), B: r.Normal(quant.F16, 256*64), Out: r.Zeros(int64(sms) * 2 * 64 * 256 * 4),
		Iterations: max(1, iterations/8), CTAs: sms, // as many FLOP as mmaRate
	}
	l, err := r.launchOf(s, func(k *ptx.Kernel) (ptx.Launch, error) { return s.Launch(k, args) })
	return r.rate(l, args.FLOP(), err)
}

// launchOf builds and loads a kernel and returns its launch.
func (r *Runner) launchOf(s kernel.Spec, launch func(*ptx.Kernel) (ptx.Launch, error)) (driver.Launch, error) {
	k, err := r.lib.kernel(s)
	if err != nil {
		return driver.Launch{}, err
	}
	return r.lib.launch(launch(k))
}

// rate returns work divided by the median time of single launches, or err if it is not nil.
func (r *Runner) rate(l driver.Launch, work float64, err error) (float64, error) {
	if err != nil {
		return 0, err
	}
	return r.rateOf(work, func() error { return r.stream.Launch(l) })
}

func (r *Runner) rateOf(work float64, f func() error) (float64, error) {
	var times []float64
	for i := range 10 {
		d, err := r.time(f)
		if err != nil {
			return 0, err
		}
		if i >= 3 {
			times = append(times, d.Seconds())
		}
	}
	slices.Sort(times)
	seconds := median(times)
	if seconds <= 0 { // the emulator's clock may stand still
		return 0, r.err
	}
	return work / seconds, r.err
}

func (r *Runner) copyRate(from uint64, bytes int64) (float64, error) {
	to := from + uint64(bytes)
	return r.rateOf(2*float64(bytes), func() error {
		return r.stream.Copy(driver.Address(to), driver.Address(from), bytes)
	})
}

// launchTime returns the time per launch of a nearly empty kernel in a graph, in seconds.
func (r *Runner) launchTime(out uint64) (float64, error) {
	s := peak.MMA()
	l, err := r.launchOf(s, func(k *ptx.Kernel) (ptx.Launch, error) {
		return s.Launch(k, peak.MMAArgs{Out: out, Iterations: 0, CTAs: 1})
	})
	if err != nil {
		return 0, err
	}
	list := make([]driver.Launch, 200)
	for i := range list {
		list[i] = l
	}
	times, err := r.timeGraph(list, maxRepeats)
	if err != nil {
		return 0, err
	}
	return median(times), nil
}
