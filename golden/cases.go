package golden

import "strings"

// Case is one golden file: the logits of a model after some tokens.
type Case struct {
	Name   string // the file is logits/NAME.npy
	Reason string // what the case tests
	Model  string // a GGUF file below the golden directory
	Prompt string // encoded by the model's vocabulary if Tokens is nil
	Tokens []int
	Last   int // number of last positions in the file; 0: all
}

// file is the path of the case's logits below the golden directory.
func (c Case) file() string { return logitsDir + "/" + c.Name + ".npy" }

// tinyModel is the embedded model's file.
const tinyModel = "model/lockstep-tiny.gguf"

var textCases = []Case{
	{Name: "tiny-prince", Reason: "the README's prompt", Prompt: "Well, Prince,"},
	{Name: "tiny-empty", Reason: "the BOS token alone", Prompt: ""},
	{Name: "tiny-unicode", Reason: "characters that the vocabulary encodes byte by byte", Prompt: "Счастье — это naïve café 🙂"},
	{Name: "tiny-long", Reason: "a prompt of more than a hundred tokens: positions far from 0", Last: 4, Prompt: "It was in July, 1805, and the speaker was the " +
		"well-known Anna Pávlovna Schérer, maid of honor and favorite of the Empress Márya Fëdorovna. With these words she greeted Prince Vasíli " +
		"Kurágin, a man of high rank and importance, who was the first to arrive at her reception. Anna Pávlovna had had a cough for some days. " +
		"She was, as she said, suffering from la grippe; grippe being then a new word in St. Petersburg, used only by the elite."},
}

// oracleTokens are the tokens of the other engines' logits: 5, 8, 11, … 59.
var oracleTokens = steps(5, 3, 19)

// archs and formats name the tiny models in arch/ and quant/.
var (
	archs = strings.Fields(`
	cohere2 exaone4 gemma gemma2 gemma3 gemma3n gemma4 gemma4moe glm4 glm4moe gpt-oss gpt-oss-mxfp4 gpt2 granite granitemoe llama-gqa llama3-ropefreqs llama4 mistral3 olmo2-swa
	phi2 phi3 qwen2 qwen2moe qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen3next-ssmin seed_oss smollm3 stablelm-par starcoder2`)
	formats = strings.Fields("bf16 f16 iq4_nl iq4_xs q2_k q3_k q4_0 q4_1 q4_k q5_0 q5_1 q5_k q6_k q8_0")
)

// Cases returns the cases of all golden files.
func Cases() []Case {
	var all []Case
	for _, c := range textCases {
		c.Model = tinyModel
		if c.Last == 0 {
			c.Last = 8
		}
		all = append(all, c)
	}
	for _, a := range archs {
		file := "arch/" + a + ".gguf"
		all = append(all,
			Case{Name: a, Model: file, Tokens: oracleTokens, Reason: "the oracle's tokens"},
			Case{Name: a + "-long", Model: file, Tokens: steps(7, 37, 70), Last: 8, Reason: "longer than the sliding windows several times over"},
			Case{Name: a + "-same", Model: file, Tokens: steps(3, 0, 9), Last: 1, Reason: "one token over and over: only its position differs"},
		)
	}
	for _, f := range formats {
		all = append(all, Case{Name: "quant-" + f, Model: "quant/" + f + ".gguf", Tokens: oracleTokens, Reason: "every 2-D weight in this format"})
	}
	return all
}

// steps returns n tokens from first in equal steps modulo 64. Every tiny model has at
// least 64 tokens.
func steps(first, step, n int) []int {
	tokens := make([]int, n)
	for i := range tokens {
		tokens[i] = (first + i*step) % 64
	}
	return tokens
}
