#!/usr/bin/env python3
"""Hidden states of a causal language model from transformers, as JSON.

The reference that the embedded engine is compared with. transformers reads the
weights of a GGUF file exactly (it dequantises them to f32).

    hf_states.py MODEL.gguf "Some text." OUT.json
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel


def residual_stream(model: PreTrainedModel, tokens: list[int]) -> dict[str, torch.Tensor]:
    """The residual stream by layer, each of shape (tokens, width).

    Layers are "embed", "block.1" to "block.L", and "final_norm". transformers'
    own last hidden state is normed, so the blocks are read by hooks.
    """
    layers: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Callable[[torch.nn.Module, object, torch.Tensor | tuple[torch.Tensor, ...]], None]:
        def hook(_module: torch.nn.Module, _inputs: object, output: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
            x = output if isinstance(output, torch.Tensor) else output[0]
            layers[name] = x.reshape(len(tokens), -1)

        return hook

    blocks = model.model.layers
    handles = [b.register_forward_hook(keep(f"block.{k}")) for k, b in enumerate(blocks, 1)]
    with torch.no_grad():
        out = model.model(torch.tensor([tokens]), output_hidden_states=True, use_cache=False)
    for h in handles:
        h.remove()
    states = out.hidden_states
    if len(states) != len(blocks) + 1:
        raise SystemExit(f"hf_states: {len(states)} hidden states for {len(blocks)} blocks")
    for k in range(1, len(blocks)):
        if not torch.equal(states[k][0], layers[f"block.{k}"]):
            raise SystemExit(f"hf_states: hidden state {k} is not the output of block {k}")
    layers["embed"] = states[0][0]
    layers["final_norm"] = states[-1][0]
    return layers


def write(path: Path, model: PreTrainedModel, tokens: list[int], at: list[int]) -> None:
    """Writes the states at the token indices of at."""
    layers = residual_stream(model, tokens)
    record = {
        "architecture": model.config.model_type,
        "tokens": tokens,
        "at": at,
        "layers": {name: x[at].tolist() for name, x in layers.items()},
    }
    path.write_text(json.dumps(record))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("text")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()

    where = {"pretrained_model_name_or_path": str(args.gguf.parent), "gguf_file": args.gguf.name}
    tokens = AutoTokenizer.from_pretrained(**where)(args.text, add_special_tokens=False)["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    model.train(False)
    write(args.out, model, tokens, list(range(0, len(tokens), 5)) + [len(tokens) - 1])


if __name__ == "__main__":
    main()
