#!/usr/bin/env python3
"""Logits of a causal language model whose residual stream is edited by forward hooks, as JSON.

The reference for the embedded engine's edits, which share no code with these. tiny_models.py
writes one beside each model's states.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

EVERY = 16  # entries of the vocabulary that are kept, one of so many

Change = Callable[[torch.Tensor], torch.Tensor]


def edited_logits(
    model: PreTrainedModel, tokens: list[int], edits: list[tuple[int, slice, Change]], at: list[int]
) -> torch.Tensor:
    """The logits at the token indices of at, with the rows of each edit's block changed by its function."""

    def hook_of(rows: slice, change: Change) -> Callable[..., Any]:
        def hook(_module: torch.nn.Module, _inputs: object, output: Any) -> Any:
            x = output if isinstance(output, torch.Tensor) else output[0]
            y = x.clone()
            y[:, rows] = change(x[:, rows])
            return y if isinstance(output, torch.Tensor) else (y, *output[1:])

        return hook

    blocks = model.model.layers
    handles = [blocks[block - 1].register_forward_hook(hook_of(rows, change)) for block, rows, change in edits]
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([tokens]), use_cache=False).logits[0]
    for h in handles:
        h.remove()
    return logits[at, ::EVERY]


def write(path: Path, model: PreTrainedModel, tokens: list[int], generator: torch.Generator) -> None:
    """Writes the logits under additions, replacements and erasures of every block and scope."""
    width, blocks = model.config.hidden_size, len(model.model.layers)
    prompt = 2 * len(tokens) // 3
    scopes = {"prompt_end": slice(prompt - 1, prompt), "generated": slice(prompt, None), "all": slice(0, None)}
    at = [prompt - 1, prompt, len(tokens) - 1]

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    cases: list[dict[str, Any]] = []
    made: list[tuple[int, slice, Change]] = []

    def case(edits: list[dict[str, Any]], changes: list[tuple[int, slice, Change]]) -> None:
        logits = edited_logits(model, tokens, changes, at)
        cases.append({"edits": edits, "logits": logits.tolist()})

    together: list[dict[str, Any]] = []
    for block in range(1, blocks + 1):
        for scope, rows in scopes.items():
            v = draw(width)
            u, w, mean = draw(2, width) / width**0.5, draw(2, width) / width**0.5, draw(width)

            def add(x: torch.Tensor, v: torch.Tensor = v) -> torch.Tensor:
                return x + v

            def replace(x: torch.Tensor, v: torch.Tensor = v) -> torch.Tensor:
                return v.expand_as(x)

            def erase(
                x: torch.Tensor, u: torch.Tensor = u, w: torch.Tensor = w, mean: torch.Tensor = mean
            ) -> torch.Tensor:
                return x - (x - mean) @ w.T @ u

            place = {"block": block, "scope": scope}
            added = {**place, "add": v.tolist()}
            erased = {**place, "erase": {"u": u.tolist(), "v": w.tolist(), "mean": mean.tolist()}}
            case([added], [(block, rows, add)])
            case([{**place, "replace": v.tolist()}], [(block, rows, replace)])
            case([erased], [(block, rows, erase)])
            together += [added, erased]
            made += [(block, rows, add), (block, rows, erase)]
    case(together, made)
    plain = edited_logits(model, tokens, [], at)
    path.write_text(
        json.dumps({"tokens": tokens, "prompt": prompt, "every": EVERY, "plain": plain.tolist(), "cases": cases})
    )
