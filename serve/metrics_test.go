package serve

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/generate"
)

// scrape returns the samples of /metrics by name with labels.
func scrape(t *testing.T, url string) map[string]string {
	t.Helper()
	r := ask(t, "GET", url+"/metrics", "")
	if r.status != 200 {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	samples := map[string]string{}
	for line := range strings.Lines(r.body) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
			samples[name] = value
		}
	}
	return samples
}

// TestMetrics checks names, labels and values after a known load.
func TestMetrics(t *testing.T) {
	f := newFake("abc")
	f.state = generate.Load{
		Running: 3, Waiting: 2, Pages: 4, FreePages: 3, PromptTokens: 60, Prefix: generate.PrefixStats{Reused: 40},
		Preemptions: 5, Steps: 7, FailedSteps: 6, StepRows: 8, StepTime: 1500 * time.Millisecond,
	}
	_, url := start(t, f, Options{})
	ask(t, "POST", url+textPath, `{"prompt":"hi","n":2,"max_tokens":2}`)
	f.hidden = 1
	ask(t, "POST", url+chatPath, `{"messages":[{"role":"user","content":"hi"}]}`)
	ask(t, "POST", url+textPath, `{`)
	f.fail = errors.New("lost")
	ask(t, "POST", url+textPath, `{"prompt":"hi"}`)
	got := scrape(t, url)
	for name, want := range map[string]string{
		`vllm:num_requests_running`:                        "3",
		`vllm:num_requests_waiting`:                        "2",
		`vllm:kv_cache_usage_perc`:                         "0.25",
		`vllm:prefix_cache_queries_total`:                  "100",
		`vllm:prefix_cache_hits_total`:                     "40",
		`vllm:num_preemptions_total`:                       "5",
		`lockstep_steps_total`:                             "7",
		`lockstep_failed_steps_total`:                      "6",
		`lockstep_step_sequences`:                          "8",
		`lockstep_step_seconds`:                            "1.5",
		`vllm:prompt_tokens_total`:                         "14", // 2 + 2 + 8 + 2
		`vllm:generation_tokens_total`:                     "8",
		`vllm:request_success_total,abort`:                 "1",
		`vllm:request_success_total,stop`:                  "1",
		`vllm:request_success_total,length`:                "2",
		`vllm:time_to_first_token_seconds_count`:           "3",
		`vllm:inter_token_latency_seconds_count`:           "4",
		`vllm:request_time_per_output_token_seconds_count`: "3",
		`vllm:e2e_request_latency_seconds_count`:           "3",
		`vllm:request_prompt_tokens_sum`:                   "14",
		`vllm:request_generation_tokens_sum`:               "8",
		`vllm:request_params_max_tokens_count`:             "3",
		`lockstep_http_requests_total,/v1/completions,200`: "1",
		`lockstep_http_requests_total,/v1/completions,400`: "1",
		`lockstep_http_requests_total,/v1/completions,500`: "1",
	} {
		labels := `model_name="fake"`
		base, rest, _ := strings.Cut(name, ",")
		if path, status, ok := strings.Cut(rest, ","); ok {
			labels += `,path="` + path + `",status="` + status + `"`
		} else if rest != "" {
			labels = `finished_reason="` + rest + `",` + labels
		}
		if value, ok := got[base+"{"+labels+"}"]; !ok || value != want {
			t.Errorf("%s{%s} is %q, want %s", base, labels, value, want)
		}
	}
	if _, ok := got["go_goroutines"]; !ok {
		t.Error("no metrics of the Go runtime")
	}
}
