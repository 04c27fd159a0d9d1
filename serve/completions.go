package serve

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// defaultMaxTokens is OpenAI's default of max_tokens for text completions.
const defaultMaxTokens = 16

// completionRequest is the body of /v1/completions.
type completionRequest struct {
	common       request
	prompts      []prompt
	bestOf       int
	echo         bool
	bos, special bool
}

// prompt is text, or token ids if tokens is not nil.
type prompt struct {
	text   string
	tokens []int
}

// decodeCompletion reads the body of /v1/completions.
func (s *Server) decodeCompletion(body []byte) (*completionRequest, *apiError) {
	r := &completionRequest{common: newRequest(), bos: true, special: true}
	r.common.params.maxTokens = defaultMaxTokens
	err := decodeBody(body, func(d *decoder, key string) {
		switch key {
		case "prompt":
			r.prompts = d.prompts(s.info.vocab, maxChoices)
		case "echo":
			r.echo = d.bool()
		case "best_of":
			r.bestOf = int(d.int(1, maxChoices))
		case "logprobs":
			r.common.params.topLogprobs = int(d.int(0, maxTopLogprobs))
			r.common.params.logprobs = true
		case "add_special_tokens":
			r.bos = d.bool()
		case "parse_special":
			r.special = d.bool()
		default:
			if !r.common.field(d, key, s.info.vocab) {
				d.other(key)
			}
		}
	})
	switch {
	case err != nil:
		return nil, err
	case r.prompts == nil:
		return nil, badRequest("prompt", "the field is missing")
	case r.bestOf != 0 && r.bestOf != r.common.n:
		return nil, unsupported("best_of", "this server does not support another value than that of n")
	case r.echo && r.common.params.logprobs:
		return nil, unsupported("echo", "this server does not support it with logprobs")
	}
	return r, r.common.finish()
}

// prompts reads text, token ids, or a list of up to limit of either.
func (d *decoder) prompts(vocab, limit int) []prompt {
	var all []prompt
	switch d.peek() {
	case '"':
		return []prompt{{text: d.string()}}
	case '[':
		ids := []int{}
		d.array(func(i int) {
			switch c := d.peek(); {
			case c == '"' && len(ids) == 0:
				all = append(all, prompt{text: d.string()})
			case c == '[' && len(ids) == 0:
				all = append(all, prompt{tokens: d.tokens(vocab)})
			case len(all) == 0 && c != '"' && c != '[':
				ids = append(ids, int(d.int(0, int64(vocab)-1)))
			default:
				d.fail("texts, token ids and lists of token ids cannot be mixed")
			}
			if len(all) > limit {
				d.fail("more than %d", limit)
			}
		})
		if len(all) == 0 {
			if len(ids) == 0 {
				d.fail("the array is empty")
			}
			all = []prompt{{tokens: ids}}
		}
		return all
	}
	d.want(`"[`, "a string or an array")
	return nil
}

// encode converts a prompt to tokens.
func (s *Server) encode(p prompt, bos, special bool) ([]int, error) {
	if p.tokens != nil {
		return p.tokens, nil
	}
	return s.backend.tokenize(p.text, bos, special)
}

// text converts a prompt to text.
func (s *Server) text(p prompt) (string, error) {
	if p.tokens == nil {
		return p.text, nil
	}
	return s.backend.detokenize(p.tokens)
}

// The parts of a text completion and of its chunks.
type (
	textChoice struct {
		Index        int           `json:"index"`
		Text         string        `json:"text"`
		Logprobs     *textLogprobs `json:"logprobs"`
		FinishReason *string       `json:"finish_reason"`
	}
	textLogprobs struct {
		Tokens        []string             `json:"tokens"`
		TokenLogprobs []float32            `json:"token_logprobs"`
		TopLogprobs   []map[string]float32 `json:"top_logprobs"`
		TextOffset    []int                `json:"text_offset"` // characters of the completion before the token
	}
)

