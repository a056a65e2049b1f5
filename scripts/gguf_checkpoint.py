#!/usr/bin/env python3
"""A Hugging Face checkpoint out of a GGUF file: weights, configuration, tokenizer.

For training where only the GGUF file of a model is at hand. The weights are
dequantised to f32, exactly what llama.cpp computes with. The tokenizer is built
from the file's own vocabulary, merges and pre-tokenizer, because transformers'
loader drops pre-tokenizers (it leaves out SmolLM2's splitting of digits).

    gguf_checkpoint.py MODEL.gguf OUT_DIR
    gguf_checkpoint.py MODEL.gguf|HF_DIR --tokenize CORPUS.jsonl OUT.jsonl

--tokenize writes {"ids": [...]} for the "text" of each line, with no special
tokens added, to be compared with llama.cpp's token ids.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma2Config,
    GenerationConfig,
    LlamaConfig,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from dual_head import replacing

SHARD_BYTES = 4 << 30
NEEDS_FOLDER = "give the model's Hugging Face folder instead of its GGUF file"

# The splitting of words, by the name in tokenizer.ggml.pre, as in llama.cpp's llama-vocab.cpp.
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DIGITS_THEN_GPT2 = ("smollm", "starcoder", "refact", "command-r", "codeshell")
GPT2 = ("gpt-2", "gpt2", "phi-2", "mpt", "olmo", "roberta-bpe", "jina-es", "jina-de")
LLAMA3 = ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral")
QWEN2 = ("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez")


class Unsupported(Exception):
    """The file cannot be turned into a checkpoint; the message says why and what to do."""


class File:
    """The metadata and tensors of a GGUF file."""

    def __init__(self, path: Path) -> None:
        try:
            self.reader = gguf.GGUFReader(path)
        except (OSError, ValueError, IndexError) as e:
            raise Unsupported(f"{path} cannot be read as a GGUF file: {e}") from e
        self.path = path
        self.tensors = {t.name: t for t in self.reader.tensors}
        self.arch: str = self.get("general.architecture", "")

    def get(self, key: str, default: Any = None) -> Any:
        field = self.reader.fields.get(key)
        return default if field is None else field.contents()

    def own(self, key: str, default: Any = None) -> Any:
        """The value of a key under the architecture's name."""
        return self.get(f"{self.arch}.{key}", default)

    def need(self, key: str) -> Any:
        value = self.own(key)
        if value is None:
            raise Unsupported(f"{self.path} has no {self.arch}.{key}; {NEEDS_FOLDER}")
        return value

    def weight(self, name: str) -> np.ndarray:
        """The tensor in f32, shaped as in torch."""
        tensor = self.tensors[name]
        return np.asarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)


def halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """Undoes the row order of llama.cpp's llama, whose heads rotate neighbouring pairs instead of halves."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def llama3_rope(file: File, theta: float, head: int) -> dict[str, Any]:
    """Llama 3's frequency scaling, which GGUF keeps as a tensor of divisors; checked against that tensor."""
    found = file.weight("rope_freqs.weight")
    factor, low, high, original = round(float(found.max()), 3), 1.0, 4.0, 8192
    wavelength = 2 * np.pi * theta ** (np.arange(0, head, 2, dtype=np.float64) / head)
    smooth = (original / wavelength - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    expected = np.where(wavelength < original / high, 1.0, np.where(wavelength > original / low, factor, between))
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-4):
        raise Unsupported(f"{file.path} scales the rotary frequencies in a way unknown here; {NEEDS_FOLDER}")
    return {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }


