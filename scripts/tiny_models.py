#!/usr/bin/env python3
"""Tiny random models of four architectures as GGUF files, with their states and edited logits.

Each is made by transformers, its hidden states are computed there, and its
weights are written as f32 with the vocabulary of another GGUF file. Weights are
wide enough that every part of a block moves the residual stream: a wrong head
permutation, scale or norm shows at once.

    tiny_models.py VOCABULARY.gguf OUT_DIR
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

import hf_edits
import hf_states

SEED = 20261130
WIDTH, HEADS, KV_HEADS, BLOCKS, CONTEXT = 64, 4, 2, 3, 512
TOKENS = 90  # more than gemma2's window and than the test's micro-batch
WINDOW = 32


def llama(shape: dict[str, Any]) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=True))


def qwen2(shape: dict[str, Any]) -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**shape, tie_word_embeddings=True))


def phi3(shape: dict[str, Any]) -> PreTrainedModel:
    return Phi3ForCausalLM(
        Phi3Config(
            **shape,
            original_max_position_embeddings=CONTEXT,
            sliding_window=None,
            tie_word_embeddings=True,
            pad_token_id=0,
        )
    )


def gemma2(shape: dict[str, Any]) -> PreTrainedModel:
    head = WIDTH // HEADS
    return Gemma2ForCausalLM(Gemma2Config(**shape, head_dim=head, query_pre_attn_scalar=head, sliding_window=WINDOW))


MODELS: dict[str, tuple[gguf.MODEL_ARCH, Callable[[dict[str, Any]], PreTrainedModel]]] = {
    "llama": (gguf.MODEL_ARCH.LLAMA, llama),
    "gemma2": (gguf.MODEL_ARCH.GEMMA2, gemma2),
    "phi3": (gguf.MODEL_ARCH.PHI3, phi3),
    "qwen2": (gguf.MODEL_ARCH.QWEN2, qwen2),
}


def randomise(model: PreTrainedModel, generator: torch.Generator) -> None:
    """Draws all weights: norms about 1, biases wide, matrices that keep the scale."""
    around = 0.0 if model.config.model_type == "gemma2" else 1.0  # Gemma multiplies by 1 + weight
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            if "norm" in name:
                p.copy_(around + 0.2 * noise)
            elif p.ndim == 1:
                p.copy_(0.3 * noise)
            elif "embed" in name:
                p.copy_(0.5 * noise)
            else:
                p.copy_(noise / p.shape[1] ** 0.5)


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Reorders the rows of a head for llama.cpp's llama, which rotates neighbouring pairs, not halves."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path: Path, arch: gguf.MODEL_ARCH, model: PreTrainedModel, vocabulary: gguf.GGUFReader) -> None:
    config = model.config
    w = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    w.add_name("tiny random model")  # llama.cpp expects special tokens of a model that is named phi3
    w.add_context_length(CONTEXT)
    w.add_embedding_length(WIDTH)
    w.add_block_count(BLOCKS)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    w.add_rope_freq_base(config.rope_parameters["rope_theta"])
    w.add_rope_dimension_count(WIDTH // HEADS)
    w.add_vocab_size(config.vocab_size)
    if arch == gguf.MODEL_ARCH.PHI3:
        w.add_rope_scaling_orig_ctx_len(CONTEXT)
    if arch == gguf.MODEL_ARCH.GEMMA2:
        w.add_key_length(config.head_dim)
        w.add_value_length(config.head_dim)
        w.add_sliding_window(config.sliding_window)
        w.add_attn_logit_softcapping(config.attn_logit_softcapping)
        w.add_final_logit_softcapping(config.final_logit_softcapping)
    for key, field in vocabulary.fields.items():
        if key.startswith("tokenizer."):
            kind, item = field.types[0], field.types[-1]
            w.add_key_value(key, field.contents(), kind, item if kind == gguf.GGUFValueType.ARRAY else None)

    names = gguf.get_tensor_name_map(arch, BLOCKS)
    for name, p in model.named_parameters():
        x = p.detach().numpy()
        if arch == gguf.MODEL_ARCH.LLAMA and "q_proj" in name:
            x = interleaved(x, HEADS)
        if arch == gguf.MODEL_ARCH.LLAMA and "k_proj" in name:
            x = interleaved(x, KV_HEADS)
        if arch == gguf.MODEL_ARCH.GEMMA2 and "norm" in name:
            x = x + 1
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if target is None:
            raise SystemExit(f"tiny_models: no GGUF name for {name} of {config.model_type}")
        w.add_tensor(target, np.ascontiguousarray(x, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()

    args.out.mkdir(parents=True, exist_ok=True)
    vocabulary = gguf.GGUFReader(args.vocabulary)
    size = len(vocabulary.fields["tokenizer.ggml.tokens"].data)
    for name, (arch, make) in MODELS.items():
        generator = torch.Generator().manual_seed(SEED)
        model = make(
            {
                "vocab_size": size,
                "hidden_size": WIDTH,
                "intermediate_size": 2 * WIDTH,
                "num_hidden_layers": BLOCKS,
                "num_attention_heads": HEADS,
                "num_key_value_heads": KV_HEADS,
                "max_position_embeddings": CONTEXT,
            }
        )
        model.set_attn_implementation("eager")  # the only one that knows Gemma's soft cap
        model.train(False)
        randomise(model, generator)
        write_gguf(args.out / f"{name}.gguf", arch, model, vocabulary)
        tokens = torch.randint(size, (TOKENS,), generator=generator).tolist()
        hf_states.write(args.out / f"{name}.json", model, tokens, list(range(TOKENS)))
        hf_edits.write(args.out / f"{name}.edits.json", model, tokens, generator)


if __name__ == "__main__":
    main()
