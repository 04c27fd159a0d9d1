package serve

import (
	"errors"
	"flag"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/faultinject"
)

var longFaults = flag.Bool("long", false, "fail every device call in the tests of faults")

// faultRequests are sent at once while a device call fails. Together they make every kind of pass: a
// prompt, steps ahead, a fork, a mask and an embedding.
var faultRequests = []loadRequest{
	{textPath, `{"prompt":"first","max_tokens":4,"temperature":0,"ignore_eos":true}`},
	{textPath, `{"prompt":"second","max_tokens":3,"seed":1,"n":2,"repetition_penalty":1.3,"logprobs":2,"ignore_eos":true}`},
	{textPath, `{"prompt":"third","max_tokens":3,"seed":2,"guided_regex":"[a-z]{9}"}`},
	{embedPath, `{"input":"fourth"}`},
}

// faultEngine is large enough for all requests at once.
var faultEngine = accel.Options{KVPages: 12, MaxSequences: 4}

// together sends all faultRequests at once, and returns their answers in the same order. The first is
// streamed.
func together(t *testing.T, c *loadClient) []string {
	t.Helper()
	answers := make([]string, len(faultRequests))
	var wg sync.WaitGroup
	for i, r := range faultRequests {
		wg.Go(func() {
			var err error
			if i == 0 {
				answers[i], err = c.stream(r, 0, -1)
			} else {
				answers[i], err = c.whole(t.Context(), r)
			}
			if err != nil {
				t.Errorf("%s: %v", r.body, err)
			}
		})
	}
	wg.Wait()
	return answers
}

// compare demands that each answer is that of the request alone, or an error with the given status,
// also at the end of a stream, and text. It returns the number of errors.
func compare(t *testing.T, got, alone []string, status, text string) (failed int) {
	t.Helper()
	for i, answer := range got {
		switch {
		case answer == alone[i]:
		case status != "" && strings.Contains(answer, text) && (strings.HasPrefix(answer, status+` {"error":`) || strings.HasPrefix(answer, `200 {"error":`)):
			failed++
		default:
			t.Errorf("%s\n%s\nalone\n%s", faultRequests[i].body, answer, alone[i])
		}
	}
	return failed
}

// faultPlans returns the failures to try of the calls that were counted: of each kind the first and
// the middle one, with -long every one.
func faultPlans(counts map[faultinject.Call]int) (plans []faultinject.Plan) {
	for _, c := range slices.Sorted(maps.Keys(counts)) {
		for n := 1; n <= counts[c]; n++ {
			if n == 1 || n == counts[c]/2 || *longFaults {
				plans = append(plans, faultinject.Plan{Call: c, N: n})
			}
		}
	}
	return plans
}

// countCalls counts the calls of a device while f runs. It leaves out Closes: conformance fails them.
func countCalls(dev *faultinject.Device, f func()) map[faultinject.Call]int {
	before := len(dev.Calls())
	f()
	counts := map[faultinject.Call]int{}
	for _, c := range dev.Calls()[before:] {
		if !c.Closes() {
			counts[c]++
		}
	}
	return counts
}

// TestFaults fails device calls while requests run. A request succeeds or gets an error with the
// driver's reason. The server stays ready, and the next requests succeed.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("runs dozens of requests on the emulator")
	}
	before := countLeftovers()
	dev := openDevice(t, false)
	r := onAccelerator(t, oneLayer(t), dev, faultEngine, Options{})
	var alone []string
	for _, q := range faultRequests {
		answer, err := r.client.whole(t.Context(), q)
		if err != nil || !strings.HasPrefix(answer, "{") {
			t.Fatalf("%s: %s, error %v", q.body, answer, err)
		}
		alone = append(alone, answer)
	}
	compare(t, together(t, r.client), alone, "", "") // loads the kernels of several sequences
	counts := countCalls(dev, func() { compare(t, together(t, r.client), alone, "", "") })
	fired := map[faultinject.Call]int{}
	failed := 0
	for _, p := range faultPlans(counts) {
		t.Run(p.String(), func(t *testing.T) {
			injected := len(dev.Injected())
			dev.Fail(p)
			failed += compare(t, together(t, r.client), alone, "500", "faultinject."+p.Call.String())
			dev.Fail(faultinject.Plan{})
			fired[p.Call] += len(dev.Injected()) - injected
			if h := ask(t, "GET", r.http.URL+"/health", ""); h.status != 200 {
				t.Errorf("/health: status %d: %s", h.status, h.body)
			}
			compare(t, together(t, r.client), alone, "", "")
		})
	}
	t.Logf("calls %v, failed %v: %d of %d requests failed", counts, fired, failed, len(faultPlans(counts))*len(faultRequests))
	for _, c := range []faultinject.Call{
		faultinject.StreamLaunch, faultinject.StreamWriteAsync, faultinject.StreamReadAsync, faultinject.StreamCopy,
		faultinject.StreamRecord, faultinject.EventSynchronize,
	} {
		if fired[c] == 0 {
			t.Errorf("no %v failed", c)
		}
	}
	if failed == 0 {
		t.Error("no request failed")
	}
	r.close(t)
	before.check(t)
}

// TestDeviceLost loses the device at a call while the first requests of a server run. A request
// succeeds or says that the device is lost. So does each later request, at once, and /health.
func TestDeviceLost(t *testing.T) {
	before := countLeftovers()
	m := oneLayer(t)
	var alone []string
	// run serves the requests on a device that fails as planned. It reports whether the call of the plan was made.
	run := func(t *testing.T, p faultinject.Plan) (counts map[faultinject.Call]int, made bool) {
		dev := openDevice(t, false)
		r := onAccelerator(t, m, dev, faultEngine, Options{})
		defer r.close(t)
		dev.Fail(p)
		var got []string
		counts = countCalls(dev, func() { got = together(t, r.client) })
		if p.N == 0 {
			alone = got
			return counts, true
		}
		compare(t, got, alone, "503", `"code":"device_lost"`)
		if !errors.Is(dev.Err(), driver.ErrDeviceLost) {
			dev.Fail(faultinject.Plan{})
			return nil, false
		}
		for i, answer := range together(t, r.client) {
			if !strings.HasPrefix(answer, "503 ") || !strings.Contains(answer, `"code":"device_lost"`) {
				t.Errorf("afterwards: %s: %s", faultRequests[i].body, answer)
			}
		}
		h := ask(t, "GET", r.http.URL+"/health", "")
		if message, _, _, code := errorOf(t, h); h.status != 503 || code != "device_lost" || !strings.Contains(message, "faultinject."+p.Call.String()) {
			t.Errorf("/health: status %d: %s", h.status, h.body)
		}
		for _, path := range []string{"/v1/models", "/metrics", loadPath} {
			if w := ask(t, "GET", r.http.URL+path, ""); w.status != 200 {
				t.Errorf("%s: status %d: %s", path, w.status, w.body)
			}
		}
		return nil, true
	}
	counts, _ := run(t, faultinject.Plan{})
	for i, answer := range alone {
		if !strings.HasPrefix(answer, "{") {
			t.Fatalf("%s: %s", faultRequests[i].body, answer)
		}
	}
	t.Log(counts)
	plans := faultPlans(counts)
	if testing.Short() {
		plans = plans[len(plans)-1:]
	}
	for _, p := range plans {
		if p.Kind = driver.ErrDeviceLost; *longFaults || p.N == 1 {
			t.Run(p.String(), func(t *testing.T) {
				for range 10 { // a call may depend on which requests share a step
					if _, made := run(t, p); made {
						return
					}
				}
				t.Error("the call was never made")
			})
		}
	}
	before.check(t)
}
