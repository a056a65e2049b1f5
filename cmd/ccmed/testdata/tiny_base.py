"""A checkpoint of two random layers with the tokenizer of a GGUF file.

Its weights are wide, so that every turn of a dialogue has another state.

    tiny_base.py SCRIPTS MODEL.gguf OUT_DIR
"""

import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, sys.argv[1])
import gguf_checkpoint  # noqa: E402

out = Path(sys.argv[3])
torch.manual_seed(20261130)
LlamaForCausalLM(
    LlamaConfig(
        vocab_size=49152,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        initializer_range=0.3,
    )
).save_pretrained(out)
gguf_checkpoint.write_tokenizer(gguf_checkpoint.File(Path(sys.argv[2])), out)
