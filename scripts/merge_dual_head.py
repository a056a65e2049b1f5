#!/usr/bin/env python3
"""Merges what train_dual_head.py learned into its base: a plain Hugging Face checkpoint.

The checkpoint has the markers in its tokenizer and the base's chat template,
and converts to GGUF like any other; the decision head stays a file of its own.

    merge_dual_head.py FINAL OUT_DIR [--base HF_DIR]
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoConfig, PreTrainedModel

from dual_head import (
    MARKERS,
    DualHeadError,
    embeddings,
    fit_vocabulary,
    load_model,
    load_tokenizer,
    marker_ids,
    replacing,
)

F16_LARGEST = 65504


def merged(final: Path, base: Path, markers: dict[str, int]) -> PreTrainedModel:
    """The model in f32 with adapters and marker rows in its weights."""
    if not (final / "adapter_config.json").is_file():
        return load_model(final, dtype=torch.float32)
    model = load_model(base, dtype=torch.float32)
    fit_vocabulary(model, markers)
    adapters = PeftModel.from_pretrained(model, str(final))
    merged: PreTrainedModel = adapters.merge_and_unload(safe_merge=True)
    rows = load_file(final / "markers.safetensors")
    with torch.no_grad():
        for weight, name in zip(embeddings(merged), ("input", "output"), strict=False):
            weight[[markers[m] for m in MARKERS]] = rows[name]
    return merged


def check(model: PreTrainedModel) -> None:
    """Refuses weights that a GGUF file in F16 cannot hold."""
    for name, p in model.named_parameters():
        largest = p.detach().abs().max().item()
        if not largest <= F16_LARGEST:
            raise DualHeadError(
                "nan", f"{name} holds {largest:g}, which F16 cannot: train again with lower learning rates"
            )


def merge(final: Path, out: Path, base: Path | None) -> None:
    card_path = final / "dual_head.json"
    try:
        card = json.loads(card_path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise DualHeadError("data", f"{card_path} cannot be read: name the folder final of a training") from e
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DualHeadError("data", f"{out} exists already: remove it or name another folder")
    base = base or Path(card["base"])
    if not (base / "config.json").is_file():
        raise DualHeadError("data", f"the base model {base} is gone: name its folder with --base")
    tokenizer = load_tokenizer(final)
    markers = marker_ids(tokenizer)
    if markers != card["markers"]:
        raise DualHeadError("data", f"the markers {markers} of {final} are not those of its dual_head.json")
    model = merged(final, base, markers)
    check(model)
    # Half of f32's bytes where the base had no more: a merge is not more exact than its base.
    dtype: torch.dtype = AutoConfig.from_pretrained(str(base)).dtype or torch.float32
    torch.nn.Module.to(model, dtype)
    with replacing(out) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("final", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", type=Path, help="the base model's folder, where it has moved since the training")
    args = parser.parse_args()
    try:
        merge(args.final, args.out, args.base)
    except (DualHeadError, OSError) as e:
        sys.exit(f"merge_dual_head: {e}")


if __name__ == "__main__":
    main()
