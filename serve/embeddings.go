package serve

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"slices"
)

// maxInputs is OpenAI's limit of texts per request for embeddings.
const maxInputs = 2048

type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // []float32, or base64 of little-endian float32
}

// embeddings serves /v1/embeddings. The vectors have length 1, as OpenAI's.
func (s *Server) embeddings(x *exchange) error {
	body, err := x.body()
	if err != nil {
		return err
	}
	var name string
	var inputs []prompt
	format := "float"
	bad := decodeBody(body, func(d *decoder, key string) {
		switch key {
		case "model":
			name = d.string()
		case "input":
			inputs = d.prompts(s.info.vocab, maxInputs)
		case "encoding_format":
			format = d.stringOf("float", "base64")
		default:
			d.other(key)
		}
	})
	if bad == nil && inputs == nil {
		bad = badRequest("input", "the field is missing")
	}
	if bad != nil {
		return bad
	}
	if err := s.checkModel(name); err != nil {
		return err
	}
	answer := struct {
		Object string       `json:"object"`
		Data   []embedding  `json:"data"`
		Model  string       `json:"model"`
		Usage  *usageObject `json:"usage"`
	}{Object: "list", Model: s.name}
	var all [][]int
	for i, in := range inputs {
		tokens, err := s.encode(in, true, false)
		if err != nil {
			return fmt.Errorf("input[%d]: %w", i, err)
		}
		all = append(all, tokens)
		x.usage.prompt += len(tokens)
	}
	if err := s.checkPrompts(all, 0, "input"); err != nil {
		return err
	}
	for i, tokens := range all {
		v, err := s.backend.embed(x.ctx, tokens)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(v, func(e float32) bool { return e-e != 0 }) { // NaN or infinite
			return fmt.Errorf("input[%d]: the embedding is not finite", i)
		}
		answer.Data = append(answer.Data, embedding{"embedding", i, encodeVector(v, format)})
	}
	answer.Usage = &usageObject{Prompt: x.usage.prompt, Total: x.usage.prompt}
	return x.json(http.StatusOK, answer)
}

func encodeVector(v []float32, format string) any {
	if format == "float" {
		return v
	}
	raw := make([]byte, 0, 4*len(v))
	for _, e := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(e))
	}
	return base64.StdEncoding.EncodeToString(raw)
}