def shape(file: File) -> dict[str, Any]:
    """What the configurations of all architectures share."""
    heads, width = file.need("attention.head_count"), file.need("embedding_length")
    if isinstance(heads, list):
        raise Unsupported(f"{file.path} has blocks with different numbers of heads; {NEEDS_FOLDER}")
    scaling = file.own("rope.scaling.type", "none")
    if scaling != "none" or any(name.startswith("rope_factors") for name in file.tensors):
        raise Unsupported(f"{file.path} stretches its context by rope scaling {scaling!r}; {NEEDS_FOLDER}")
    head = file.own("attention.key_length", width // heads)
    theta = float(file.own("rope.freq_base", 10000.0))
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    if "rope_freqs.weight" in file.tensors:
        rope = llama3_rope(file, theta, head)
    if file.own("rope.dimension_count", head) != head:
        raise Unsupported(f"{file.path} rotates only a part of each head; {NEEDS_FOLDER}")
    return {
        "vocab_size": int(file.tensors["token_embd.weight"].shape[1]),
        "hidden_size": width,
        "intermediate_size": file.need("feed_forward_length"),
        "num_hidden_layers": file.need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.own("attention.head_count_kv", heads),
        "max_position_embeddings": file.need("context_length"),
        "rms_norm_eps": float(file.need("attention.layer_norm_rms_epsilon")),
        "rope_parameters": rope,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "bos_token_id": file.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": file.get("tokenizer.ggml.padding_token_id"),
    }


def llama(file: File) -> PreTrainedConfig:
    s = shape(file)
    head = file.own("attention.key_length", s["hidden_size"] // s["num_attention_heads"])
    bias = "blk.0.attn_q.bias" in file.tensors
    return LlamaConfig(**s, head_dim=head, attention_bias=bias, mlp_bias="blk.0.ffn_up.bias" in file.tensors)


def qwen2(file: File) -> PreTrainedConfig:
    return Qwen2Config(**shape(file))


def phi3(file: File) -> PreTrainedConfig:
    s = shape(file)
    original = file.own("rope.scaling.original_context_length", s["max_position_embeddings"])
    window = file.own("attention.sliding_window", 0) or None
    return Phi3Config(**s, original_max_position_embeddings=original, sliding_window=window)


def gemma2(file: File) -> PreTrainedConfig:
    s = shape(file)
    head = file.own("attention.key_length", 256)
    # As in llama.cpp: the file does not say it, and only the model of 27B scales by width over heads.
    scale = s["hidden_size"] // s["num_attention_heads"] if s["num_hidden_layers"] == 46 else head
    return Gemma2Config(
        **s,
        head_dim=head,
        query_pre_attn_scalar=scale,
        sliding_window=file.own("attention.sliding_window", 4096),
        attn_logit_softcapping=file.own("attn_logit_softcapping", 50.0),
        final_logit_softcapping=file.own("final_logit_softcapping", 30.0),
    )


ARCHITECTURES: dict[str, tuple[gguf.MODEL_ARCH, Callable[[File], PreTrainedConfig]]] = {
    "llama": (gguf.MODEL_ARCH.LLAMA, llama),
    "gemma2": (gguf.MODEL_ARCH.GEMMA2, gemma2),
    "phi3": (gguf.MODEL_ARCH.PHI3, phi3),
    "qwen2": (gguf.MODEL_ARCH.QWEN2, qwen2),
}


def configuration(file: File) -> PreTrainedConfig:
    """The model's configuration; architectures has the class that transformers loads."""
    if file.arch not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise Unsupported(f"{file.path} is of architecture {file.arch!r}, known are {known}; {NEEDS_FOLDER}")
    config = ARCHITECTURES[file.arch][1](file)
    config.architectures = [type(on_meta(config)).__name__]
    config.dtype = torch.float32
    return config


def on_meta(config: PreTrainedConfig) -> torch.nn.Module:
    with torch.device("meta"):
        model: torch.nn.Module = AutoModelForCausalLM.from_config(config)
    return model


def weights(file: File, config: PreTrainedConfig) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters under transformers' names, one at a time: a model of 8B takes 32 GB in f32."""
    names = gguf.get_tensor_name_map(ARCHITECTURES[file.arch][0], config.num_hidden_layers)
    rest = set(file.tensors) - {"rope_freqs.weight"}
    for name, parameter in on_meta(config).named_parameters():
        source = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if source is None or source not in file.tensors:
            raise Unsupported(f"{file.path} has no tensor for {name}; {NEEDS_FOLDER}")
        rest.discard(source)
        w = file.weight(source)
        if file.arch == "llama" and ".q_proj" in name:
            w = halves(w, config.num_attention_heads)
        if file.arch == "llama" and ".k_proj" in name:
            w = halves(w, config.num_key_value_heads)
        if file.arch == "gemma2" and "norm" in name:
            w = w - 1  # transformers multiplies by 1 + weight
        if w.shape != tuple(parameter.shape):
            raise Unsupported(f"{file.path}: {source} is {w.shape}, expected {tuple(parameter.shape)}; {NEEDS_FOLDER}")
        yield name, torch.from_numpy(w.copy())  # the file is mapped read-only
    if rest:
        raise Unsupported(f"{file.path} holds tensors unknown to {file.arch}: {', '.join(sorted(rest))}")


def write_weights(out: Path, parameters: Iterator[tuple[str, torch.Tensor]]) -> None:
    """Writes model.safetensors, or numbered shards with an index where one file gets too large."""
    shards: list[list[str]] = []
    shard: dict[str, torch.Tensor] = {}
    total = size = 0

    def flush() -> None:
        nonlocal shard, size
        save_file(shard, out / f"shard-{len(shards)}", metadata={"format": "pt"})
        shards.append(list(shard))
        shard, size = {}, 0

    for name, w in parameters:
        if shard and size + w.nbytes > SHARD_BYTES:
            flush()
        shard[name] = w
        size += w.nbytes
        total += w.nbytes
    flush()
    if len(shards) == 1:
        (out / "shard-0").rename(out / "model.safetensors")
        return
    where: dict[str, str] = {}
    for k, members in enumerate(shards):
        target = f"model-{k + 1:05d}-of-{len(shards):05d}.safetensors"
        (out / f"shard-{k}").rename(out / target)
        where |= dict.fromkeys(members, target)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def pre_tokenizer(file: File) -> pre_tokenizers.PreTokenizer:
    kind, pre = file.get("tokenizer.ggml.model", ""), file.get("tokenizer.ggml.pre", "")
    if kind != "gpt2":
        raise Unsupported(f"{file.path} has a tokenizer of kind {kind!r}, only byte-level BPE is known; {NEEDS_FOLDER}")
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pre in GPT2:
        return gpt2
    if pre in DIGITS_THEN_GPT2:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    if pre in LLAMA3 or pre in QWEN2:
        words = Regex(WORDS % (3 if pre in LLAMA3 else 1))
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([pre_tokenizers.Split(words, behavior="isolated"), plain])
    raise Unsupported(f"{file.path} splits words by {pre!r}, which is not known here; {NEEDS_FOLDER}")


def tokenizer(file: File) -> Tokenizer:
    """The tokenizer that llama.cpp uses for the file, as one of the tokenizers package."""
    split = pre_tokenizer(file)
    tokens: list[str] = file.get("tokenizer.ggml.tokens")
    types: list[int] = file.get("tokenizer.ggml.token_type") or [gguf.TokenType.NORMAL] * len(tokens)
    vocabulary = {t: i for i, t in enumerate(tokens) if types[i] != gguf.TokenType.UNUSED}
    if len(vocabulary) != sum(t != gguf.TokenType.UNUSED for t in types):
        raise Unsupported(f"{file.path} has the same token text under two ids; {NEEDS_FOLDER}")
    merges = [(a, b) for a, b in (m.split(" ", 1) for m in file.get("tokenizer.ggml.merges", []))]
    whole_words = file.get("tokenizer.ggml.pre") in LLAMA3
    t = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=whole_words))
    t.pre_tokenizer = split
    t.decoder = decoders.ByteLevel()
    added = []
    for i, text in enumerate(tokens):
        if types[i] in (gguf.TokenType.CONTROL, gguf.TokenType.UNKNOWN, gguf.TokenType.USER_DEFINED):
            added.append(AddedToken(text, special=types[i] != gguf.TokenType.USER_DEFINED, normalized=False))
    t.add_tokens(added)
    post: list[processors.PostProcessor] = [processors.ByteLevel(trim_offsets=False)]
    if file.get("tokenizer.ggml.add_bos_token", whole_words):
        bos = file.get("tokenizer.ggml.bos_token_id")
        if bos is None:
            raise Unsupported(f"{file.path} asks for a first token but names none; {NEEDS_FOLDER}")
        first = tokens[bos]
        post.append(
            processors.TemplateProcessing(
                single=f"{first} $A", pair=f"{first} $A {first}:1 $B:1", special_tokens=[(first, bos)]
            )
        )
    t.post_processor = processors.Sequence(post)
    return t


