"""A two-layer model with SmolLM2's vocabulary, and an export of made-up dialogues."""

import hashlib
import io
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import gguf_checkpoint
from train_dual_head import Config, Events, Trainer

REUSE = {"<TURN_END>": "<file_sep>", "[SPEAK]": "<gh_stars>", "[/SPEAK]": "<issue_start>"}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def smollm2() -> gguf_checkpoint.File:
    path = os.environ.get("CCMED_TEST_MODEL")
    if not path:
        pytest.skip("CCMED_TEST_MODEL does not name the GGUF file of SmolLM2; scripts/test_train.sh fetches it")
    return gguf_checkpoint.File(Path(path))


@pytest.fixture(scope="session")
def tokenizer_folder(smollm2: gguf_checkpoint.File, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    gguf_checkpoint.write_tokenizer(smollm2, folder)
    return folder


def write_base(folder: Path, tokenizer: Path, tied: bool) -> Path:
    torch.manual_seed(20261130)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=49152,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            tie_word_embeddings=tied,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=2,
            initializer_range=0.3,  # the state moves at every layer
        )
    )
    model.save_pretrained(folder)
    for f in tokenizer.iterdir():
        (folder / f.name).write_bytes(f.read_bytes())
    return folder


@pytest.fixture(scope="session")
def base(tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"), tokenizer_folder, tied=True)


@pytest.fixture(scope="session")
def untied_base(tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("untied"), tokenizer_folder, tied=False)


WORDS = "the meeting was calm and we spoke of tea paper rooms gardens letters for 12 days in 2024".split()


def record(number: int, gold: int, extra: int = 1) -> dict[str, Any]:
    """A dialogue whose gold turn, and only that, holds the word clash."""
    draw = random.Random(number)

    def turn(k: int) -> str:
        words = [draw.choice(WORDS) for _ in range(draw.randint(4, 9))]
        if k == gold:
            words.insert(2, "clash")
        return f"Turn {k} ({'Ana' if k % 2 else 'Ken'}): {' '.join(words)}.<TURN_END>"

    turns = [turn(k) for k in range(1, gold + 1 + extra)]
    intro = "Two people talk.\n"
    return {
        "id": f"d{number}",
        "text": intro + "\n".join(turns[:gold]) + f"[SPEAK] Please listen, number {number}. [/SPEAK]",
        "labels": [0] * (gold - 1) + [1],
        "gold": gold,
        "utterance": f"Please listen, number {number}.",
        "dialogue": intro + "\n".join(turns),
    }


def write_export(
    folder: Path, train: list[dict[str, Any]], valid: list[dict[str, Any]], heldout: list[dict[str, Any]] | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    hashes = {}
    files = {"train.jsonl": train, "valid.jsonl": valid} | ({"heldout.jsonl": heldout} if heldout else {})
    for name, records in files.items():
        content = "".join(json.dumps(r) + "\n" for r in records).encode()
        (folder / name).write_bytes(content)
        hashes[name] = hashlib.sha256(content).hexdigest()
    (folder / "export.json").write_text(json.dumps({"schema": 1, "hashes": hashes}))
    return folder


@pytest.fixture(scope="session")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    train = [record(n, 3 + n % 4) for n in range(11)]
    return write_export(tmp_path_factory.mktemp("export"), train, [record(n, 3 + n % 3) for n in range(20, 24)])


class Recorder(Events):
    """Events in memory; stops the training after step stop_after."""

    def __init__(self, stop_after: int = 0) -> None:
        super().__init__(io.StringIO())
        self.stop_after = stop_after
        self.all: list[dict[str, Any]] = []

    def emit(self, event: str, **fields: Any) -> None:
        self.all.append({"event": event, **fields})
        super().emit(event, **fields)
        if event == "step" and fields["step"] == self.stop_after:
            self.stop = True

    def named(self, event: str) -> list[dict[str, Any]]:
        return [e for e in self.all if e["event"] == event]


MakeTrainer = Callable[..., Trainer]


@pytest.fixture
def make_trainer(base: Path, export: Path, tmp_path: Path) -> MakeTrainer:
    """A trainer of the tiny model on the made-up dialogues; keywords are options of its configuration."""

    def make(events: Events | None = None, **options: Any) -> Trainer:
        given = {
            "base": base,
            "data": export,
            "out": tmp_path / "out",
            "grad_accum": 1,
            "batch": 2,
            "warmup_steps": 0,
            **options,
        }
        config = Config(**given)
        config.check()
        trainer = Trainer(config, events or Recorder())
        trainer.load()
        return trainer

    return make