// add appends a token. offset is the number of characters before it.
func (l *textLogprobs) add(s *Server, t token, offset int) {
	name := func(id int) string { return valid(s.backend.bytes(id)) }
	l.Tokens = append(l.Tokens, name(t.id))
	l.TokenLogprobs = append(l.TokenLogprobs, finite(t.logprob))
	top := map[string]float32{}
	for _, x := range t.top {
		if _, ok := top[name(x.Token)]; !ok { // the most likely of tokens with the same text
			top[name(x.Token)] = finite(x.LogProb)
		}
	}
	l.TopLogprobs = append(l.TopLogprobs, top)
	l.TextOffset = append(l.TextOffset, offset)
}

// completionRun is a text completion in flight.
type completionRun struct {
	server  *Server
	request *completionRequest
	head    completion[textChoice]
	offsets []int // of each choice: characters so far
}

// choice returns the choice of an event's chunk.
func (c *completionRun) choice(e event) textChoice {
	out := textChoice{Index: e.choice, Text: e.token.text}
	switch {
	case e.last:
		out.FinishReason = &e.out.finish
	case c.request.common.params.logprobs && e.token.id >= 0:
		out.Logprobs = &textLogprobs{}
		out.Logprobs.add(c.server, e.token, c.offsets[e.choice])
	}
	c.offsets[e.choice] += utf8.RuneCountInString(e.token.text)
	return out
}

// completions serves /v1/completions.
func (s *Server) completions(x *exchange) error {
	body, err := x.body()
	if err != nil {
		return err
	}
	r, bad := s.decodeCompletion(body)
	if bad != nil {
		return bad
	}
	if err := s.checkModel(r.common.model); err != nil {
		return err
	}
	j := &job{params: r.common.params, n: r.common.n}
	var echoes []string
	for i, p := range r.prompts {
		tokens, err := s.encode(p, r.bos, r.special)
		if err != nil {
			return fmt.Errorf("prompt[%d]: %w", i, err)
		}
		j.prompts = append(j.prompts, tokens)
		echo := ""
		if r.echo {
			if echo, err = s.text(p); err != nil {
				return err
			}
		}
		echoes = append(echoes, echo)
	}
	if err := s.checkJob(x.ctx, j, "prompt"); err != nil {
		return err
	}
	c := &completionRun{server: s, request: r, offsets: make([]int, j.choices())}
	c.head = newCompletion[textChoice](s, "cmpl-", "text_completion", &r.common)
	if r.common.stream {
		return c.stream(x, j, echoes)
	}
	return c.whole(x, j, echoes)
}

func (c *completionRun) whole(x *exchange, j *job, echoes []string) error {
	choices := make([]textChoice, j.choices())
	texts := make([]strings.Builder, len(choices))
	for i := range choices {
		choices[i].Index = i
		texts[i].WriteString(echoes[i/j.n])
		if c.request.common.params.logprobs {
			choices[i].Logprobs = &textLogprobs{Tokens: []string{}, TokenLogprobs: []float32{}, TopLogprobs: []map[string]float32{}, TextOffset: []int{}}
		}
	}
	u, err := c.server.run(x.ctx, j, func(events []event) error {
		for _, e := range events {
			all := &choices[e.choice]
			if c.request.common.params.logprobs && e.token.id >= 0 {
				all.Logprobs.add(c.server, e.token, c.offsets[e.choice])
			}
			c.offsets[e.choice] += utf8.RuneCountInString(e.token.text)
			texts[e.choice].WriteString(e.token.text)
			if e.last {
				all.FinishReason = &e.out.finish
			}
		}
		return nil
	})
	x.usage = u
	if err != nil {
		return err
	}
	for i := range choices {
		choices[i].Text = texts[i].String()
	}
	c.head.Choices, c.head.Usage = choices, u.object()
	return x.json(http.StatusOK, &c.head)
}

func (c *completionRun) stream(x *exchange, j *job, echoes []string) error {
	begun := make([]bool, j.choices())
	return c.head.stream(x, j, c.request.common.includeUsage, func(e event, send func(textChoice) error) error {
		if echo := echoes[e.choice/j.n]; echo != "" && !begun[e.choice] {
			if err := send(textChoice{Index: e.choice, Text: echo}); err != nil {
				return err
			}
		}
		begun[e.choice] = true
		if !e.last && e.token.text == "" && !c.request.common.params.logprobs {
			return nil
		}
		return send(c.choice(e))
	})
}
