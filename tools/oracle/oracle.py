#!/usr/bin/env python3
"""Logits of the tiny models in float64, by Hugging Face transformers.

    python3 tools/oracle/oracle.py --models golden/arch --out golden/arch [--only NAME]

For every NAME.gguf (F32 weights, no vocabulary) it writes NAME.f64.npy: float32 logits
[19, vocab], rounded once from float64, for the tokens 5, 8, … 59. If NAME.npy, the
logits of llama.cpp, is missing, it writes the same numbers there too. lockstep is not
involved: the implementation is Hugging Face's. transformers computes norms, softmax and
RoPE in float32 for every dtype, so float32 is replaced by float64 before the import.

A new architecture is a branch in build(), and, if its tensors have other names, a table
beside LLAMA. load() checks that each parameter gets a tensor and none is left over.

It needs torch, transformers and numpy, and no GPU.
"""
import argparse, glob, os, struct
import numpy as np
import torch

torch.set_default_dtype(torch.float64)
torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double

import transformers as hf  # noqa: E402  after the replacement above

TOKENS = list(range(5, 60, 3))


def read_gguf(path):
    """Returns metadata and F32 tensors of a version 3 file without arrays."""
    raw = open(path, "rb").read()
    at = 4

    def take(fmt):
        nonlocal at
        (v,) = struct.unpack_from("<" + fmt, raw, at)
        at += struct.calcsize("<" + fmt)
        return v

    def string():
        nonlocal at
        n = take("Q")
        at += n
        return raw[at - n:at].decode()

    scalar = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    assert take("I") == 3
    tensors, keys = take("Q"), take("Q")
    meta = {}
    for _ in range(keys):
        key, kind = string(), take("I")
        meta[key] = string() if kind == 8 else take(scalar[kind])
    infos = []
    for _ in range(tensors):
        name = string()
        dims = [take("Q") for _ in range(take("I"))]
        assert take("I") == 0, f"{name} is not F32"
        infos.append((name, dims, take("Q")))
    at += -at % 32
    data = {}
    for name, dims, offset in infos:
        flat = np.frombuffer(raw, np.float32, int(np.prod(dims)), at + offset)
        data[name] = torch.from_numpy(flat.astype(np.float64).reshape(dims[::-1]))
    return meta, data


