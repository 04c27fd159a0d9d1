#!/usr/bin/env python3
"""Trains the model that lockstep embeds and writes it as GGUF.

    python3 tools/train/train.py --corpus war-and-peace.txt --out out

The model is a llama-architecture transformer (RMSNorm, RoPE of pairs (2i, 2i+1),
grouped queries, SwiGLU, tied embeddings) with a byte-level BPE vocabulary. Of every 20
chapters one is for early stopping and one for the reported perplexity. Neither is in
the training data of the model or the tokenizer. The weights are rounded to Q8_0. This
script computes all reported values and oracle data in float64 from the rounded weights,
without lockstep.

A second run gives other weights of about the same perplexity: BPE dropout is not
seeded, and bf16 training on a GPU is not exact.

Needs torch (one GPU), tokenizers and numpy. Writes into --out:
  lockstep-tiny.gguf   the model
  heldout.txt          the chapters of the reported perplexity
  oracle.npy           float32 logits [positions, vocab] of oracle.json's tokens
  oracle.json          the corpus' hash, versions, settings, losses, the oracle's text and tokens, tokenizer cases
"""
import argparse, hashlib, json, math, os, re, struct, time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SHAPE = dict(vocab=4096, hidden=256, layers=6, heads=8, kv_heads=4, ffn=768, context=1024,
             eps=1e-5, theta=10000.0)
EOT = "<|endoftext|>"


# ---- text -------------------------------------------------------------------

def chapters(path):
    """Returns the chapters, each paragraph on one line."""
    text = open(path, encoding="utf-8").read().replace("\r\n", "\n")
    parts = re.split(r"(?m)^(?=CHAPTER [IVXL]+\s*$)", text)
    out = []
    for part in parts:
        paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", part)]
        body = "\n\n".join(p for p in paragraphs if p)
        if len(body) > 200:
            out.append(body + "\n")
    return out


def split(chs):
    train = [c for i, c in enumerate(chs) if i % 20 not in (7, 17)]
    stop = [c for i, c in enumerate(chs) if i % 20 == 7]
    held = [c for i, c in enumerate(chs) if i % 20 == 17]
    return train, stop, held


def train_tokenizer(texts):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=SHAPE["vocab"], min_frequency=2, special_tokens=[EOT], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tok


def encode(tok, texts):
    """Returns the ids of all chapters, each after an end-of-text token."""
    eot = tok.token_to_id(EOT)
    ids = []
    for e in tok.encode_batch(texts, add_special_tokens=False):
        ids.append(eot)
        ids.extend(e.ids)
    ids.append(eot)
    return np.array(ids, dtype=np.int64)


# ---- model ------------------------------------------------------------------

class Norm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + SHAPE["eps"]) * self.weight


