package conformance

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/ptxgen"
)

// KernelReport is what a run of the suite found.
type KernelReport struct {
	Device string      `json:"device"`
	Seed   uint64      `json:"seed"`
	Long   bool        `json:"long"`
	Cases  int         `json:"cases"`
	Failed int         `json:"failed"`
	Skips  int         `json:"skips"`
	Rows   []ReportRow `json:"rows"`
	// Unmeasured names kernels that an engine may ask for and that no case launched.
	Unmeasured []string `json:"unmeasured"`
	// Failures and Skipped are cases, by ID.
	Failures []string          `json:"failures"`
	Skipped  map[string]string `json:"skipped"`
}

// ReportRow sums up the cases of one operation and format.
type ReportRow struct {
	Operation string             `json:"operation"`
	Format    string             `json:"format"`
	Cases     int                `json:"cases"`
	Failed    int                `json:"failed"`
	Skips     int                `json:"skips"`
	Compared  int                `json:"compared"`
	Worst     map[string]float64 `json:"worst"` // by gate: the largest error ÷ bound
	Bias      float64            `json:"bias"`  // the largest |mean|·√n/σ
	Seconds   float64            `json:"seconds"`
}

// status says how the row came out: what was never compared has not passed.
func (r ReportRow) status() string {
	switch {
	case r.Failed > 0:
		return "FAILED"
	case r.Compared == 0:
		return "unmeasured"
	}
	return "ok"
}

// NewKernelReport sums up results. The kernels in reachable that none of them
// launched are unmeasured.
func NewKernelReport(s *KernelSuite, long bool, results []KernelResult, reachable []ptxgen.Spec) KernelReport {
	rep := KernelReport{Device: s.Device().Properties().Name, Seed: s.Seed, Long: long, Cases: len(results), Skipped: map[string]string{}}
	rows := map[[2]string]*ReportRow{}
	for _, r := range results {
		key := [2]string{r.Case.Operation, r.Case.Format}
		if rows[key] == nil {
			rows[key] = &ReportRow{Operation: key[0], Format: key[1], Worst: map[string]float64{}}
		}
		rows[key].add(r)
		if r.Failures > 0 {
			rep.Failures = append(rep.Failures, r.Case.ID())
		}
		if r.Skipped != "" {
			rep.Skipped[r.Case.ID()] = r.Skipped
		}
	}
	rep.Failed, rep.Skips = len(rep.Failures), len(rep.Skipped)
	for _, row := range slices.SortedFunc(maps.Values(rows), func(a, b *ReportRow) int {
		return cmp.Or(strings.Compare(a.Operation, b.Operation), strings.Compare(a.Format, b.Format))
	}) {
		rep.Rows = append(rep.Rows, *row)
	}
	ran := launched(results)
	for _, spec := range reachable {
		if !ran[spec.Name()] {
			rep.Unmeasured = append(rep.Unmeasured, spec.Name())
		}
	}
	return rep
}

func (row *ReportRow) add(r KernelResult) {
	row.Cases++
	row.Compared += r.Compared
	row.Seconds += r.Seconds
	row.Bias = max(row.Bias, r.Bias)
	if r.Failures > 0 {
		row.Failed++
	}
	if r.Skipped != "" {
		row.Skips++
	}
	for gate, ratio := range r.Worst {
		if old, ok := row.Worst[gate]; !ok || !(ratio <= old) {
			row.Worst[gate] = ratio
		}
	}
}

// Write prints the report as a table: of each gate the largest error ÷ bound.
func (rep KernelReport) Write(w io.Writer) error {
	fmt.Fprintf(w, "kernels on %s, seed %d: %d cases, %d failed, %d skipped\n", rep.Device, rep.Seed, rep.Cases, rep.Failed, rep.Skips)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "operation\tformat\tcases\tskips\tcompared\t%s\tbias\tseconds\t\n", strings.Join(Gates(), "\t"))
	for _, r := range rep.Rows {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t", r.Operation, r.Format, r.Cases, r.Skips, r.Compared)
		for _, gate := range Gates() {
			if ratio, ok := r.Worst[gate]; ok {
				fmt.Fprintf(t, "%.3g\t", ratio)
			} else {
				fmt.Fprint(t, "-\t")
			}
		}
		fmt.Fprintf(t, "%.1f\t%.2f\t%s\n", r.Bias, r.Seconds, r.status())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, name := range rep.Unmeasured {
		fmt.Fprintf(w, "unmeasured: no case launched %s\n", name)
	}
	return nil
}
