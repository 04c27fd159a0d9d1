package harness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/ptxgen/kernel"
)

// Report summarizes a run of the suite.
type Report struct {
	Device   string  `json:"device"`
	Seed     uint64  `json:"seed"`
	Long     bool    `json:"long"`
	Cases    int     `json:"cases"`
	Failed   int     `json:"failed"`
	Skips    int     `json:"skips"`
	Compared int     `json:"compared"` // elements
	Launched int     `json:"launched"` // distinct kernels
	Seconds  float64 `json:"seconds"`
	Rows     []Row   `json:"rows"`
	// Unmeasured lists the kernels that an engine may ask for and that no case launched.
	Unmeasured []string `json:"unmeasured"`
	// Failures and Skipped list cases by ID.
	Failures []string          `json:"failures"`
	Skipped  map[string]string `json:"skipped"`
}

// Row summarizes the cases of one operation and format.
type Row struct {
	Operation string           `json:"operation"`
	Format    string           `json:"format"`
	Cases     int              `json:"cases"`
	Failed    int              `json:"failed"`
	Skips     int              `json:"skips"`
	Compared  int              `json:"compared"`
	Worst     map[string]Ratio `json:"worst"` // per check, the largest error divided by its bound
	Bias      Ratio            `json:"bias"`  // the largest |mean|·√n/σ
	Seconds   float64          `json:"seconds"`
}

// Ratio is an error divided by its bound. In JSON, NaN and infinities are strings.
type Ratio float64

// MarshalJSON implements json.Marshaler.
func (r Ratio) MarshalJSON() ([]byte, error) {
	if x := float64(r); math.IsInf(x, 0) || math.IsNaN(x) {
		return json.Marshal(strconv.FormatFloat(x, 'g', -1, 64))
	}
	return json.Marshal(float64(r))
}

// Status returns "FAILED", "unmeasured" if nothing was compared, or "ok".
func (r Row) Status() string {
	switch {
	case r.Failed > 0:
		return "FAILED"
	case r.Compared == 0:
		return "unmeasured"
	}
	return "ok"
}

// NewReport summarizes results. Unmeasured lists the kernels of reachable that no result
// launched.
func NewReport(s *Suite, long bool, results []Result, reachable []kernel.Spec) Report {
	rep := Report{Device: s.Device().Properties().Name, Seed: s.Seed, Long: long, Cases: len(results), Skipped: map[string]string{}}
	rep.Rows, rep.Unmeasured, rep.Failures = []Row{}, []string{}, []string{} // [] in JSON, not null
	rows := map[[2]string]*Row{}
	for _, r := range results {
		key := [2]string{r.Case.Operation, r.Case.Format}
		if rows[key] == nil {
			rows[key] = &Row{Operation: key[0], Format: key[1], Worst: map[string]Ratio{}}
		}
		rows[key].add(r)
		rep.Compared += r.Compared
		rep.Seconds += r.Seconds
		if r.Failures > 0 {
			rep.Failures = append(rep.Failures, r.Case.ID())
		}
		if r.Skipped != "" {
			rep.Skipped[r.Case.ID()] = r.Skipped
		}
	}
	rep.Failed, rep.Skips = len(rep.Failures), len(rep.Skipped)
	for _, row := range slices.SortedFunc(maps.Values(rows), func(a, b *Row) int {
		return cmp.Or(strings.Compare(a.Operation, b.Operation), strings.Compare(a.Format, b.Format))
	}) {
		rep.Rows = append(rep.Rows, *row)
	}
	ran := launchedKernels(results)
	rep.Launched = len(ran)
	for _, spec := range reachable {
		if !ran[spec.Name()] {
			rep.Unmeasured = append(rep.Unmeasured, spec.Name())
		}
	}
	return rep
}

func (row *Row) add(r Result) {
	row.Cases++
	row.Compared += r.Compared
	row.Seconds += r.Seconds
	row.Bias = max(row.Bias, Ratio(r.Bias))
	if r.Failures > 0 {
		row.Failed++
	}
	if r.Skipped != "" {
		row.Skips++
	}
	for check, ratio := range r.Worst {
		if old, ok := row.Worst[check]; !ok || !(Ratio(ratio) <= old) {
			row.Worst[check] = Ratio(ratio)
		}
	}
}

// Write prints the report as a table.
func (rep Report) Write(w io.Writer) error {
	fmt.Fprintf(w, "kernels on %s, seed %d: %d cases of %d kernels, %d failed, %d skipped; %d numbers compared in %.0f s\n",
		rep.Device, rep.Seed, rep.Cases, rep.Launched, rep.Failed, rep.Skips, rep.Compared, rep.Seconds)
	fmt.Fprintf(w, "largest error / bound per check, limit 1; bias in standard errors, limit %d\n", biasLimit)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "operation\tformat\tcases\tfailed\tskips\tcompared\t%s\tbias\tseconds\t\n", strings.Join(Checks(), "\t"))
	for _, r := range rep.Rows {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t", r.Operation, r.Format, r.Cases, r.Failed, r.Skips, r.Compared)
		for _, check := range Checks() {
			if ratio, ok := r.Worst[check]; ok {
				fmt.Fprintf(t, "%.3g\t", ratio)
			} else {
				fmt.Fprint(t, "-\t")
			}
		}
		if r.Bias != 0 {
			fmt.Fprintf(t, "%.1f\t", r.Bias)
		} else {
			fmt.Fprint(t, "-\t")
		}
		fmt.Fprintf(t, "%.2f\t%s\n", r.Seconds, r.Status())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, name := range rep.Unmeasured {
		fmt.Fprintf(w, "unmeasured: no case launched %s\n", name)
	}
	return nil
}
