package model

import "strings"

// Files that Ollama published have other names for some keys and tensors, lack some keys, and hold the parts of a model for
// images and sound, too. What differs is listed in llama/compat of github.com/ollama/ollama. The names below are used if a file
// lacks the others. What else belongs to such files is in the table of architectures.

// otherNames has other names of architectures, and what differs from the architecture of the usual name.
var otherNames = map[string]struct {
	name   string
	change func(a *architecture)
}{
	"gptoss": {"gpt-oss", func(a *architecture) { a.scaling, a.ffnNormName = "yarn", "" }},
	"olmo3":  {"olmo2", func(*architecture) {}},
}

// keyAliases has other names of keys, without the architecture.
var keyAliases = map[string]string{
	"rope.freq_base_swa":               "rope.local.freq_base",
	"rope.freq_base":                   "rope.global.freq_base",
	"rope.scaling.yarn_beta_fast":      "rope.scaling.beta_fast",
	"rope.scaling.yarn_beta_slow":      "rope.scaling.beta_slow",
	"rope.scaling.yarn_log_multiplier": "rope.scaling.mscale_all_dim",
	"attention.temperature_scale":      "rope.scaling_beta",
}

// tensorAliases has other names of tensors, without the block.
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

// besideText reports whether a tensor belongs to a part of a model that texts do not use: encoders of images and sound with
// their projectors, and the prediction of later tokens.
func besideText(tensor string) bool {
	for _, prefix := range []string{"v.", "a.", "mm.", "mtp.", "model.vision_tower."} {
		if strings.HasPrefix(tensor, prefix) {
			return true
		}
	}
	return false
}
