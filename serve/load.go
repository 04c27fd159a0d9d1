package serve

import "net/http"

const loadPath = "/load"

// loadObject is generate.Load as JSON.
type loadObject struct {
	Running          int     `json:"running"`
	Waiting          int     `json:"waiting"`
	Preempted        int     `json:"preempted"`
	Pages            int     `json:"pages"`
	FreePages        int     `json:"free_pages"`
	Steps            int     `json:"steps"`
	FailedSteps      int     `json:"failed_steps"`
	PromptTokens     int     `json:"prompt_tokens"`
	ReusedTokens     int     `json:"reused_tokens"`
	GeneratedTokens  int     `json:"generated_tokens"`
	Preemptions      int     `json:"preemptions"`
	StepSequences    int     `json:"step_sequences"`
	StepPromptTokens int     `json:"step_prompt_tokens"`
	StepSeconds      float64 `json:"step_seconds"`
	Error            string  `json:"error"` // see generate.Load.StepError; "": none
}

// load serves the state of the scheduler.
func (s *Server) load(x *exchange) error {
	l := s.backend.load()
	o := loadObject{
		Running: l.Running, Waiting: l.Waiting, Preempted: l.Preempted, Pages: l.Pages, FreePages: l.FreePages,
		Steps: l.Steps, FailedSteps: l.FailedSteps, Preemptions: l.Preemptions,
		PromptTokens: l.PromptTokens, ReusedTokens: l.Prefix.Reused, GeneratedTokens: l.GeneratedTokens,
		StepSequences: l.StepRows, StepPromptTokens: l.StepPromptTokens, StepSeconds: l.StepTime.Seconds(),
	}
	if l.StepError != nil {
		o.Error = shorten(l.StepError.Error(), 500)
	}
	return x.json(http.StatusOK, &o)
}
