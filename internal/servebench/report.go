package servebench

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
)

// Benchmark and Version tell that JSON is that of a Report, and how to read it.
const (
	Benchmark = "serve"
	Version   = 1
)

// Report is a whole run. Its JSON is stable: fields keep their names, meaning and SI units,
// and Version counts incompatible changes.
type Report struct {
	Benchmark string      `json:"benchmark"` // the constant Benchmark
	Version   int         `json:"version"`
	Date      string      `json:"date"` // ISO 8601
	URL       string      `json:"url"`
	Endpoint  string      `json:"endpoint"`
	Model     string      `json:"model"`
	Load      Description `json:"load"`

	Seconds   float64   `json:"seconds"` // from the first request sent to the last end
	Sent      int       `json:"sent"`
	Succeeded int       `json:"succeeded"`
	Canceled  int       `json:"canceled,omitempty"` // in flight when the run was interrupted
	Failures  []Failure `json:"failures"`           // most frequent first
	Peak      int       `json:"peak_in_flight"`

	// Tokens of the requests that succeeded.
	PromptTokens int `json:"prompt_tokens"`
	OutputTokens int `json:"output_tokens"`
	// Uncounted is the number of answers without usage. Their events count as output tokens,
	// and their prompts as 0 tokens.
	Uncounted int `json:"uncounted,omitempty"`
	// Short is the number of answers with fewer tokens than requested.
	Short int `json:"short,omitempty"`

	RequestRate float64  `json:"requests_per_second"`
	OutputRate  float64  `json:"output_tokens_per_second"`
	TotalRate   float64  `json:"total_tokens_per_second"` // with prompts
	Goodput     *Goodput `json:"goodput,omitempty"`       // nil: no limits

	// Latencies of the requests that succeeded, in seconds.
	FirstToken Distribution `json:"time_to_first_token"`
	// Gap has each time between two events with output. An event may have several tokens.
	Gap Distribution `json:"time_between_tokens"`
	// PerToken has, for each request, the time from the first to the last event divided by
	// the number of tokens after the first.
	PerToken Distribution `json:"time_per_output_token"`
	EndToEnd Distribution `json:"end_to_end"`
	// Lag is the time from when a request was due until it was sent.
	Lag Distribution `json:"lag"`

	Requests []Record `json:"requests"` // in order of arrival

	firstToken, gaps, endToEnd []float64 // sorted
}

// Description describes the load of a report.
type Description struct {
	Arrivals     string         `json:"arrivals"`       // "poisson", "at once", "trace" or "closed loop"
	Rate         float64        `json:"rate,omitempty"` // per second, of "poisson"
	Concurrency  int            `json:"concurrency,omitempty"`
	Requests     int            `json:"requests"`
	Prompt       string         `json:"prompt_tokens,omitempty"` // a distribution; "": of the trace
	Output       string         `json:"output_tokens,omitempty"`
	Prefixes     int            `json:"prefixes,omitempty"`
	PrefixTokens int            `json:"prefix_tokens,omitempty"`
	Content      string         `json:"content"`
	Seed         uint64         `json:"seed"`
	Warmup       int            `json:"warmup"`
	Extra        map[string]any `json:"extra,omitempty"`
}

// Failure counts the errors of one kind.
type Failure struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
	First string `json:"first"` // message
}

// Distribution summarizes values. A percentile is the smallest value that is at least as
// large as that share of all values. Without values, Distribution is zero.
type Distribution struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Limits are the largest latencies of a request that counts as Goodput. 0: no limit.
type Limits struct {
	FirstToken time.Duration // time to first token
	Gap        time.Duration // largest time between tokens
}

// Goodput counts the requests that succeeded within the limits.
type Goodput struct {
	FirstTokenLimit float64 `json:"time_to_first_token_limit,omitempty"` // seconds; 0: none
	GapLimit        float64 `json:"time_between_tokens_limit,omitempty"`
	Requests        int     `json:"requests"`
	Rate            float64 `json:"requests_per_second"`
	Share           float64 `json:"share"` // of the requests sent and not canceled
}

// Record is one request. Times are in seconds; those of events that did not happen are 0.
type Record struct {
	Due          float64 `json:"due"` // after the start
	Lag          float64 `json:"lag"`
	FirstToken   float64 `json:"time_to_first_token"`
	LargestGap   float64 `json:"largest_gap"`
	EndToEnd     float64 `json:"end_to_end"`
	PromptTokens int     `json:"prompt_tokens"`
	OutputTokens int     `json:"output_tokens"`
	Error        string  `json:"error,omitempty"` // kind; "canceled" if the run was interrupted
}

const canceled = "canceled"

