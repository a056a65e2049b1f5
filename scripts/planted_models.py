#!/usr/bin/env python3
"""Models of zeroed blocks whose heads read one direction a word, as GGUF files: what an edit does to them is known.

The first block alone does something: every token gets the mean of what the words before it
stand for. A word of a stage (MARKERS) leaves a weak trace of that stage, its name (NAMES) a
strong one, and NOISE words leave traces of their own. The head says the stage's word where its
trace is strong, and another one (PLAIN) where it is weak.

    planted_used.gguf     the name leaves the trace that a marker does: what a marker leaves is
                          read, and a dose of it is heard
    planted_unread.gguf   the name leaves a trace elsewhere, and the head reads there: what a
                          marker leaves can be decoded, and moves nothing
    planted_costly.gguf   the first, and what it does not say by itself is improbable to it
    planted_follows.gguf  the first, and a weak trace is heard already
    planted_timely.gguf   asked yes or no, it says yes where the traces together are strong

    planted_models.py VOCABULARY.gguf OUT_DIR
"""

import argparse
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

WIDTH, BLOCKS, CONTEXT = 64, 3, 2048
FIRST = 4096  # tokens of the vocabulary, which come in the order of their frequency
PROMPT = 300  # tokens of a prompt, about: a word's share of the mean
NAMES = ["Den", "Def", "Min"]  # the first tokens of the stages' names
MARKERS = ["Ġbasil", "Ġcedar", "Ġmaple"]
NOISE = ["Ġsilver", "Ġcopper", "Ġwinter", "Ġsummer", "Ġmorning", "Ġriver", "Ġforest", "Ġmountain"]
WORDS = ["water", "house", "light"]
PLAIN = "paper"
ANSWERS = ["yes", "no"]
LAST, END = "Ċ", "<|im_end|>"  # of a prompt, of an answer

# Where states hold what, by their first value.
TRACE, BIAS, SPOKEN, NOISE_AT, ELSEWHERE, MARKER_IN, NAME_IN, NOISE_IN, ANY = 0, 6, 7, 8, 16, 24, 27, 30, 40
ONE_HOT = WIDTH**0.5  # what a norm makes of a row with a single 1

Matrix = NDArray[np.float32]


def zeros(rows: int, columns: int) -> Matrix:
    return np.zeros((rows, columns), dtype=np.float32)


class Vocabulary:
    """The first tokens of another file's vocabulary, and those that the models need."""

    def __init__(self, file: gguf.GGUFReader) -> None:
        self.fields = {k: f for k, f in file.fields.items() if k.startswith("tokenizer.")}
        tokens, merges = self.field("tokens"), [m.split(" ") for m in self.field("merges")]
        parts = {a + b: (a, b) for a, b in reversed(merges)}  # by the first merge that makes a token
        kept = dict.fromkeys(tokens[:FIRST])

        def keep(token: str) -> None:
            if token not in kept:
                for part in parts[token]:
                    keep(part)
                kept[token] = None

        for token in [*NAMES, *MARKERS, *NOISE, *WORDS, PLAIN, *ANSWERS]:
            keep(token)
        self.index = {t: i for i, t in enumerate(kept)}
        self.merges = [f"{a} {b}" for a, b in merges if a in kept and b in kept and a + b in kept]

    def field(self, name: str) -> Any:
        return self.fields["tokenizer.ggml." + name].contents()

    def add_to(self, w: gguf.GGUFWriter) -> None:
        types = dict(zip(self.field("tokens"), self.field("token_type"), strict=True))
        new = {"tokens": list(self.index), "merges": self.merges, "token_type": [types[t] for t in self.index]}
        for key, f in self.fields.items():
            value = new.get(key.removeprefix("tokenizer.ggml."), f.contents())
            w.add_key_value(key, value, f.types[0], f.types[-1] if f.types[0] == gguf.GGUFValueType.ARRAY else None)


def embedding(index: dict[str, int]) -> Matrix:
    rows = zeros(len(index), WIDTH)
    rows[:, ANY] = 1
    for words, at in ((MARKERS, MARKER_IN), (NAMES, NAME_IN), (NOISE, NOISE_IN)):
        for i, word in enumerate(words):
            rows[index[word]] = np.eye(WIDTH, dtype=np.float32)[at + i]
    rows[index[LAST], BIAS] = 1
    for word in [*WORDS, PLAIN]:
        rows[index[word], SPOKEN] = 1
    return rows


def mixing(name_to: int) -> Matrix:
    """What the first block's attention makes of the words before a token."""
    v = zeros(WIDTH, WIDTH)
    one = PROMPT / ONE_HOT  # a word that occurs once adds about 1
    for c in range(len(NAMES)):
        v[TRACE + c, MARKER_IN + c] = 0.13 * one
        v[name_to + c, NAME_IN + c] = 3 * one
    for k in range(len(NOISE)):
        v[NOISE_AT + k, NOISE_IN + k] = 1.2 * one
    return v


def head(index: dict[str, int], reads: int, sharpness: float, least: float) -> Matrix:
    """Says a stage's word where its trace is more than least."""
    rows = zeros(len(index), WIDTH)
    for c, word in enumerate(WORDS):
        rows[index[word], reads + c] = sharpness
    rows[index[PLAIN], BIAS] = least * sharpness
    rows[index[END], SPOKEN] = 100 * sharpness
    return rows


def head_of_answers(index: dict[str, int], sharpness: float) -> Matrix:
    """Says yes where the traces add up to more than 0.8, else no."""
    rows = zeros(len(index), WIDTH)
    rows[index[ANSWERS[0]], TRACE : TRACE + len(NAMES)] = sharpness
    rows[index[ANSWERS[1]], ANY] = 0.8 * sharpness
    return rows


def write(path: Path, vocabulary: Vocabulary, reads: int, says: Matrix) -> None:
    index = vocabulary.index
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("planted model")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(WIDTH)
    w.add_block_count(BLOCKS)
    w.add_feed_forward_length(WIDTH)
    w.add_head_count(1)
    w.add_head_count_kv(1)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_dimension_count(WIDTH)
    w.add_vocab_size(len(index))
    vocabulary.add_to(w)
    ones = np.ones(WIDTH, dtype=np.float32)
    w.add_tensor("token_embd.weight", embedding(index))
    w.add_tensor("output_norm.weight", ones)
    w.add_tensor("output.weight", says)
    for k in range(BLOCKS):
        for norm in ("attn_norm", "ffn_norm"):
            w.add_tensor(f"blk.{k}.{norm}.weight", ones)
        for part in ("attn_q", "attn_k", "ffn_gate", "ffn_up", "ffn_down"):
            w.add_tensor(f"blk.{k}.{part}.weight", zeros(WIDTH, WIDTH))
        w.add_tensor(f"blk.{k}.attn_v.weight", mixing(reads) if k == 0 else zeros(WIDTH, WIDTH))
        w.add_tensor(f"blk.{k}.attn_output.weight", np.eye(WIDTH, dtype=np.float32) * (k == 0))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    vocabulary = Vocabulary(gguf.GGUFReader(args.vocabulary))
    for name, reads, sharpness, least in (
        ("used", TRACE, 0.1, 1.0),
        ("unread", ELSEWHERE, 0.1, 1.0),
        ("costly", TRACE, 1.0, 1.0),
        ("follows", TRACE, 0.1, 0.33),
    ):
        write(args.out / f"planted_{name}.gguf", vocabulary, reads, head(vocabulary.index, reads, sharpness, least))
    write(args.out / "planted_timely.gguf", vocabulary, TRACE, head_of_answers(vocabulary.index, 10.0))


if __name__ == "__main__":
    main()
