package serve

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/lockstep-go/lockstep/generate/constraint"
)

// Limits of parameters.
const (
	maxChoices     = 128 // completions of a request: n times the number of prompts
	maxStops       = 16  // stop strings
	maxStopBytes   = 1024
	maxTopLogprobs = 20
	// maxSeed keeps a drawn seed exact in clients that read numbers as float64.
	maxSeed = 1 << 53
)

// request are the fields that chat and text completions share.
type request struct {
	params       params
	model        string
	n            int
	stream       bool
	includeUsage bool

	// Whether a field was given. max_completion_tokens goes before max_tokens.
	maxTokensSet, maxCompletionSet, seedSet, topLogprobsSet, streamOptionsSet bool
}

func newRequest() request {
	return request{params: params{temperature: 1, topP: 1, repetition: 1, maxTokens: -1}, n: 1}
}

// finish checks fields against each other and draws a seed if there is none.
func (r *request) finish() *apiError {
	switch {
	case r.streamOptionsSet && !r.stream:
		return badRequest("stream_options", "it needs stream: true")
	case r.params.maxTokens >= 0 && r.params.minTokens > r.params.maxTokens:
		return badRequest("min_tokens", "%d is more than max_tokens, %d", r.params.minTokens, r.params.maxTokens)
	case r.topLogprobsSet && !r.params.logprobs:
		return badRequest("top_logprobs", "it needs logprobs: true")
	}
	if err := r.params.checkEnd(); err != nil {
		return err
	}
	if r.params.topP == 0 { // the fewest tokens whose probabilities add up to 0
		r.params.topK, r.params.topP = 1, 1
	}
	if !r.seedSet {
		r.params.seed = rand.Uint64N(maxSeed)
	}
	return nil
}

// checkEnd refuses a structure with ignore_eos: the text could not end.
func (p *params) checkEnd() *apiError {
	if p.structure != nil && p.ignoreEOS {
		return badRequest("ignore_eos", "the text must end where %s says", p.structure.param)
	}
	return nil
}

// field reads a field that both endpoints know, and reports whether it is one.
func (r *request) field(d *decoder, key string, vocab int) bool {
	switch key {
	case "model":
		r.model = d.string()
	case "n":
		r.n = int(d.int(1, maxChoices))
	case "stream":
		r.stream = d.bool()
	case "stream_options":
		r.streamOptionsSet = true
		d.object(func(key string) {
			switch key {
			case "include_usage":
				r.includeUsage = d.bool()
			default:
				d.skip()
			}
		})
	case "max_tokens", "max_completion_tokens":
		n := int(d.int(0, 1<<31-1))
		if key == "max_completion_tokens" || !r.maxCompletionSet {
			r.params.maxTokens, r.maxTokensSet = n, true
		}
		r.maxCompletionSet = r.maxCompletionSet || key == "max_completion_tokens"
	case "min_tokens":
		r.params.minTokens = int(d.int(0, 1<<31-1))
	case "temperature":
		r.params.temperature = d.float(0, 100)
	case "top_p":
		r.params.topP = d.float(0, 1)
	case "top_k":
		r.params.topK = int(max(d.int(-1, 1<<31-1), 0))
	case "min_p":
		r.params.minP = d.float(0, 1)
	case "presence_penalty":
		r.params.presence = d.float(-2, 2)
	case "frequency_penalty":
		r.params.frequency = d.float(-2, 2)
	case "repetition_penalty":
		r.params.repetition = d.float(0.01, 100)
	case "seed":
		r.params.seed, r.seedSet = uint64(d.int(-1<<63, 1<<63-1)), true
	case "stop":
		r.params.stop = d.stops()
	case "stop_token_ids":
		r.params.stopTokens = d.tokens(vocab)
	case "ignore_eos":
		r.params.ignoreEOS = d.bool()
	case "logit_bias":
		r.params.bias = d.logitBias(vocab)
	case "response_format":
		r.restrict(d, d.responseFormat())
	case "structured_outputs":
		r.structuredOutputs(d)
	case "guided_json":
		r.restrict(d, d.schema())
	case "guided_regex":
		r.restrict(d, d.expression())
	case "guided_choice":
		r.restrict(d, d.choices())
	default:
		return false
	}
	return true
}

// stops reads a string or a list of strings.
func (d *decoder) stops() []string {
	one := func() string {
		s := d.string()
		if d.err == nil && (s == "" || len(s) > maxStopBytes) {
			d.fail("%d bytes, want 1 to %d", len(s), maxStopBytes)
		}
		return s
	}
	switch d.peek() {
	case '"':
		return []string{one()}
	case '[':
		var stops []string
		d.array(func(i int) {
			if i == maxStops {
				d.fail("more than %d stop strings", maxStops)
			}
			stops = append(stops, one())
		})
		return stops
	}
	d.want(`"[`, "a string or an array of strings")
	return nil
}

// tokens reads a list of token ids.
func (d *decoder) tokens(vocab int) []int {
	ids := []int{}
	d.array(func(int) { ids = append(ids, int(d.int(0, int64(vocab)-1))) })
	return ids
}