// report summarizes the results. content describes the prompts.
func (r *runner) report(content string) Report {
	rep := Report{
		Benchmark: Benchmark, Version: Version, Date: r.begin.UTC().Format(time.RFC3339),
		URL: r.options.Target.URL, Endpoint: r.options.Target.endpoint(), Model: r.options.Target.Model,
		Load: r.describe(content), Peak: int(r.peak.Load()), Failures: []Failure{}, Requests: []Record{},
	}
	var first, end time.Time
	var perToken, lag []float64
	for i, res := range r.results {
		if res == nil {
			continue
		}
		a := &res.answer
		if rep.Sent == 0 || a.sent.Before(first) {
			first = a.sent
		}
		if a.end.After(end) {
			end = a.end
		}
		rep.Sent++
		rec := r.record(res)
		rep.Requests = append(rep.Requests, rec)
		lag = append(lag, rec.Lag)
		if res.err != nil {
			rep.fail(rec.Error, res.err)
			continue
		}
		rep.Succeeded++
		rep.PromptTokens += rec.PromptTokens
		rep.OutputTokens += rec.OutputTokens
		if a.usage == nil {
			rep.Uncounted++
		}
		if rec.OutputTokens < r.prompts.plan[i].OutputTokens {
			rep.Short++
		}
		rep.endToEnd = append(rep.endToEnd, rec.EndToEnd)
		if a.chunks > 0 {
			rep.firstToken = append(rep.firstToken, rec.FirstToken)
		}
		for _, gap := range a.gaps {
			rep.gaps = append(rep.gaps, gap.Seconds())
		}
		if rec.OutputTokens > 1 && a.chunks > 1 {
			perToken = append(perToken, a.last.Sub(a.first).Seconds()/float64(rec.OutputTokens-1))
		}
	}
	rep.Seconds = end.Sub(first).Seconds()
	rep.FirstToken, rep.Gap, rep.PerToken = distribution(rep.firstToken), distribution(rep.gaps), distribution(perToken)
	rep.EndToEnd, rep.Lag = distribution(rep.endToEnd), distribution(lag)
	slices.SortStableFunc(rep.Failures, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind))
	})
	if rep.Seconds > 0 {
		rep.RequestRate = float64(rep.Succeeded) / rep.Seconds
		rep.OutputRate = float64(rep.OutputTokens) / rep.Seconds
		rep.TotalRate = float64(rep.PromptTokens+rep.OutputTokens) / rep.Seconds
	}
	rep.Goodput = rep.goodput(r.options.Limits)
	return rep
}

// record returns the measurements of one request.
func (r *runner) record(res *result) Record {
	a := &res.answer
	rec := Record{Due: res.due.Sub(r.begin).Seconds(), Lag: a.sent.Sub(res.due).Seconds(), EndToEnd: a.end.Sub(a.sent).Seconds()}
	if a.chunks > 0 {
		rec.FirstToken = a.first.Sub(a.sent).Seconds()
	}
	if len(a.gaps) > 0 {
		rec.LargestGap = slices.Max(a.gaps).Seconds()
	}
	rec.OutputTokens = a.outputTokens()
	if a.usage != nil {
		rec.PromptTokens = a.usage.PromptTokens
	}
	var f *failure
	switch {
	case errors.As(res.err, &f):
		rec.Error = f.kind
	case res.err != nil:
		rec.Error = canceled
	}
	return rec
}

// fail counts a request that failed.
func (rep *Report) fail(kind string, err error) {
	if kind == canceled {
		rep.Canceled++
		return
	}
	i := slices.IndexFunc(rep.Failures, func(f Failure) bool { return f.Kind == kind })
	if i < 0 {
		i = len(rep.Failures)
		rep.Failures = append(rep.Failures, Failure{Kind: kind, First: errors.Unwrap(err).Error()})
	}
	rep.Failures[i].Count++
}

func (r *runner) describe(content string) Description {
	l := r.options.Load
	d := Description{
		Arrivals: "poisson", Rate: l.Rate, Concurrency: l.Concurrency, Requests: len(r.prompts.plan),
		Prompt: l.Prompt.String(), Output: l.Output.String(),
		Prefixes: l.Prefixes, PrefixTokens: l.PrefixTokens,
		Content: content, Seed: l.Seed, Warmup: r.options.Warmup, Extra: r.options.Target.Extra,
	}
	if l.Trace != nil {
		d.Arrivals, d.Prompt, d.Output = "trace", "", ""
	}
	switch {
	case l.Concurrency > 0:
		d.Arrivals = "closed loop"
	case math.IsInf(l.Rate, 1):
		d.Arrivals, d.Rate = "at once", 0
	}
	return d
}

// distribution sorts and summarizes values.
func distribution(values []float64) Distribution {
	if len(values) == 0 {
		return Distribution{}
	}
	slices.Sort(values)
	at := func(p float64) float64 { return stat.Quantile(p, stat.Empirical, values, nil) }
	return Distribution{len(values), stat.Mean(values, nil), at(0.5), at(0.9), at(0.99), values[len(values)-1]}
}

// goodput returns nil without limits.
func (rep *Report) goodput(l Limits) *Goodput {
	if l == (Limits{}) {
		return nil
	}
	g := &Goodput{FirstTokenLimit: l.FirstToken.Seconds(), GapLimit: l.Gap.Seconds()}
	for _, rec := range rep.Requests {
		if rec.Error == "" && (l.FirstToken == 0 || rec.FirstToken <= g.FirstTokenLimit) && (l.Gap == 0 || rec.LargestGap <= g.GapLimit) {
			g.Requests++
		}
	}
	if rep.Seconds > 0 {
		g.Rate = float64(g.Requests) / rep.Seconds
	}
	if n := rep.Sent - rep.Canceled; n > 0 {
		g.Share = float64(g.Requests) / float64(n)
	}
	return g
}

// maxLag is the largest 99th percentile of the lag of a generator that keeps up, in seconds.
// Timers and connections take less. More is not negligible next to the time to first token.
const maxLag = 0.010

// FellBehind reports whether the generator itself sent requests late, so that arrivals were
// not those of the load.
func (rep *Report) FellBehind() bool { return rep.Lag.P99 > maxLag }
