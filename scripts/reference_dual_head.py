#!/usr/bin/env python3
"""Decisions and words of a merged model by PyTorch in f32, to prove the served model by.

Each line of IN has "id", "dialogue" (all turns, formatted as at inference) and
"at", the turn after which the mediator speaks. The line of OUT with the same
"id" has
    p        P(speak) at each turn's end
    tokens   the dialogue's token ids
    greedy   the token ids decoded greedily from the prefix up to turn "at" and
             [SPEAK], up to --tokens of them, [/SPEAK] or the model's end included
    gap      for each, the logit's lead over the second best: where it is nearly
             nothing another engine may choose otherwise

    reference_dual_head.py MERGED HEAD.safetensors IN.jsonl OUT.jsonl [--tokens 32]
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast

from dual_head import (
    END_SPEAK,
    SPEAK,
    TURN_END,
    DualHead,
    DualHeadError,
    as_text,
    load_model,
    load_tokenizer,
    marker_ids,
    read_jsonl,
)
from dual_head import prefix as beginning


def load(merged: Path, head: Path) -> tuple[DualHead, PreTrainedTokenizerFast]:
    tokenizer = load_tokenizer(merged)
    network = DualHead(load_model(merged, dtype=torch.float32), marker_ids(tokenizer), rows=False)
    try:
        tensors = load_file(head)
        network.decision.load_state_dict({k.removeprefix("decision."): v for k, v in tensors.items()})
    except (OSError, RuntimeError) as e:
        raise DualHeadError("data", f"{head} is not a decision head of {merged}: {' '.join(str(e).split())}") from e
    network.train(False)
    return network, tokenizer


def greedy(network: DualHead, ids: list[int], count: int, ends: set[int]) -> tuple[list[int], list[float]]:
    """The most likely continuation of ids, token by token, and each token's lead."""
    chosen: list[int] = []
    gaps: list[float] = []
    past, given = None, ids
    for _ in range(count):
        out: Any = network.model(torch.tensor([given]), cache=past, use_cache=True, logits_to_keep=1)
        best = out.logits[0, -1].float().topk(2)
        past, given = out.cache, [int(best.indices[0])]
        chosen += given
        gaps.append(float(best.values[0] - best.values[1]))
        if given[0] in ends:
            break
    return chosen, gaps


def describe(
    network: DualHead, tokenizer: PreTrainedTokenizerFast, record: dict[str, Any], count: int
) -> dict[str, Any]:
    name, markers = record.get("id", "?"), marker_ids(tokenizer)
    ids = beginning(tokenizer) + as_text(tokenizer, record["dialogue"])
    ends = [i for i, t in enumerate(ids) if t == markers[TURN_END]]
    at = record["at"]
    if not 1 <= at <= len(ends):
        raise DualHeadError("data", f'record {name} has {len(ends)} turns and "at" is {at}')
    with torch.no_grad():
        states = network.states(torch.tensor([ids]))[0]
        p = torch.sigmoid(network.decide(states[ends])).tolist()
        stops = {markers[END_SPEAK], int(tokenizer.eos_token_id)}
        chosen, gaps = greedy(network, ids[: ends[at - 1] + 1] + [markers[SPEAK]], count, stops)
    return {"id": name, "p": p, "tokens": ids, "greedy": chosen, "gap": gaps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("merged", type=Path)
    parser.add_argument("head", type=Path)
    parser.add_argument("input", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokens", type=int, default=32)
    args = parser.parse_args()
    try:
        network, tokenizer = load(args.merged, args.head)
        with args.out.open("w", encoding="utf-8") as out:
            for record in read_jsonl(args.input):
                try:
                    described = describe(network, tokenizer, record, args.tokens)
                except (KeyError, TypeError) as e:
                    raise DualHeadError(
                        "data", f'{args.input}: record {record.get("id")} lacks "dialogue" or "at"'
                    ) from e
                out.write(json.dumps(described) + "\n")
                out.flush()
    except (DualHeadError, OSError) as e:
        sys.exit(f"reference_dual_head: {e}")


if __name__ == "__main__":
    main()
