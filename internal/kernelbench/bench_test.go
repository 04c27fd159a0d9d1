package kernelbench

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/moe"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// brief is the effort for the emulator, whose clock counts instructions.
var brief = effort{readBytes: 1 << 18, matrixIterations: 2, graph: time.Microsecond, total: time.Microsecond}

func TestRun(t *testing.T) {
	dev, _ := open(t)
	router := tiny.mixtures[0].routerCase(3)
	broken := router
	broken.Shape = "broken"
	broken.Launch = func(*Runner, *ptx.Kernel) (ptx.Launch, error) { return ptx.Launch{}, errors.New("no such shape") }
	hungry := router
	hungry.Shape = "hungry"
	hungry.Launch = func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
		r.Zeros(1 << 62)
		return router.Launch(r, k)
	}
	var shown []string
	rep, err := run(t.Context(), dev, []Case{router, broken, hungry}, brief, func(r Result) { shown = append(shown, r.Shape) })
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{router.Shape, "broken", "hungry"}; !slices.Equal(shown, want) {
		t.Errorf("shown: %q, want %q", shown, want)
	}
	good := rep.Results[0]
	if good.Err != "" || good.Unit != "B/s" || !(0 < good.Least && good.Least <= good.Seconds && good.Seconds <= good.Most) || good.Rate != good.Bytes/good.Seconds {
		t.Errorf("%+v", good)
	}
	for i, want := range []string{"no such shape", "memory"} {
		if r := rep.Results[i+1]; !strings.Contains(r.Err, want) || r.Seconds != 0 {
			t.Errorf("%+v, want the error %q", r, want)
		}
	}
	for name, x := range map[string]float64{"plain": rep.Limits.ReadPlain, "bulk": rep.Limits.ReadBulk, "mma.sync": rep.Limits.MMA, "wgmma": rep.Limits.WGMMA, "launch": rep.Limits.Launch} {
		if !(x > 0) {
			t.Errorf("the limit %s is %v", name, x)
		}
	}
	if _, err := json.Marshal(rep); err != nil {
		t.Error(err)
	}
}

func TestRunIsCanceled(t *testing.T) {
	dev, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := tiny.mixtures[0].routerCase(1)
	rep, err := run(ctx, dev, []Case{c, c}, brief, func(Result) { cancel() })
	if !errors.Is(err, context.Canceled) || len(rep.Results) != 1 {
		t.Errorf("%d results, error %v", len(rep.Results), err)
	}
}

func TestChoose(t *testing.T) {
	all := Cases(h200)
	if got := choose(all, nil); len(got) != len(all) {
		t.Errorf("%d of %d cases without an expression", len(got), len(all))
	}
	got := choose(all, regexp.MustCompile(`^moe_route .* 8 of 128$`))
	if len(got) != 2 {
		t.Errorf("%d cases of a router of 128, want two", len(got))
	}
	for _, c := range got {
		if _, ok := c.Spec.(kernel.Typed[moe.RouteArgs]); !ok {
			t.Errorf("%s matched", c.name())
		}
	}
}

func TestJudge(t *testing.T) {
	lim := Limits{ReadPlain: 3e12, ReadBulk: 4e12, MMA: 300e12, WGMMA: 400e12}
	for _, c := range []struct {
		name        string
		bytes, flop float64
		unit        string
		share       float64
	}{
		{"reads", 4e9, 0, "B/s", 0.5},
		{"computes", 1e9, 400e9, "FLOP/s", 0.5},
		{"computes a little", 4e9, 100e9, "B/s", 0.5},
	} {
		r := Result{Bytes: c.bytes, FLOP: c.flop, Seconds: 2e-3}
		if r.judge(lim); r.Unit != c.unit || r.Share != c.share {
			t.Errorf("%s: %s, share %v, want %s, %v", c.name, r.Unit, r.Share, c.unit, c.share)
		}
	}
	r := Result{Bytes: 1, Seconds: 1}
	if r.judge(Limits{}); r.Share != 0 {
		t.Errorf("without limits the share is %v", r.Share)
	}
}

func TestRatios(t *testing.T) {
	earlier := Report{Results: []Result{{Kernel: "gemv", Shape: "64×64", Seconds: 3}, {Kernel: "gemm", Shape: "64×64", Err: "broken"}}}
	for _, c := range []struct {
		name, reason string
		now          Result
		want         float64
	}{
		{"faster", "above 1", Result{Kernel: "gemv", Shape: "64×64", Seconds: 2}, 1.5},
		{"slower", "below 1", Result{Kernel: "gemv", Shape: "64×64", Seconds: 4}, 0.75},
		{"failed", "nothing was measured", Result{Kernel: "gemv", Shape: "64×64", Err: "broken"}, 0},
		{"failed before", "nothing was measured", Result{Kernel: "gemm", Shape: "64×64", Seconds: 2}, 0},
		{"new", "another shape", Result{Kernel: "gemv", Shape: "64×128", Seconds: 2}, 0},
	} {
		if got := (Report{Results: []Result{{}, c.now}}).Ratios(earlier); len(got) != 2 || got[1] != c.want {
			t.Errorf("%s: %v, want %v: %s", c.name, got, c.want, c.reason)
		}
	}
}

// The working sets exceed the L2 cache.
func TestDistinct(t *testing.T) {
	dev, lib := open(t) // the emulator reports no L2; distinct then assumes 1 MiB
	r, err := newRunner(dev, lib)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for _, c := range []struct {
		bytes int64
		want  int
	}{{1, 64}, {1 << 20, 4}, {3 << 19, 3}, {8 << 20, 2}, {16 << 20, 1}} {
		if got := r.distinct(c.bytes); got != c.want {
			t.Errorf("%d working sets of %d bytes, want %d", got, c.bytes, c.want)
		}
	}
}

// The names of the JSON fields are stable.
func TestJSON(t *testing.T) {
	text, err := json.Marshal(Report{Results: []Result{{Err: "e"}}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if names := strings.Join(slices.Sorted(maps.Keys(got)), " "); names != "benchmark device limits results version" {
		t.Errorf("a report has the fields %s", names)
	}
	for part, want := range map[string]string{
		"device":  "compute_capability driver_version l2_bytes memory_bytes name sms",
		"limits":  "copy_bytes_per_second launch_seconds mma_sync_flop_per_second read_bulk_bytes_per_second read_plain_bytes_per_second wgmma_flop_per_second",
		"results": "bytes error flop kernel least_seconds most_seconds rate seconds shape share_of_limit unit",
	} {
		var fields map[string]any
		if err := json.Unmarshal([]byte(strings.Trim(string(got[part]), "[]")), &fields); err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		if names := strings.Join(slices.Sorted(maps.Keys(fields)), " "); names != want {
			t.Errorf("%s has the fields %s, want %s", part, names, want)
		}
	}
}
