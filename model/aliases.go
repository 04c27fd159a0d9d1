package model

import (
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/model/gguf"
)

// Ollama's library has GGUF files with other names of keys and tensors, and with encoders of images and sound. llama/compat of
// github.com/ollama/ollama lists the differences. A name below is used if the file lacks the usual one. Missing keys have defaults
// in the table of architectures.

// archAliases maps names of architectures in such files to the usual name. change adapts the architecture.
var archAliases = map[string]struct {
	name   string
	change func(a *architecture)
}{
	"gptoss": {"gpt-oss", func(a *architecture) { a.scaling, a.ffnNormName = "yarn", "" }},
	"olmo3":  {"olmo2", func(*architecture) {}},
}

// keyAliases maps usual keys to their alias. Both lack the prefix of the architecture.
var keyAliases = map[string]string{
	"rope.freq_base_swa":               "rope.local.freq_base",
	"rope.freq_base":                   "rope.global.freq_base",
	"rope.scaling.yarn_beta_fast":      "rope.scaling.beta_fast",
	"rope.scaling.yarn_beta_slow":      "rope.scaling.beta_slow",
	"rope.scaling.yarn_log_multiplier": "rope.scaling.mscale_all_dim",
	"attention.temperature_scale":      "rope.scaling_beta",
}

// tensorAliases maps usual names of tensors to their alias. Both lack blk.N.
var tensorAliases = map[string]string{
	"attn_output.weight":  "attn_out.weight",
	"attn_output.bias":    "attn_out.bias",
	"attn_sinks.weight":   "attn_sinks",
	"ssm_dt.bias":         "ssm_dt",
	"ffn_down_exps.scale": "ffn_gate_inp.per_expert_scale",
}

// tensorAlias returns the other name of a tensor, or "".
func tensorAlias(name string) string {
	i := strings.Index(name, ".") + 1
	i += strings.Index(name[i:], ".") + 1 // after blk.N.
	if alias := tensorAliases[name[i:]]; alias != "" {
		return name[:i] + alias
	}
	return ""
}

// ignored reports whether text generation ignores a tensor: of encoders and projectors, or of multi-token prediction.
func ignored(tensor string) bool {
	for _, prefix := range []string{"v.", "a.", "mm.", "mtp.", "model.vision_tower."} {
		if strings.HasPrefix(tensor, prefix) {
			return true
		}
	}
	return false
}

// fromOllama reports whether a file has marks of Ollama's converters.
func (k *keys) fromOllama() bool {
	for _, key := range []string{".mm.tokens_per_image", ".rope.global.freq_base", ".rope.local.freq_base"} {
		if k.inFile(k.prefix + key) {
			return true
		}
	}
	vision := slices.ContainsFunc(k.f.Tensors(), func(t gguf.Tensor) bool { return strings.HasPrefix(t.Name, "v.") || strings.HasPrefix(t.Name, "mm.") })
	return vision || k.inFile("tokenizer.ggml.add_padding_token") || k.inFile("tokenizer.ggml.add_unknown_token") || !k.has(rmsEpsName)
}
