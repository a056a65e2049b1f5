#!/usr/bin/env python3
"""Trains a causal language model and its decision head on exported dialogues.

Started by `ccmed sft train`, which writes the configuration and reads the
progress: one JSON object a line on standard output, all else on standard error.
Several processes work together when torchrun or accelerate starts them.

    train_dual_head.py --config CONFIG.json

The loss of a step is LM + lambda * BCE: the mean over the tokens of the
mediators' words, and the weighted mean over the decisions. Everything random is
drawn from the seed and the step, so that a resumed training equals an unbroken
one.
"""

import argparse
import contextlib
import dataclasses
import errno
import hashlib
import importlib.util
import json
import math
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TextIO

import psutil
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dual_head import (
    DualHead,
    DualHeadError,
    Example,
    add_markers,
    best_threshold,
    collate,
    encode,
    fit_vocabulary,
    load_model,
    load_tokenizer,
    marker_ids,
    read_jsonl,
    replacing,
    start_markers,
    turn_accuracy,
)

INTERRUPTED = 130
KEPT_CHECKPOINTS = 2
CLIP_NORM = 1.0
STANDARD_EXAMPLES = 32  # whose states show their mean and spread
LESS_MEMORY = "lower it with --gradient-checkpointing, --max-length, --batch or --load-in-4bit"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"]  # phi3 has one for three


@dataclasses.dataclass(frozen=True)
class Config:
    """The options, under the names in the configuration file (lambda there is weight here)."""

    base: Path
    data: Path
    out: Path
    method: str = "lora"
    rank: int = 8
    alpha: int = 16
    dropout: float = 0.0
    targets: list[str] = dataclasses.field(default_factory=list)  # empty: the attention projections
    lr_adapter: float = 5e-4
    lr_head: float = 5e-3
    epochs: float = 1
    max_steps: int = 0
    batch: int = 1
    grad_accum: int = 2
    weight: float = 1.0
    pos_weight: float = 0
    seed: int = 1
    dtype: str = "f32"
    load_in_4bit: bool = False
    gradient_checkpointing: bool = False
    max_length: int = 0  # 0: the model's context
    reuse_tokens: dict[str, str] | None = None
    save_steps: int = 0
    save_seconds: float = 0
    eval_steps: int = 0
    resume: bool = False
    warmup_steps: int = 10
    threads: int = 0

    # Options that do not change what is learned, so that a resumed training may have others.
    FREE = ("out", "data", "base", "save_steps", "save_seconds", "eval_steps", "resume", "threads")

    @classmethod
    def read(cls, path: Path) -> "Config":
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as e:
            raise DualHeadError("data", f"the configuration {path} cannot be read: {e}") from e
        if "lambda" in values:
            values["weight"] = values.pop("lambda")
        fields = {f.name: f for f in dataclasses.fields(cls)}
        unknown = sorted(set(values) - set(fields))
        missing = [n for n in ("base", "data", "out") if not values.get(n)]
        if unknown or missing:
            raise DualHeadError(
                "data", f"the configuration {path} has unknown keys {unknown} and lacks the keys {missing}"
            )
        given: dict[str, Any] = {k: v for k, v in values.items() if v is not None}
        c = cls(**given | {k: Path(given[k]) for k in ("base", "data", "out")})
        c.check()
        return c

    def check(self) -> None:
        def require(ok: bool, message: str) -> None:
            if not ok:
                raise DualHeadError("data", message)

        require(self.method in ("lora", "full"), f"unknown method {self.method!r}: lora or full")
        require(self.dtype in ("f32", "bf16"), f"unknown dtype {self.dtype!r}: f32 or bf16")
        require(self.batch >= 1 and self.grad_accum >= 1, "batch and grad_accum must be at least 1")
        require(self.epochs > 0 or self.max_steps > 0, "epochs or max_steps must be above 0")
        require(self.lr_adapter >= 0 and self.lr_head >= 0, "learning rates must not be negative")
        require(self.method == "lora" or not self.load_in_4bit, "--load-in-4bit trains adapters only: use lora")

    def fingerprint(self) -> str:
        """What must be the same for a training to be continued."""
        learned = {k: v for k, v in dataclasses.asdict(self).items() if k not in self.FREE}
        learned["data"] = digest(self.data / "export.json")  # has the hashes of the others
        learned["base"] = json.loads((self.base / "config.json").read_text(encoding="utf-8"))
        return hashlib.sha256(json.dumps(learned, sort_keys=True).encode()).hexdigest()


