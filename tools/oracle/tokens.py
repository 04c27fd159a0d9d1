#!/usr/bin/env python3
"""Token ids by Hugging Face tokenizers and SentencePiece, for vocabularies trained here.

    python3 tools/oracle/tokens.py --text golden/model/heldout.txt --out golden/tokenizer/tokens.json

Hugging Face tokenizers encodes the texts below with the published pre-tokenizer of each
family. The vocabulary has tokens that span words, numbers and lines, so that a wrong
split changes the ids. SentencePiece trains a small byte-fallback BPE vocabulary on the
given text and encodes with it. No published vocabulary is needed or copied.
"""
import argparse, io, json
import sentencepiece as spm
import tokenizers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers as pre, trainers

TEXTS = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\n\n\n", "\t\n", " \n", "\n ", "\r\n", "a\r\n\r\nb", "\u00a0", "\u3000x",
    "Prince Andrew", " Prince Andrew", "  Prince   Andrew ", "prince\nandrew", "prince \n andrew", "prince\n\n  andrew\n\n\n",
    "Well, Prince, so Genoa and Lucca are now just family estates of the Buonapartes.",
    "I'm, you're, he'd, she'll, we've, it's, don't", "I'M, YOU'RE, HE'D, SHE'LL, WE'VE, IT'S, DON'T", "'s't're've'm'll'd 'S'T'RE", "''' 'x' 'tis",
    "1", "12", "123", "1234", "12345", "1805--1812", "3.14159 x10^-7", "in 1805,the 2nd of 12", "a1b22c333d4444", "٣٤٥ १२३ ⅷ ²", "½ 1½",
    "!", "!!!", "?!...", " (and) [so] {on}", "--dash--dash-- ", "----\n----\n", "a/b\\c|d", "#include <x>\n\tint i = 0; // c\n", "\"quoted\" 'quoted' «quoted» “quoted”",
    "naïve café Führer señor Łódź", "нещо на Български", "Война и мир", "戦争と平和 我想在 한국어", "ก็ทำไม កាន់តែ", "שלום العربية",
    "e\u0301 a\u0308 combining", "🙂", "🙂🙂 🦙 👩‍👩‍👧 🏳️‍🌈", "a🙂b", "x\u200by", "zero\u0000byte", "tab\tand  two\t\tspaces   ",
    "word" * 40, "ab" * 60, "=" * 50, " " * 33 + "x", "\n" * 9 + "x", "Aa" * 3 + "1" * 7 + "!" * 5 + " " * 4,
]

LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
whole = lambda: pre.ByteLevel(add_prefix_space=False, use_regex=True)
split = lambda expr: pre.Sequence([pre.Split(Regex(expr), "isolated"), pre.ByteLevel(add_prefix_space=False, use_regex=False)])
# name: (pre-tokenizer, ignore_merges)
FAMILIES = {
    "gpt-2": (whole(), False),
    "llama-bpe": (split(LETTERS % "{1,3}"), True),
    "hunyuan": (split(LETTERS % ""), False),
    "starcoder": (pre.Sequence([pre.Digits(individual_digits=True), whole()]), False),
}


def byte_level(path):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre.ByteLevel(add_prefix_space=False, use_regex=False)
    book = open(path, encoding="utf-8").read().split("\n\n")
    tok.train_from_iterator(book + 4 * TEXTS, trainers.BpeTrainer(
        vocab_size=3000, min_frequency=2, show_progress=False, initial_alphabet=pre.ByteLevel.alphabet()))
    bpe = json.loads(tok.to_str())["model"]
    merges = [m.split(" ") if isinstance(m, str) else m for m in bpe["merges"]]
    out = dict(tokens=sorted(bpe["vocab"], key=bpe["vocab"].get), merges=[" ".join(m) for m in merges], ids={})
    for name, (split_words, take_whole) in FAMILIES.items():
        tok = Tokenizer(models.BPE(vocab=bpe["vocab"], merges=[tuple(m) for m in merges], ignore_merges=take_whole))
        tok.pre_tokenizer = split_words
        out["ids"][name] = [tok.encode(t).ids for t in TEXTS]
    return out


def sentence_piece(path):
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(open(path, encoding="utf-8")), model_writer=model, model_type="bpe", vocab_size=600,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
        allow_whitespace_only_pieces=True, num_threads=1, minloglevel=2)
    sp = spm.SentencePieceProcessor(model_proto=model.getvalue())
    kind = lambda i: 2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 5 if sp.is_unused(i) else 1
    n = sp.get_piece_size()
    return dict(tokens=[sp.id_to_piece(i) for i in range(n)], scores=[sp.get_score(i) for i in range(n)],
                types=[kind(i) for i in range(n)], ids=[sp.encode(t) for t in TEXTS])


def main():
    ap = argparse.ArgumentParser()
    for flag in ("--text", "--out"):
        ap.add_argument(flag, required=True)
    args = ap.parse_args()
    result = dict(made_by=f"tokenizers {tokenizers.__version__}, sentencepiece {spm.__version__}", texts=TEXTS,
                  byte_level=byte_level(args.text), sentence_piece=sentence_piece(args.text))
    with open(args.out, "w", encoding="utf-8") as f:  # one list per line, for readable diffs
        f.write(json.dumps(result, ensure_ascii=True, separators=(",", ":")).replace("],[", "],\n["))
    ids = result["byte_level"]["ids"]
    for a in ids:
        print(a, "differs from", {b: sum(x != y for x, y in zip(ids[a], ids[b])) for b in ids if b != a})


if __name__ == "__main__":
    main()
