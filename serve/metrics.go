package serve

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lockstep-go/lockstep/generate"
)

// metrics are the Prometheus metrics of a server. If vLLM has a metric of the same meaning, it has
// vLLM's name and labels.
type metrics struct {
	registry *prometheus.Registry

	requests         *prometheus.CounterVec
	finished         *prometheus.CounterVec
	promptTokens     prometheus.Counter
	generationTokens prometheus.Counter

	firstToken, interToken, perToken, endToEnd prometheus.Histogram
	promptLength, generationLength, maxTokens  prometheus.Histogram
}

// Buckets of the histograms, in seconds and in tokens.
var (
	firstTokenBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	perTokenBuckets   = []float64{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	latencyBuckets    = []float64{.1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	tokenBuckets      = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6}
)

func newMetrics(model string, load func() generate.Load) *metrics {
	labels := prometheus.Labels{"model_name": model}
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels})
		m.registry.MustRegister(c)
		return c
	}
	counters := func(name, help string, by ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, by)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: labels, Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}
	m.finished = counters("vllm:request_success_total", "Completions that ended, by reason.", "finished_reason")
	m.promptTokens = counter("vllm:prompt_tokens_total", "Tokens of prompts.")
	m.generationTokens = counter("vllm:generation_tokens_total", "Generated tokens.")
	m.firstToken = histogram("vllm:time_to_first_token_seconds", "Time from the request to its first token.", firstTokenBuckets)
	m.interToken = histogram("vllm:inter_token_latency_seconds", "Time between two tokens of a completion.", perTokenBuckets)
	m.perToken = histogram("vllm:request_time_per_output_token_seconds", "Mean time between the tokens of a completion.", perTokenBuckets)
	m.endToEnd = histogram("vllm:e2e_request_latency_seconds", "Time from the request to its last token.", latencyBuckets)
	m.promptLength = histogram("vllm:request_prompt_tokens", "Tokens of the prompt of a completion.", tokenBuckets)
	m.generationLength = histogram("vllm:request_generation_tokens", "Generated tokens of a completion.", tokenBuckets)
	m.maxTokens = histogram("vllm:request_params_max_tokens", "max_tokens of a completion, if it was given.", tokenBuckets)
	m.requests = counters("lockstep_http_requests_total", "Requests by endpoint and status; 499: the client left.", "path", "status")
	m.registry.MustRegister(
		newLoadCollector(labels, load),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// request counts a request.
func (m *metrics) request(path string, status int) {
	m.requests.WithLabelValues(path, strconv.Itoa(status)).Inc()
}

// completionTimer measures one completion.
type completionTimer struct {
	m                  *metrics
	start, first, last time.Time
	tokens             int
}

func (m *metrics) start(promptTokens int, p *params) *completionTimer {
	m.promptTokens.Add(float64(promptTokens))
	m.promptLength.Observe(float64(promptTokens))
	if p.maxTokens >= 0 {
		m.maxTokens.Observe(float64(p.maxTokens))
	}
	return &completionTimer{m: m, start: time.Now()}
}

// token counts a token.
func (t *completionTimer) token() {
	now := time.Now()
	if t.tokens == 0 {
		t.first = now
		t.m.firstToken.Observe(now.Sub(t.start).Seconds())
	} else {
		t.m.interToken.Observe(now.Sub(t.last).Seconds())
	}
	t.last = now
	t.tokens++
	t.m.generationTokens.Inc()
}

// end counts the completion. out.finish is stop, length or abort.
func (t *completionTimer) end(out outcome) {
	t.m.finished.WithLabelValues(out.finish).Inc()
	t.m.generationTokens.Add(float64(out.tokens - t.tokens))
	t.m.generationLength.Observe(float64(out.tokens))
	if out.finish == "abort" {
		return
	}
	t.m.endToEnd.Observe(time.Since(t.start).Seconds())
	if t.tokens > 1 {
		t.m.perToken.Observe(t.last.Sub(t.first).Seconds() / float64(t.tokens-1))
	}
}

// loadCollector reports the scheduler's state at the time of the scrape.
type loadCollector struct {
	load    func() generate.Load
	metrics []loadMetric
}

type loadMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(generate.Load) float64
}

func newLoadCollector(labels prometheus.Labels, load func() generate.Load) *loadCollector {
	c := &loadCollector{load: load}
	for _, m := range []struct {
		name, help string
		kind       prometheus.ValueType
		of         func(generate.Load) float64
	}{
		{"vllm:num_requests_running", "Sequences that take part in steps.", prometheus.GaugeValue, func(l generate.Load) float64 { return float64(l.Running) }},
		{"vllm:num_requests_waiting", "Sequences that wait for room.", prometheus.GaugeValue, func(l generate.Load) float64 { return float64(l.Waiting) }},
		{"vllm:kv_cache_usage_perc", "Part of the KV cache's pages in use, 0 to 1.", prometheus.GaugeValue, cacheUsage},
		{"vllm:prefix_cache_queries_total", "Tokens of prompts that were looked up in the prefix cache.", prometheus.CounterValue, func(l generate.Load) float64 { return float64(l.PromptTokens + l.Prefix.Reused) }},
		{"vllm:prefix_cache_hits_total", "Tokens of prompts that were found in the prefix cache.", prometheus.CounterValue, func(l generate.Load) float64 { return float64(l.Prefix.Reused) }},
		{"vllm:num_preemptions_total", "Sequences that were moved to host memory to make room.", prometheus.CounterValue, func(l generate.Load) float64 { return float64(l.Preemptions) }},
		{"lockstep_steps_total", "Steps of the scheduler.", prometheus.CounterValue, func(l generate.Load) float64 { return float64(l.Steps) }},
		{"lockstep_failed_steps_total", "Steps that failed.", prometheus.CounterValue, func(l generate.Load) float64 { return float64(l.FailedSteps) }},
		{"lockstep_step_seconds", "Time of the last step.", prometheus.GaugeValue, func(l generate.Load) float64 { return l.StepTime.Seconds() }},
		{"lockstep_step_sequences", "Sequences in the last step.", prometheus.GaugeValue, func(l generate.Load) float64 { return float64(l.StepRows) }},
	} {
		c.metrics = append(c.metrics, loadMetric{prometheus.NewDesc(m.name, m.help, nil, labels), m.kind, m.of})
	}
	return c
}

func cacheUsage(l generate.Load) float64 {
	if l.Pages == 0 {
		return 0
	}
	return float64(l.Pages-l.FreePages) / float64(l.Pages)
}

// Describe implements prometheus.Collector.
func (c *loadCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *loadCollector) Collect(out chan<- prometheus.Metric) {
	load := c.load()
	for _, m := range c.metrics {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(load))
	}
}

// serveMetrics serves /metrics in Prometheus' text format.
func (s *Server) serveMetrics(x *exchange) error {
	x.status = http.StatusOK
	x.extend()
	promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(x.w, x.r)
	return nil
}