def digest(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


class Interrupted(Exception):
    """The user asked to stop."""


class Events:
    """Progress on standard output; whatever libraries print there goes to standard error.

    stop is set by SIGINT, SIGTERM and a reader that has gone; a second signal ends the process at once.
    """

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.stop = False
        self.silent = int(os.environ.get("RANK", "0")) > 0

    @classmethod
    def claim(cls) -> "Events":
        """Takes the process's standard output and its signals."""
        events = cls(os.fdopen(os.dup(1), "w", encoding="utf-8"))
        os.dup2(2, 1)
        for s in (signal.SIGINT, signal.SIGTERM):
            signal.signal(s, events.on_signal)
        return events

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.stop = True
        signal.signal(number, signal.SIG_DFL)

    def emit(self, event: str, **fields: Any) -> None:
        if self.silent:
            return
        try:
            self.out.write(json.dumps({"event": event, **fields}, allow_nan=False, ensure_ascii=False) + "\n")
            self.out.flush()
        except BrokenPipeError:
            self.stop = True


# Data


def read_examples(
    config: Config, name: str, tokenizer: PreTrainedTokenizerFast, markers: dict[str, int], longest: int
) -> list[Example]:
    path = config.data / name
    return [encode(tokenizer, record, markers, longest) for record in read_jsonl(path)]


def check_export(data: Path) -> None:
    """Compares the files with the hashes in export.json, which is written last."""
    path = data / "export.json"
    try:
        export = json.loads(path.read_text(encoding="utf-8"))
        hashes = dict(export["hashes"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise DualHeadError(
            "data", f"{path} cannot be read, so the export is not complete: export the data again"
        ) from e
    for name, expected in hashes.items():
        if not (data / name).is_file() or digest(data / name) != expected:
            raise DualHeadError("data", f"{data / name} is not the file that export.json describes: export it again")


def seed_of(*parts: object) -> int:
    """A seed for one use, so that uses do not share their numbers."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7])


def order(count: int, seed: int) -> Iterator[int]:
    """The examples' indices, epoch after epoch, each in its own order."""
    epoch = 0
    while True:
        generator = torch.Generator().manual_seed(seed_of(seed, "epoch", epoch))
        yield from torch.randperm(count, generator=generator).tolist()
        epoch += 1


class Measured(NamedTuple):
    """What the model says of one dialogue."""

    id: str
    p: list[float]  # P(speak) by turn
    gold: int  # what comes after that turn cannot make a decision right or wrong
    lm: float  # summed over the span's tokens
    bce: float  # summed over decisions
    words: int  # tokens of the span


# Model


def bytes_of_weights(base: Path, item: float) -> int:
    """What the weights take in memory with item bytes for each, read from the files' headers."""
    count = 0
    for path in base.glob("*.safetensors"):
        with safe_open(path, framework="pt") as f:
            count += sum(math.prod(f.get_slice(k).get_shape()) for k in f.keys())
    return int(count * item)


def check_memory(config: Config, device: torch.device) -> None:
    """Refuses before loading what cannot fit: the kernel would end the process without a word."""
    item = 0.6 if config.load_in_4bit else 2 if config.dtype == "bf16" and config.method == "lora" else 4
    # Full training keeps a gradient and two moments beside each weight.
    needed = bytes_of_weights(config.base, item * (4 if config.method == "full" else 1))
    if device.type == "cuda":
        free, where = torch.cuda.mem_get_info(device)[0], "on the GPU"
    else:
        free, where = psutil.virtual_memory().available, "in memory, without a GPU"
    if needed > free:
        smaller = (
            "" if config.dtype == "bf16" and config.method == "lora" else " use --dtype bf16 and --method lora, or"
        )
        raise DualHeadError(
            "oom",
            f"the weights of {config.base.name} alone need {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free "
            f"{where}:{smaller} {LESS_MEMORY}",
        )


def build(config: Config, device: torch.device) -> tuple[DualHead, PeftModel | None, PreTrainedTokenizerFast]:
    """The network with markers, the adapters within it, and the tokenizer with the markers."""
    tokenizer = add_markers(load_tokenizer(config.base), config.reuse_tokens)
    markers = marker_ids(tokenizer)
    options: dict[str, Any] = {
        "dtype": torch.bfloat16 if config.dtype == "bf16" and config.method == "lora" else torch.float32
    }
    if config.load_in_4bit:
        options |= four_bit(device)
    model = load_model(config.base, **options)
    fit_vocabulary(model, markers)
    if not config.reuse_tokens:
        start_markers(model, tokenizer, markers, config.seed)
    if config.gradient_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    # The peft model wraps the same modules, which the network goes on calling itself.
    adapters = adapted(config, model) if config.method == "lora" else None
    return DualHead(model, markers, rows=adapters is not None), adapters, tokenizer


def four_bit(device: torch.device) -> dict[str, Any]:
    if device.type != "cuda" or importlib.util.find_spec("bitsandbytes") is None:
        raise DualHeadError(
            "other", "--load-in-4bit needs a CUDA GPU and the package bitsandbytes: install it, or leave the flag out"
        )
    from transformers import BitsAndBytesConfig

    quantisation = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    return {"quantization_config": quantisation, "device_map": {"": device.index or 0}}


def adapted(config: Config, model: PreTrainedModel) -> PeftModel:
    """Puts LoRA adapters into the model, in place, and freezes all else."""
    names = {name.rsplit(".", 1)[-1] for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    targets = [t for t in config.targets or ATTENTION if t in names]
    absent = [t for t in config.targets if t not in names]
    if absent or not targets:
        raise DualHeadError(
            "data", f"the model has no layers {absent or ATTENTION}: choose --targets among {sorted(names)}"
        )
    if config.load_in_4bit:
        prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    torch.manual_seed(config.seed)
    lora = LoraConfig(
        task_type="CAUSAL_LM",
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=targets,
    )
    return get_peft_model(model, lora)


# Training


class Trainer:
    """One training: data, network, optimiser and the place on the way."""

    def __init__(self, config: Config, events: Events) -> None:
        self.config, self.events = config, events
        self.accelerator = Accelerator(cpu=not torch.cuda.is_available(), mixed_precision="no")
        self.device, self.world = self.accelerator.device, int(self.accelerator.num_processes)
        check_export(config.data)
        check_memory(config, self.device)
        self.network, self.adapters, self.tokenizer = build(config, self.device)
        self.markers = marker_ids(self.tokenizer)
        self.fingerprint = config.fingerprint()
        context = int(self.network.model.config.max_position_embeddings)
        longest = config.max_length or context
        if longest > context:
            raise DualHeadError("data", f"--max-length {longest} is beyond the model's context of {context} tokens")
        self.train = read_examples(config, "train.jsonl", self.tokenizer, self.markers, longest)
        self.valid = read_examples(config, "valid.jsonl", self.tokenizer, self.markers, longest)
        # Only an export with a holdout has it.
        self.heldout: list[Example] = []
        if (config.data / "heldout.jsonl").is_file():
            self.heldout = read_examples(config, "heldout.jsonl", self.tokenizer, self.markers, longest)
        if not self.train:
            raise DualHeadError("data", f"{config.data / 'train.jsonl'} has no records: export the data again")
        positives = len(self.train)
        self.pos_weight = config.pos_weight or sum(len(e.labels) - 1 for e in self.train) / positives
        self.pad = int(self.tokenizer.pad_token_id or 0)

        self.group = config.batch * config.grad_accum * self.world
        total = int(config.epochs * len(self.train)) or config.max_steps * self.group
        self.total = min(total, config.max_steps * self.group) if config.max_steps else total
        # Several processes need whole groups: one without an example would keep the others waiting.
        self.steps = math.ceil(self.total / self.group) if self.world == 1 else self.total // self.group
        if self.steps < 1:
            raise DualHeadError(
                "data", f"{self.total} records do not fill one step of {self.group}: lower --batch or --grad-accum"
            )
        self.step = self.saved_step = 0
        self.seconds = 0.0

        self.wrapped = self.accelerator.prepare(self.network)
        self.optimizer = torch.optim.AdamW(self.parameter_groups(), weight_decay=0.0)
        self.rates = [g["lr"] for g in self.optimizer.param_groups]

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The decision head starts from nothing and learns at a rate of its own; all else at the adapters'."""
        head = list(self.network.decision.parameters())
        rest = [p for n, p in self.network.named_parameters() if p.requires_grad and not n.startswith("decision.")]
        return [{"params": head, "lr": self.config.lr_head}, {"params": rest, "lr": self.config.lr_adapter}]

    def trainable(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.network.named_parameters() if p.requires_grad}

    def learned(self) -> dict[str, torch.Tensor]:
        """All that differs from the base: what is trained, and the mean and spread that the head learns on."""
        network = self.network
        values = {n: p.detach() for n, p in self.trainable().items()}
        return values | {"centre": network.centre, "spread": network.spread}

    def memory(self) -> int:
        """The most memory used on the GPU so far, or what the process uses now."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return int(psutil.Process().memory_info().rss)

    def run(self) -> None:
        began = time.monotonic() - self.seconds
        self.events.emit(
            "start",
            steps=self.steps,
            step=self.step,
            examples=len(self.train),
            trainable=sum(p.numel() for p in self.trainable().values()),
            device=str(self.device),
            memory_bytes=self.memory(),
        )
        if self.step == 0:
            self.standardise()
        saved = time.monotonic()
        indices = order(len(self.train), self.config.seed)
        for _ in range(self.step * self.group):
            next(indices)
        while self.step < self.steps:
            self.stop_if_asked()
            size = min(self.group, self.total - self.step * self.group)
            self.train_step([self.train[next(indices)] for _ in range(size)])
            self.seconds = time.monotonic() - began
            c, last = self.config, self.step == self.steps
            if not last and c.eval_steps and self.step % c.eval_steps == 0:
                self.evaluate()
            due = c.save_steps and self.step % c.save_steps == 0
            if due or last or (c.save_seconds and time.monotonic() - saved >= c.save_seconds):
                self.save()
                saved = time.monotonic()
        threshold = self.evaluate()
        if self.heldout:
            self.report("heldout", self.measure(self.heldout, "held-out"), threshold["value"])
        path = self.write_final(threshold)
        self.events.emit("done", path=str(path), steps=self.step, seconds=round(time.monotonic() - began, 1))

    def standardise(self) -> None:
        """Shows the decision head the states of the first examples before it learns."""
        self.wrapped.eval()
        states = []
        indices = order(len(self.train), self.config.seed)
        for _ in range(min(STANDARD_EXAMPLES, len(self.train))):
            if self.world == 1:
                self.stop_if_asked()
            batch = collate([self.train[next(indices)]], self.pad).to(self.device)
            with torch.no_grad(), self.autocast():
                states.append(self.network.states(batch.ids).flatten(0, 1)[batch.at_turn_end].float())
        self.network.standardise(torch.cat(states))

    def stop_if_asked(self) -> None:
        """Ends the training where a signal came in any of the processes. Between steps the state is whole."""
        stop = torch.tensor(float(self.events.stop), device=self.device)
        if self.world > 1:
            stop = self.accelerator.reduce(stop, "sum")
        if stop.item() > 0:
            if self.step > self.saved_step:
                self.save()
            self.accelerator.wait_for_everyone()  # a process that ends takes the others with it
            raise Interrupted

    def rate(self) -> float:
        """The part of the learning rates at this step: a linear rise, then a linear fall to zero."""
        warmup = self.config.warmup_steps
        if self.step < warmup:
            return (self.step + 1) / (warmup + 1)
        return (self.steps - self.step) / max(1, self.steps - warmup)

    def train_step(self, examples: list[Example]) -> None:
        config, began = self.config, time.monotonic()
        self.wrapped.train()
        # Dropout depends on seed, step and process only, so a resumed training draws the same.
        torch.manual_seed(seed_of(config.seed, "step", self.step, self.accelerator.process_index))
        for g, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            g["lr"] = rate * self.rate()
        targets = sum(e.targets for e in examples)
        decisions = sum(len(e.labels) for e in examples)
        mine = examples[self.accelerator.process_index :: self.world]
        batches = [mine[i : i + config.batch] for i in range(0, len(mine), config.batch)]
        lm_sum = bce_sum = torch.zeros((), device=self.device)
        for k, some in enumerate(batches):
            last = k == len(batches) - 1
            with contextlib.nullcontext() if last else self.accelerator.no_sync(self.wrapped), self.autocast():
                lm, bce, _ = self.wrapped(collate(some, self.pad).to(self.device), self.pos_weight)
                # The processes' gradients are averaged, the loss is a sum over them.
                loss = self.world * (lm / targets + config.weight * bce / decisions)
                if not torch.isfinite(loss):
                    self.diverged(f"records {', '.join(e.id for e in some)}")
                self.accelerator.backward(loss)
            lm_sum, bce_sum = lm_sum + lm.detach(), bce_sum + bce.detach()
        for g in self.optimizer.param_groups:
            # Each group on its own: the decision head's gradient would leave the adapters nothing.
            if not torch.isfinite(nn.utils.clip_grad_norm_(g["params"], CLIP_NORM)):
                self.diverged("the gradient")
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        if self.world > 1:
            lm_sum, bce_sum = self.accelerator.reduce(torch.stack([lm_sum, bce_sum]), "sum")
        lm_mean, bce_mean = lm_sum.item() / targets, bce_sum.item() / decisions
        tokens = sum(len(e.ids) for e in examples)
        self.events.emit(
            "step",
            step=self.step,
            loss=lm_mean + config.weight * bce_mean,
            lm=lm_mean,
            bce=bce_mean,
            lr=self.optimizer.param_groups[-1]["lr"],
            tokens=tokens,
            tokens_per_second=round(tokens / (time.monotonic() - began), 1),
            memory_bytes=self.memory(),
        )

    def diverged(self, where: str) -> None:
        raise DualHeadError(
            "nan",
            f"the loss is not a number at step {self.step + 1} ({where}): lower --lr-adapter and --lr-head, "
            "lengthen --warmup-steps, or use --dtype f32",
        )

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.config.dtype == "bf16")

    def evaluate(self) -> dict[str, Any]:
        """Reports the losses and the turn accuracy on the validation data, and returns the chosen threshold."""
        if not self.valid:
            return {"value": 0.5, "n": 0, "turn_acc": None}
        found = self.measure(self.valid, "validation")
        p = [f.p[: f.gold] for f in found]
        threshold, accuracy = best_threshold(p)
        self.report("eval", found, threshold)
        return {"value": threshold, "n": len(found), "turn_acc": accuracy, "turn_acc_at_half": turn_accuracy(p, 0.5)}

    def measure(self, examples: list[Example], what: str) -> list[Measured]:
        """Reads dialogues that are not trained on; several processes share them."""
        self.wrapped.eval()
        mine: list[Measured] = []
        for k, e in enumerate(examples[self.accelerator.process_index :: self.world]):
            if self.world == 1:
                self.stop_if_asked()
            with torch.no_grad(), self.autocast():
                lm, bce, odds = self.network(collate([e], self.pad).to(self.device), self.pos_weight)
            if not torch.isfinite(lm + bce):
                self.diverged(f"{what} record {e.id}")
            mine.append(Measured(e.id, torch.sigmoid(odds).tolist(), e.gold, lm.item(), bce.item(), e.targets))
            if k % 25 == 24:
                print(f"{what}: {k + 1} of {len(examples) // self.world} dialogues", file=sys.stderr, flush=True)
        return gather_object(mine) if self.world > 1 else mine

    def report(self, event: str, found: list[Measured], threshold: float) -> None:
        p = [f.p[: f.gold] for f in found]
        self.events.emit(
            event,
            step=self.step,
            n=len(found),
            turn_acc=turn_accuracy(p, 0.5),
            right=[f.id for f in found if turn_accuracy([f.p[: f.gold]], 0.5) == 1],
            lm=sum(f.lm for f in found) / sum(f.words for f in found),
            bce=sum(f.bce for f in found) / sum(len(f.p) for f in found),
            threshold=threshold,
            threshold_turn_acc=turn_accuracy(p, threshold),
        )

    # Files. Each folder is written under another name and renamed when it is whole.

    def checkpoints(self) -> list[Path]:
        folder = self.config.out / "checkpoints"
        return sorted(folder.glob("step-*"), key=lambda p: int(p.name.removeprefix("step-")))

    def save(self) -> None:
        self.saved_step = self.step
        if not self.accelerator.is_main_process:
            return
        path = self.config.out / "checkpoints" / f"step-{self.step}"
        state = {"step": self.step, "seconds": self.seconds, "fingerprint": self.fingerprint}
        with replacing(path) as partial:
            save_file(self.learned(), partial / "learned.safetensors")
            torch.save(self.optimizer.state_dict(), partial / "optimizer.pt")
            (partial / "state.json").write_text(json.dumps(state))
        self.events.emit("checkpoint", step=self.step, path=str(path))
        for old in self.checkpoints()[:-KEPT_CHECKPOINTS]:
            shutil.rmtree(old)

    def load(self) -> None:
        """Goes to the newest checkpoint, if resuming; a new training leaves an earlier one alone."""
        found = self.checkpoints()
        if not found:
            return
        if not self.config.resume:
            raise DualHeadError(
                "data",
                f"{self.config.out} holds an earlier training: continue it with --resume, or name another folder",
            )
        path = found[-1]
        state = json.loads((path / "state.json").read_text())
        if state["fingerprint"] != self.fingerprint:
            raise DualHeadError(
                "data",
                f"{path} was made with other settings, data or base model: "
                "repeat those to continue it, or name another folder",
            )
        values = load_file(path / "learned.safetensors")
        for name, x in self.learned().items():
            x.copy_(values[name])
        self.optimizer.load_state_dict(torch.load(path / "optimizer.pt", weights_only=True))
        self.step = self.saved_step = int(state["step"])
        self.seconds = float(state["seconds"])

    def write_final(self, threshold: dict[str, Any]) -> Path:
        path = self.config.out / "final"
        if not self.accelerator.is_main_process:
            return path
        network = self.network
        card = {
            "schema": 1,
            "markers": self.markers,
            "width": network.decision.in_features,
            "method": self.config.method,
            "base": str(self.config.base.resolve()),
            "threshold": threshold,
            "pos_weight": self.pos_weight,
            "steps": self.step,
            "examples": len(self.train),
            "seconds": round(self.seconds, 1),
            "config": {k: str(v) if isinstance(v, Path) else v for k, v in dataclasses.asdict(self.config).items()},
        }
        with replacing(path) as partial:
            if self.adapters is not None:
                self.adapters.save_pretrained(str(partial), save_embedding_layers=False)
                rows = dict(zip(("input", "output"), network.rows, strict=False))
                save_file({n: r.detach().contiguous().cpu() for n, r in rows.items()}, partial / "markers.safetensors")
            else:
                network.model.save_pretrained(partial)
            save_file(network.head(), partial / "head.safetensors", metadata={"content": "decision head"})
            self.tokenizer.save_pretrained(partial)
            (partial / "dual_head.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
        return path


def explained(e: BaseException, config: Config | None) -> DualHeadError:
    """The failure as one sentence with a remedy."""
    text = " ".join(str(e).split())
    if isinstance(e, DualHeadError):
        return e
    refused = ("t allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")
    if isinstance(e, MemoryError | torch.cuda.OutOfMemoryError) or any(r in text for r in refused):
        return DualHeadError("oom", f"out of memory: {LESS_MEMORY}")
    full = isinstance(e, OSError) and e.errno in (errno.ENOSPC, errno.EDQUOT)
    # torch's writer hides the system's error, and its failure is one of the file system.
    if full or "No space left on device" in text or "inline_container" in text:
        where = config.out if config else "the output folder"
        return DualHeadError("disk", f"no space is left for {where}: free some and continue with --resume")
    return DualHeadError("other", f"{type(e).__name__}: {text[:300]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True)
    args = parser.parse_args()
    events, config, trainer = Events.claim(), None, None
    try:
        config = Config.read(args.config)
        if config.threads:
            torch.set_num_threads(config.threads)
        trainer = Trainer(config, events)
        trainer.load()
        trainer.run()
    except Interrupted:
        events.emit("interrupted", step=trainer.step if trainer else 0)
        return 0 if events.silent else INTERRUPTED  # torchrun would end the first process for the others' failure
    except Exception as e:
        traceback.print_exc()
        failure = explained(e, config)
        events.silent = False  # whichever process failed
        events.emit("error", kind=failure.kind, message=str(failure))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
