package serve

import "net/http"

// readModel reads the name of a model and checks it.
func (s *Server) readModel(d *decoder) {
	if err := s.checkModel(d.string()); err != nil && d.err == nil {
		d.err = err
	}
}

// tokenize serves /tokenize, with the fields of vLLM: a prompt, or the messages of a chat.
func (s *Server) tokenize(x *exchange) error {
	body, err := x.body()
	if err != nil {
		return err
	}
	var (
		text           *string
		c              conversation
		bos, special   = true, true
		pieces, isChat bool
	)
	bad := decodeBody(body, func(d *decoder, key string) {
		switch key {
		case "model":
			s.readModel(d)
		case "prompt":
			t := d.string()
			text = &t
		case "messages":
			isChat = true
			d.array(func(int) { c.messages = append(c.messages, d.message()) })
		case "tools":
			d.array(func(int) { c.tools = append(c.tools, d.tool()) })
		case "chat_template_kwargs":
			d.object(func(key string) { c.variable(key, d.raw()) })
		case "add_special_tokens":
			bos = d.bool()
		case "parse_special":
			special = d.bool()
		case "return_token_strs":
			pieces = d.bool()
		default:
			d.other(key)
		}
	})
	switch {
	case bad != nil:
	case text == nil && !isChat:
		bad = badRequest("prompt", "the field is missing")
	case text != nil && isChat:
		bad = badRequest("messages", "it excludes prompt")
	case isChat && len(c.messages) == 0:
		bad = badRequest("messages", "the array is empty")
	default:
		bad = c.checkTools("")
	}
	if bad != nil {
		return bad
	}
	answer := struct {
		Count   int      `json:"count"`
		Context int      `json:"max_model_len"`
		Tokens  []int    `json:"tokens"`
		Strings []string `json:"token_strs,omitempty"`
	}{Context: s.info.context}
	if isChat {
		r, err := s.backend.render(&c)
		if err != nil {
			return err
		}
		answer.Tokens = r.prompt
	} else if answer.Tokens, err = s.backend.tokenize(*text, bos, special); err != nil {
		return err
	}
	if answer.Count = len(answer.Tokens); answer.Count == 0 {
		answer.Tokens = []int{}
	}
	if pieces {
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