def write_tokenizer(file: File, out: Path) -> None:
    tokens: list[str] = file.get("tokenizer.ggml.tokens")
    named = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    special = {}
    for name, key in named.items():
        i = file.get(f"tokenizer.ggml.{key}_token_id")
        if i is not None:
            special[f"{name}_token"] = tokens[i]
    special.setdefault("pad_token", special.get("eos_token", tokens[0]))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(file),
        clean_up_tokenization_spaces=False,
        model_max_length=file.need("context_length"),
        **special,
    )
    fast.chat_template = file.get("tokenizer.chat_template")
    fast.save_pretrained(out)


def write_checkpoint(file: File, out: Path) -> None:
    """Writes weights, configuration and tokenizer into out, which must be new or empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Unsupported(f"{out} exists already: remove it or name another folder")
    config = configuration(file)
    ends = {file.get(f"tokenizer.ggml.{k}_token_id") for k in ("eos", "eot")} - {None}
    generation = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=sorted(ends) or None, pad_token_id=config.pad_token_id
    )
    with replacing(out) as partial:
        write_tokenizer(file, partial)
        config.save_pretrained(partial)
        generation.save_pretrained(partial)
        write_weights(partial, weights(file, config))


def ids_by(model: Path) -> Callable[[str], list[int]]:
    """How the GGUF file or Hugging Face folder tokenises a text, with no special tokens added."""
    if model.is_dir():
        loaded = AutoTokenizer.from_pretrained(str(model))
        return lambda text: list(loaded(text, add_special_tokens=False)["input_ids"])
    rebuilt = tokenizer(File(model))
    return lambda text: list(rebuilt.encode(text, add_special_tokens=False).ids)


def tokenize(model: Path, corpus: Path, out: Path) -> None:
    encode = ids_by(model)
    with corpus.open(encoding="utf-8") as lines, out.open("w", encoding="utf-8") as to:
        for number, line in enumerate(lines, 1):
            try:
                text = json.loads(line)["text"]
            except (ValueError, KeyError, TypeError) as e:
                raise Unsupported(f'{corpus}, line {number}: not a JSON object with "text"') from e
            to.write(json.dumps({"ids": encode(text)}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--tokenize", type=Path, nargs=2, metavar=("CORPUS", "OUT"))
    args = parser.parse_args()
    if args.out is None and args.tokenize is None:
        parser.error("name the folder for the checkpoint, or --tokenize CORPUS.jsonl OUT.jsonl")
    try:
        if args.out is not None:
            write_checkpoint(File(args.model), args.out)
        if args.tokenize is not None:
            tokenize(args.out or args.model, *args.tokenize)
    except (Unsupported, OSError) as e:
        sys.exit(f"gguf_checkpoint: {e}")


if __name__ == "__main__":
    main()