def rope(x, cos, sin):
    """Rotates the pairs (2i, 2i+1) of x [batch, heads, positions, head dim]."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Block(nn.Module):
    def __init__(self, drop):
        super().__init__()
        h, d = SHAPE["hidden"], SHAPE["hidden"] // SHAPE["heads"]
        kv = SHAPE["kv_heads"] * d
        self.attn_norm, self.ffn_norm = Norm(h), Norm(h)
        self.attn_q = nn.Linear(h, h, bias=False)
        self.attn_k = nn.Linear(h, kv, bias=False)
        self.attn_v = nn.Linear(h, kv, bias=False)
        self.attn_output = nn.Linear(h, h, bias=False)
        self.ffn_gate = nn.Linear(h, SHAPE["ffn"], bias=False)
        self.ffn_up = nn.Linear(h, SHAPE["ffn"], bias=False)
        self.ffn_down = nn.Linear(SHAPE["ffn"], h, bias=False)
        self.drop = drop

    def forward(self, x, cos, sin):
        n, t, h = x.shape
        d = h // SHAPE["heads"]
        y = self.attn_norm(x)
        q = rope(self.attn_q(y).view(n, t, -1, d).transpose(1, 2), cos, sin)
        k = rope(self.attn_k(y).view(n, t, -1, d).transpose(1, 2), cos, sin)
        v = self.attn_v(y).view(n, t, -1, d).transpose(1, 2)
        rep = SHAPE["heads"] // SHAPE["kv_heads"]
        k, v = k.repeat_interleave(rep, 1), v.repeat_interleave(rep, 1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           dropout_p=self.drop if self.training else 0.0)
        a = a.transpose(1, 2).reshape(n, t, h)
        x = x + F.dropout(self.attn_output(a), self.drop, self.training)
        y = self.ffn_norm(x)
        y = self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))
        return x + F.dropout(y, self.drop, self.training)


class Model(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.token_embd = nn.Embedding(SHAPE["vocab"], SHAPE["hidden"])
        self.blk = nn.ModuleList(Block(drop) for _ in range(SHAPE["layers"]))
        self.output_norm = Norm(SHAPE["hidden"])
        self.drop = drop
        for name, p in self.named_parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)
                if name.endswith(("attn_output.weight", "ffn_down.weight")):
                    nn.init.normal_(p, std=0.02 / math.sqrt(2 * SHAPE["layers"]))
        d = SHAPE["hidden"] // SHAPE["heads"]
        freq = SHAPE["theta"] ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
        angle = torch.arange(SHAPE["context"], dtype=torch.float64)[:, None] * freq
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids):
        x = self.token_embd(ids)
        cos, sin = self.cos[:ids.shape[1]].to(x.dtype), self.sin[:ids.shape[1]].to(x.dtype)
        x = F.dropout(x, self.drop, self.training)
        for b in self.blk:
            x = b(x, cos, sin)
        return self.output_norm(x) @ self.token_embd.weight.T


def windows(ids, eot, length):
    """Yields non-overlapping windows of length-1 tokens, each after an end-of-text token."""
    body = ids[1:]  # without the end-of-text token of ids
    for i in range(0, len(body), length - 1):
        yield np.concatenate(([eot], body[i:i + length - 1]))


@torch.no_grad()
def nats(model, ids, eot, length):
    """Returns the mean negative log-likelihood per token, and the number of tokens."""
    model.eval()
    total, count = 0.0, 0
    for w in windows(ids, eot, length):
        w = torch.from_numpy(w).cuda()[None]
        total += F.cross_entropy(model(w[:, :-1])[0].double(), w[0, 1:], reduction="sum").item()
        count += w.shape[1] - 1
    model.train()
    return total / count, count


# ---- training ---------------------------------------------------------------

def train(tok, texts, stop_ids, cfg, log):
    """Trains one model. Returns its best averaged weights and their validation loss."""
    torch.manual_seed(cfg["seed"])
    rng = np.random.default_rng(cfg["seed"])
    eot = tok.token_to_id(EOT)
    model = Model(cfg["drop"]).cuda()
    ema = Model(0.0).cuda()
    ema.load_state_dict(model.state_dict())
    decay = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    opt = torch.optim.AdamW([dict(params=decay, weight_decay=cfg["decay"]),
                             dict(params=rest, weight_decay=0.0)],
                            lr=cfg["lr"], betas=(0.9, 0.98), fused=True)
    step_fn = torch.compile(model)
    plain = torch.from_numpy(encode(tok, texts)).cuda()
    # BPE dropout segments the text differently in each epoch, which regularizes.
    pieces = json.loads(tok.to_str())
    pieces["model"]["dropout"] = cfg["bpe_dropout"]
    noisy_tok = Tokenizer.from_str(json.dumps(pieces))
    noisy = plain
    length, batch = cfg["length"], cfg["batch"]
    best, best_state, since = float("inf"), None, 0
    for step in range(cfg["steps"]):
        if cfg["bpe_dropout"] and step % cfg["resegment"] == 0:
            noisy = torch.from_numpy(encode(noisy_tok, texts)).cuda()
        clean = not cfg["bpe_dropout"] or rng.random() < 0.5 or step > 0.85 * cfg["steps"]
        data = plain if clean else noisy
        at = torch.from_numpy(rng.integers(0, len(data) - length, batch)).cuda()
        w = data[at[:, None] + torch.arange(length, device="cuda")]
        w = torch.cat((torch.full_like(w[:, :1], eot), w), 1)
        lr = cfg["lr"] * min(1.0, (step + 1) / cfg["warmup"])
        lr *= 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / cfg["steps"]))
        for g in opt.param_groups:
            g["lr"] = lr
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = step_fn(w[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), w[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        mix = min(cfg["ema"], (step + 1) / (step + 10))
        with torch.no_grad():
            for a, b in zip(ema.parameters(), model.parameters()):
                a.lerp_(b, 1 - mix)
        if step % cfg["every"] == cfg["every"] - 1 or step == cfg["steps"] - 1:
            v, _ = nats(ema, stop_ids, eot, 512)
            log(f"step {step + 1} train {loss.item():.4f} stop {v:.4f}")
            if v < best:
                best, since = v, 0
                best_state = {k: t.clone() for k, t in ema.state_dict().items()}
            else:
                since += 1
                if since >= cfg["patience"]:
                    break
    return best_state, best


# ---- GGUF -------------------------------------------------------------------

def q8_0(w):
    """Returns Q8_0 blocks of 32: a float16 scale d = max|w|/127, then round(w/d) as int8."""
    b = w.astype(np.float32).reshape(-1, 32)
    d = (np.abs(b).max(1) / 127).astype(np.float16)
    inv = np.divide(1, d.astype(np.float32), out=np.zeros(len(d), np.float32), where=d != 0)
    q = np.clip(np.rint(b * inv[:, None]), -127, 127).astype(np.int8)
    raw = np.empty((len(b), 34), np.uint8)
    raw[:, :2] = d.view(np.uint8).reshape(-1, 2)
    raw[:, 2:] = q.view(np.uint8)
    return raw.tobytes(), (q.astype(np.float64) * d.astype(np.float64)[:, None]).reshape(w.shape)


def gguf(path, meta, tensors):
    """Writes version 3, alignment 32. meta: (key, value); tensors: (name, dims, type, bytes)."""
    s = lambda t: struct.pack("<Q", len(t.encode())) + t.encode()

    def value(v):
        if isinstance(v, bool): return struct.pack("<I?", 7, v)
        if isinstance(v, int): return struct.pack("<II", 4, v)
        if isinstance(v, float): return struct.pack("<If", 6, v)
        if isinstance(v, str): return struct.pack("<I", 8) + s(v)
        if isinstance(v[0], str): return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(s, v))
        return struct.pack("<IIQ", 9, 5, len(v)) + struct.pack(f"<{len(v)}i", *v)

    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta))
    head += b"".join(s(k) + value(v) for k, v in meta)
    body = b""
    for name, dims, kind, raw in tensors:
        body += b"\0" * (-len(body) % 32)
        head += s(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(body))
        body += raw
    open(path, "wb").write(head + b"\0" * (-len(head) % 32) + body)


def export(path, state, tok):
    """Writes the model. Returns its weights as rounded in the file."""
    vocab = sorted(tok.get_vocab().items(), key=lambda e: e[1])
    assert [i for _, i in vocab] == list(range(SHAPE["vocab"]))
    merges = json.loads(tok.to_str())["model"]["merges"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in merges]
    eot = tok.token_to_id(EOT)
    meta = [("general.architecture", "llama"), ("general.name", "lockstep-tiny"),
            ("general.description", "War and Peace, trained from nothing; held-out chapters in golden/model/heldout.txt"),
            ("general.license", "Apache-2.0"), ("general.file_type", 7), ("general.quantization_version", 2),
            ("llama.block_count", SHAPE["layers"]), ("llama.context_length", SHAPE["context"]),
            ("llama.embedding_length", SHAPE["hidden"]), ("llama.feed_forward_length", SHAPE["ffn"]),
            ("llama.attention.head_count", SHAPE["heads"]),
            ("llama.attention.head_count_kv", SHAPE["kv_heads"]),
            ("llama.attention.layer_norm_rms_epsilon", SHAPE["eps"]),
            ("llama.rope.dimension_count", SHAPE["hidden"] // SHAPE["heads"]),
            ("llama.rope.freq_base", SHAPE["theta"]), ("llama.vocab_size", SHAPE["vocab"]),
            ("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "gpt-2"),
            ("tokenizer.ggml.tokens", [t for t, _ in vocab]),
            ("tokenizer.ggml.token_type", [3 if i == eot else 1 for _, i in vocab]),
            ("tokenizer.ggml.merges", merges),
            ("tokenizer.ggml.bos_token_id", eot), ("tokenizer.ggml.eos_token_id", eot),
            ("tokenizer.ggml.add_bos_token", True), ("tokenizer.ggml.add_eos_token", False)]
    tensors, rounded = [], {}
    for name, p in state.items():
        w = p.double().cpu().numpy()
        if w.ndim == 1:
            raw, kind = w.astype(np.float32).tobytes(), 0
            r = w.astype(np.float32).astype(np.float64)
        else:
            (raw, r), kind = q8_0(w), 8
        rounded[name] = torch.from_numpy(r)
        tensors.append((name, list(reversed(w.shape)), kind, raw))
    gguf(path, meta, tensors)
    return rounded


# ---- main -------------------------------------------------------------------

BASE = dict(seed=1, drop=0.3, decay=1.0, lr=1e-3, bpe_dropout=0.1, resegment=40, ema=0.995,
            length=1024, batch=32, steps=3000, warmup=100, every=100, patience=6)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--corpus", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--set", action="append", default=[],
                    help="settings that differ from the default, as JSON; several: the best by the stopping chapters is kept")
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    chs = chapters(args.corpus)
    texts, stop, held = split(chs)
    tok = train_tokenizer(texts)
    eot = tok.token_to_id(EOT)
    stop_ids = encode(tok, stop)
    held_ids = encode(tok, ["".join(held)])[:-1]  # as one text, like `lockstep perplexity`
    print(f"{len(chs)} chapters; {len(encode(tok, texts))} training, {len(stop_ids)} stopping, {len(held_ids)} held-out tokens", flush=True)

    runs, best = [], None
    for extra in args.set or ["{}"]:
        cfg = {**BASE, **json.loads(extra)}
        t0 = time.time()
        state, loss = train(tok, texts, stop_ids, cfg, lambda m: print("  " + m, flush=True))
        runs.append(dict(settings=cfg, stop_nats=loss, seconds=round(time.time() - t0)))
        print(f"{extra}: stop {loss:.4f}, perplexity {math.exp(loss):.2f}, {runs[-1]['seconds']} s", flush=True)
        if best is None or loss < best[0]:
            best = (loss, state, cfg)

    rounded = export(os.path.join(args.out, "lockstep-tiny.gguf"), best[1], tok)
    model = Model(0.0).cuda().double()
    model.load_state_dict(rounded)
    held_nats, held_count = nats(model, held_ids, eot, 512)
    text = held[0][:600]
    ids = [eot] + tok.encode(text).ids
    model.eval()
    with torch.no_grad():
        logits = model(torch.tensor(ids).cuda()[None])[0].cpu().numpy()
    np.save(os.path.join(args.out, "oracle.npy"), logits[-64:].astype(np.float32))
    open(os.path.join(args.out, "heldout.txt"), "w", encoding="utf-8").write("".join(held))
    cases = [" ".join(held[1].split()[:60]), "  two  spaces\n\nand\ttabs ", "Führer 我想在 🦙 1805--1812", "don't I'LL we've"]
    with open(args.corpus, "rb") as f:
        corpus = dict(title="War and Peace", sha256=hashlib.sha256(f.read()).hexdigest())
    versions = dict(torch=torch.__version__, tokenizers=tokenizers.__version__, numpy=np.__version__)
    json.dump(dict(
        corpus=corpus, versions=versions, shape=SHAPE, settings=best[2], runs=runs, parameters=sum(p.numel() for p in model.parameters()),
        stop_perplexity=math.exp(best[0]),
        heldout=dict(file="heldout.txt", window=512, tokens=held_count, nats=held_nats, perplexity=math.exp(held_nats)),
        oracle=dict(file="oracle.npy", text=text, tokens=ids, first_position=len(ids) - 64, dtype="float64 rounded to float32"),
        tokenizer=[dict(text=c, tokens=tok.encode(c).ids) for c in cases],
    ), open(os.path.join(args.out, "oracle.json"), "w"), indent=1)
    print(f"held-out perplexity {math.exp(held_nats):.3f} over {held_count} tokens (Q8_0, float64)")


if __name__ == "__main__":
    main()
