package serve

import "net/http"

// readModel reads the name of a model and checks it.
func (s *Server) readModel(d *decoder) {
	if err := s.checkModel(d.string()); err != nil && d.err == nil {
		d.err = err
	}
}

// tokenizeRequest is the body of /tokenize: a prompt, or the messages of a chat.
type tokenizeRequest struct {
	text         *string       // nil: a chat
	conversation *conversation // nil: a prompt
	bos, special bool
	pieces       bool // the answer has the text of each token
}

// decodeTokenize reads the body of /tokenize.
func (s *Server) decodeTokenize(body []byte) (*tokenizeRequest, *apiError) {
	r := &tokenizeRequest{bos: true, special: true}
	var c conversation
	err := decodeBody(body, func(d *decoder, key string) {
		switch key {
		case "model":
			s.readModel(d)
		case "prompt":
			t := d.string()
			r.text = &t
		case "messages":
			r.conversation = &c
			d.array(func(int) { c.messages = append(c.messages, d.message()) })
		case "tools":
			d.array(func(int) { c.tools = append(c.tools, d.tool()) })
		case "chat_template_kwargs":
			d.object(func(key string) { c.variable(key, d.raw()) })
		case "add_special_tokens":
			r.bos = d.bool()
		case "parse_special":
			r.special = d.bool()
		case "return_token_strs":
			r.pieces = d.bool()
		default:
			d.other(key)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case r.text == nil && r.conversation == nil:
		return nil, badRequest("prompt", "the field is missing")
	case r.text != nil && r.conversation != nil:
		return nil, badRequest("messages", "it excludes prompt")
	case r.conversation != nil && len(c.messages) == 0:
		return nil, badRequest("messages", "the array is empty")
	}
	return r, c.checkTools("")
}

// tokenize serves /tokenize, with the fields of vLLM.
func (s *Server) tokenize(x *exchange) error {
	body, err := x.body()
	if err != nil {
		return err
	}
	r, bad := s.decodeTokenize(body)
	if bad != nil {
		return bad
	}
	answer := struct {
		Count   int      `json:"count"`
		Context int      `json:"max_model_len"`
		Tokens  []int    `json:"tokens"`
		Strings []string `json:"token_strs,omitempty"`
	}{Context: s.info.context}
	if r.conversation != nil {
		p, err := s.backend.render(r.conversation)
		if err != nil {
			return err
		}
		answer.Tokens = p.tokens
	} else if answer.Tokens, err = s.backend.tokenize(*r.text, r.bos, r.special); err != nil {
		return err
	}
	if answer.Count = len(answer.Tokens); answer.Count == 0 {
		answer.Tokens = []int{}
	}
	if r.pieces {
		for _, id := range answer.Tokens {
			answer.Strings = append(answer.Strings, valid(s.backend.bytes(id)))
		}
	}
	return x.json(http.StatusOK, answer)
}

// detokenize serves /detokenize.
func (s *Server) detokenize(x *exchange) error {
	body, err := x.body()
	if err != nil {
		return err
	}
	var tokens []int
	bad := decodeBody(body, func(d *decoder, key string) {
		switch key {
		case "model":
			s.readModel(d)
		case "tokens":
			tokens = d.tokens(s.info.vocab)
		default:
			d.other(key)
		}
	})
	if bad == nil && tokens == nil {
		bad = badRequest("tokens", "the field is missing")
	}
	if bad != nil {
		return bad
	}
	text, err := s.backend.detokenize(tokens)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, struct {
		Prompt string `json:"prompt"`
	}{text})
}