def pairs_to_halves(w, heads):
    """Reorders rows for RoPE of pairs (2i, 2i+1) to RoPE of pairs (i, i+dim/2)."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, -1).transpose(1, 2).reshape(w.shape)


# GGUF name -> transformers name within a layer.
LLAMA = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_qkv": "self_attn.qkv_proj"}
GEMMA = {**LLAMA, "post_attention_norm": "post_attention_layernorm",
         "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
PHI2 = {"attn_norm": "input_layernorm", "attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}
PHI3 = {**LLAMA, "ffn_up": "mlp.gate_up_proj"}
GPT2 = {"attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
TOP_PHI2 = {**TOP, "output_norm": "model.final_layernorm"}
TOP_GPT2 = {"token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f", "output": "lm_head"}


def build(meta, data):
    """Returns the transformers model of a file with its weights."""
    arch = meta["general.architecture"]
    g = lambda key, default=None: meta.get(f"{arch}.{key}", default)
    heads, kv = g("attention.head_count"), g("attention.head_count_kv")
    theta = g("rope.freq_base", 10000.0)
    common = dict(vocab_size=g("vocab_size"), hidden_size=g("embedding_length"), intermediate_size=g("feed_forward_length"),
                  num_hidden_layers=g("block_count"), num_attention_heads=heads, num_key_value_heads=kv,
                  max_position_embeddings=g("context_length"), attn_implementation="eager",
                  tie_word_embeddings="output.weight" not in data, pad_token_id=None, bos_token_id=None, eos_token_id=None,
                  rope_parameters=dict(rope_type="default", rope_theta=theta))
    rms = dict(rms_norm_eps=g("attention.layer_norm_rms_epsilon"), head_dim=g("attention.key_length"))
    gemma = dict(query_pre_attn_scalar=g("attention.key_length"), sliding_window=g("attention.sliding_window"),
                 hidden_activation="gelu_pytorch_tanh", final_logit_softcapping=g("final_logit_softcapping"),
                 attn_logit_softcapping=g("attn_logit_softcapping"))
    layer, top, prefix = LLAMA, TOP, "model.layers"
    if arch == "llama":
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**common, **rms))
    elif arch == "qwen2":
        model = hf.Qwen2ForCausalLM(hf.Qwen2Config(**common, **rms))
    elif arch == "qwen3":
        model = hf.Qwen3ForCausalLM(hf.Qwen3Config(**common, **rms))
    elif arch == "qwen3moe":
        model = hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(
            **common, **rms, num_experts=g("expert_count"), num_experts_per_tok=g("expert_used_count"),
            moe_intermediate_size=g("expert_feed_forward_length"), norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
            experts_implementation="eager"))
    elif arch == "phi3":  # without the sliding window, which llama.cpp does not apply either
        layer = PHI3
        model = hf.Phi3ForCausalLM(hf.Phi3Config(**common, **rms, sliding_window=None,
                                                 original_max_position_embeddings=g("context_length")))
    elif arch == "phi2":
        layer, top = PHI2, TOP_PHI2
        common["rope_parameters"]["partial_rotary_factor"] = g("rope.dimension_count") / g("attention.key_length")
        model = hf.PhiForCausalLM(hf.PhiConfig(**common, layer_norm_eps=g("attention.layer_norm_epsilon"), hidden_act="gelu_new"))
    elif arch == "gpt2":
        layer, top, prefix = GPT2, TOP_GPT2, "transformer.h"
        model = hf.GPT2LMHeadModel(hf.GPT2Config(
            vocab_size=g("vocab_size"), n_positions=g("context_length"), n_embd=g("embedding_length"), n_layer=g("block_count"),
            n_head=heads, n_inner=g("feed_forward_length"), layer_norm_epsilon=g("attention.layer_norm_epsilon"),
            activation_function="gelu_new", tie_word_embeddings=False, attn_implementation="eager", bos_token_id=None, eos_token_id=None))
    elif arch == "gemma2":
        layer = GEMMA
        model = hf.Gemma2ForCausalLM(hf.Gemma2Config(**common, **rms, **gemma))
    elif arch == "gemma3":
        layer = GEMMA
        del gemma["attn_logit_softcapping"]
        common["rope_parameters"] = dict(full_attention=dict(rope_type="default", rope_theta=theta),
                                         sliding_attention=dict(rope_type="default", rope_theta=10000.0))
        model = hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**common, **rms, **gemma))
    else:
        raise SystemExit(f"unknown architecture {arch}")
    model = model.double().eval()
    load(model, translate(arch, data, layer, top, prefix, heads, kv))
    if "rope_freqs.weight" in data:
        model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq / data["rope_freqs.weight"]
    return model


def translate(arch, data, layer, top, prefix, heads, kv):
    out = {}
    for name, w in data.items():
        *where, kind = name.split(".")
        if arch == "llama" and where[-1] in ("attn_q", "attn_k"):
            w = pairs_to_halves(w, heads if where[-1] == "attn_q" else kv)
        if arch == "gpt2" and kind == "weight" and len(where) == 3 and w.ndim == 2:
            w = w.T  # transformers stores GPT-2's matrices as [in, out]
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            w = w - 1  # transformers adds 1 to the gains
        if name == "rope_freqs.weight":
            continue
        if where[0] != "blk":
            out[f"{top[where[0]]}.{kind}"] = w
            continue
        at = f"{prefix}.{where[1]}"
        if where[2] == "ffn_gate_inp":
            out[f"{at}.mlp.gate.weight"] = w
        elif where[2].endswith("_exps"):
            out[f"{at}.mlp.experts.{where[2][4:-5]}"] = w
        elif arch == "phi2" and where[2] == "attn_qkv":
            for part, piece in zip("qkv", w.chunk(3)):
                out[f"{at}.self_attn.{part}_proj.{kind}"] = piece
        else:
            out[f"{at}.{layer[where[2]]}.{kind}"] = w
    return out


def load(model, state):
    """Copies state into the model. Each parameter needs a tensor, and none may be left over."""
    own = model.state_dict()
    for name in [n for n in state if ".mlp.experts." in n]:
        base, part = name.rsplit(".", 1)
        if part == "gate" and f"{base}.gate_up_proj" in own:  # fused experts: [experts, 2·ffn, hidden]
            state[f"{base}.gate_up_proj"] = torch.cat((state.pop(name), state.pop(f"{base}.up")), 1)
            state[f"{base}.down_proj"] = state.pop(f"{base}.down")
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    missing = set(own) - set(state) - tied
    missing = {n for n in missing if not n.endswith(("inv_freq", ".attn.bias", ".attn.masked_bias"))}
    assert not missing and set(state) <= set(own), (missing, set(state) - set(own))
    for name, w in state.items():
        assert own[name].shape == w.shape, (name, own[name].shape, w.shape)
        own[name].copy_(w)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--models", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--only", default="*", help="name of one model")
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    failed = 0
    for path in sorted(glob.glob(os.path.join(args.models, args.only + ".gguf"))):
        name = os.path.basename(path)[:-5]
        try:
            with torch.no_grad():
                model = build(*read_gguf(path))
                logits = model(torch.tensor([TOKENS]), use_cache=False).logits[0]
        except Exception as e:  # continue with the other models
            print(f"{name}: FAILED {type(e).__name__}: {str(e)[:300]}")
            failed += 1
            continue
        assert logits.dtype == torch.float64
        logits = logits.numpy()
        np.save(os.path.join(args.out, name + ".f64.npy"), logits.astype(np.float32))
        if not os.path.exists(path[:-5] + ".npy"):
            np.save(os.path.join(args.out, name + ".npy"), logits.astype(np.float32))
            print(f"{name}: no logits of another engine to compare with")
            continue
        other = np.load(path[:-5] + ".npy").astype(np.float64)
        print(f"{name}: relative L2 to {name}.npy {np.linalg.norm(logits - other) / np.linalg.norm(other):.2e}")
    if failed:
        raise SystemExit(f"{failed} models FAILED")


if __name__ == "__main__":
    main()