// logitBias reads an object of token ids with their biases.
func (d *decoder) logitBias(vocab int) map[int]float32 {
	bias := map[int]float32{}
	d.object(func(key string) {
		id, err := strconv.Atoi(key)
		if err != nil || id < 0 || id >= vocab || strconv.Itoa(id) != key {
			d.fail("want a token id of 0 to %d as key", vocab-1)
		}
		bias[id] = float32(d.float(-100, 100))
	})
	return bias
}

// restrict sets the structure of the text, unless s is nil. A request has at most one.
func (r *request) restrict(d *decoder, s *structure) {
	switch {
	case s == nil:
	case r.params.structure != nil:
		d.fail("the request has %s already", r.params.structure.param)
	default:
		r.params.structure = s
	}
}

// structuredOutputs reads vLLM's structured_outputs.
func (r *request) structuredOutputs(d *decoder) {
	d.object(func(key string) {
		switch key {
		case "json":
			r.restrict(d, d.schema())
		case "regex":
			r.restrict(d, d.expression())
		case "json_object":
			if d.bool() {
				r.restrict(d, &structure{source: anyObject, param: d.where()})
			}
		case "choice":
			r.restrict(d, d.choices())
		case "grammar", "structural_tag", "whitespace_pattern":
			d.skip()
			d.unsupportedHere()
		default:
			d.skip()
		}
	})
}

// anyObject is the structure of any JSON object.
var anyObject = constraint.Structure{Schema: []byte(`{"type":"object"}`)}

// schema reads a JSON Schema as an object or as the text of one.
func (d *decoder) schema() *structure {
	s := &structure{param: d.where()}
	if d.peek() == '"' {
		s.source.Schema = []byte(d.string())
	} else {
		s.source.Schema = d.rawObject()
	}
	return s
}

// expression reads a regular expression.
func (d *decoder) expression() *structure {
	return &structure{source: constraint.Structure{Regexp: d.string()}, param: d.where()}
}

// choices reads a list of texts.
func (d *decoder) choices() *structure {
	s := &structure{param: d.where()}
	d.array(func(int) { s.source.AnyOf = append(s.source.AnyOf, constraint.Structure{Text: d.string()}) })
	if len(s.source.AnyOf) == 0 {
		d.fail("the array is empty")
	}
	return s
}

// responseFormat reads response_format. It returns nil if any text will do.
func (d *decoder) responseFormat() *structure {
	var kind string
	var schema json.RawMessage
	s := &structure{source: anyObject, param: d.where()}
	d.object(func(key string) {
		switch key {
		case "type":
			kind = d.stringOf("text", "json_object", "json_schema")
		case "json_schema":
			d.object(func(key string) {
				switch key {
				case "schema":
					schema = d.rawObject()
				case "name":
					d.string()
				case "strict":
					d.bool()
				default:
					d.skip()
				}
			})
		default:
			d.skip()
		}
	})
	switch {
	case d.err != nil:
	case kind == "":
		d.fail("type is missing")
	case kind == "json_schema" && schema == nil:
		d.fail("json_schema.schema is missing")
	case kind != "json_schema" && schema != nil:
		d.fail("json_schema needs type: json_schema")
	}
	switch kind {
	case "text":
		return nil
	case "json_schema":
		s.source, s.param = constraint.Structure{Schema: schema}, s.param+".json_schema.schema"
	}
	return s
}

// refused are fields of OpenAI, vLLM and llama.cpp that would change the answer. An endpoint that does
// not support one refuses it, unless it has one of these values, which ask for nothing.
var refused = map[string][]string{
	"audio": nil, "modalities": {`["text"]`}, "prediction": nil, "web_search_options": nil,
	"functions": {`[]`}, "function_call": {`"none"`}, "store": {"false"},
	"best_of": {"1"}, "suffix": {`""`}, "use_beam_search": {"false"}, "length_penalty": {"1", "1.0"},
	"prompt_logprobs": nil, "truncate_prompt_tokens": nil, "bad_words": {`[]`},
	"guided_grammar": nil, "guided_whitespace_pattern": nil,
	"grammar": {`""`}, "json_schema": nil, "logits_processors": {`[]`},
	"include_stop_str_in_output": {"false"}, "skip_special_tokens": {"true"},
	"chat_template": nil, "add_generation_prompt": {"true"}, "continue_final_message": {"false"}, "documents": {`[]`},
	"typical_p": {"1", "1.0"}, "mirostat": {"0"}, "dry_multiplier": {"0", "0.0"}, "xtc_probability": {"0", "0.0"},
	"dimensions": nil, "echo": {"false"}, "tools": {`[]`}, "tool_choice": {`"none"`},
	"top_logprobs": nil, "logprobs": {"false"},
}

// other reads a field that the endpoint does not support. It refuses those in refused and ignores the
// rest.
func (d *decoder) other(key string) {
	neutral, known := refused[key]
	if !known {
		d.skip()
		return
	}
	if text := d.raw(); d.err == nil && !slices.Contains(neutral, string(text)) {
		d.err = unsupported(d.where(), "this endpoint does not support it")
	}
}
