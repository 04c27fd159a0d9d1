package mutate

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// Tally counts mutants by outcome.
type Tally struct{ Tried, Killed, Equivalent, Rejected int }

func (c *Tally) add(v Verdict) {
	c.Tried++
	switch {
	case v.Fate == Killed:
		c.Killed++
	case v.Fate == Rejected:
		c.Rejected++
	case v.Rule != "":
		c.Equivalent++
	}
}

// Survived returns the number of mutants that no case killed and no rule proved equivalent.
func (c Tally) Survived() int { return c.Tried - c.Killed - c.Equivalent - c.Rejected }

// KillRate returns the fraction of killed mutants, not counting equivalent and rejected ones.
func (c Tally) KillRate() float64 { return float64(c.Killed) / float64(c.Killed+c.Survived()) }

// Score is the tallies of a run.
type Score struct {
	Total    Tally
	Mutators map[string]*Tally
	Families map[string]*Tally
	rules    map[string]int
}

// NewScore counts verdicts.
func NewScore(m *Runner, verdicts []Verdict) Score {
	s := Score{Mutators: map[string]*Tally{}, Families: map[string]*Tally{}, rules: map[string]int{}}
	for _, v := range verdicts {
		s.Total.add(v)
		for key, to := range map[string]map[string]*Tally{v.Mutant.Mutator: s.Mutators, m.Family[v.Mutant.Kernel]: s.Families} {
			if to[key] == nil {
				to[key] = &Tally{}
			}
			to[key].add(v)
		}
		if v.Rule != "" {
			s.rules[v.Rule]++
		}
	}
	return s
}

// Write prints the tallies by mutator and by kernel family, and the number of mutants per
// equivalence rule.
func (s Score) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, part := range []struct {
		name string
		rows map[string]*Tally
	}{{"mutator", s.Mutators}, {"family", s.Families}, {"", map[string]*Tally{"all": &s.Total}}} {
		if part.name != "" {
			fmt.Fprintf(t, "%s\ttried\tkilled\tequivalent\trejected\tsurvived\tscore\n", part.name)
		}
		for _, name := range slices.Sorted(maps.Keys(part.rows)) {
			c := part.rows[name]
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t", name, c.Tried, c.Killed, c.Equivalent, c.Rejected, c.Survived())
			if c.Killed+c.Survived() > 0 {
				fmt.Fprintf(t, "%.1f%%", 100*c.KillRate())
			}
			fmt.Fprintln(t)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "equivalent, by rule:")
	for _, r := range rules {
		if n := s.rules[r.name]; n > 0 {
			fmt.Fprintf(t, "  %s\t%d\t%s\n", r.name, n, r.reason)
		}
	}
	return t.Flush()
}
