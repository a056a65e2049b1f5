#!/usr/bin/env python3
"""Reads hidden states with transformers, one pass for each line on standard input.

The peer of the benchmark BenchmarkStatesTransformers, which starts it: f32 on the
CPU, every sequence on its own, output_hidden_states, the wanted rows of every layer
kept.

    bench_states.py MODEL.gguf SEQUENCES.json THREADS
"""

import json
import sys
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel


def read(model: PreTrainedModel, sequences: list[dict[str, list[int]]]) -> int:
    """Returns the number of states that were kept."""
    kept = 0
    with torch.no_grad():
        for s in sequences:
            out = model.model(torch.tensor([s["tokens"]]), output_hidden_states=True, use_cache=False)
            rows = torch.stack([h[0, s["at"]] for h in out.hidden_states])
            kept += rows.shape[0] * rows.shape[1]
    return kept


def main() -> None:
    gguf, sequences = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    torch.set_num_threads(int(sys.argv[3]))
    model = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    model.train(False)
    read(model, sequences[:1])
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        read(model, sequences)
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
