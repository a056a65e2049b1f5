"""A causal language model with a second head that decides when to speak.

A sequence is a dialogue whose turns are each closed by <TURN_END>, with the
mediator's words between [SPEAK] and [/SPEAK] after the turn that calls for them:

    Turn 1 (Anna): ...<TURN_END>\\nTurn 2 (Kenji): ...<TURN_END>[SPEAK] ... [/SPEAK]

The decision head is linear on the final-norm state, the one that the language
model's head reads, at every <TURN_END>. The language model is trained on what
follows [SPEAK] and nowhere else: at inference [SPEAK] itself is given.
"""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

TURN_END, SPEAK, END_SPEAK = "<TURN_END>", "[SPEAK]", "[/SPEAK]"
MARKERS = (TURN_END, SPEAK, END_SPEAK)
# What a new marker's embedding starts from: the mean of these words' embeddings.
STARTS = {TURN_END: "\n", SPEAK: "Mediator:", END_SPEAK: "\n\n"}
FIRST_TURN = 3  # the earliest turn after which the mediator may speak


class DualHeadError(Exception):
    """A failure that a user can act on. kind is oom, nan, too_long, disk, data or other."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    record = json.loads(line)
                except ValueError as e:
                    raise DualHeadError("data", f"{path}, line {number} is not JSON: export the data again") from e
                if not isinstance(record, dict):
                    raise DualHeadError("data", f"{path}, line {number} is not a JSON object: export the data again")
                yield record
    except FileNotFoundError as e:
        raise DualHeadError("data", f"{path} is missing: export the data again") from e


# Tokenizer


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    if not (folder / "tokenizer.json").is_file():
        raise DualHeadError(
            "data", f"{folder} has no tokenizer.json: save the model's fast tokenizer there with transformers"
        )
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise DualHeadError("data", f"{folder} has a slow tokenizer: save the model's fast one there with transformers")
    if tokenizer.eos_token_id is None:
        raise DualHeadError("data", f"{folder} names no token that ends a text (eos_token in tokenizer_config.json)")
    return tokenizer


def add_markers(tokenizer: PreTrainedTokenizerFast, reuse: dict[str, str] | None) -> PreTrainedTokenizerFast:
    """The tokenizer with each marker as one token: a new one, or a renamed unused one.

    Markers are not special tokens: their text stays in what a server prints, so
    that it can stop there.
    """
    from tokenizers import AddedToken

    if reuse:
        tokenizer = renamed(tokenizer, reuse)
    else:
        tokenizer.add_tokens([AddedToken(m, special=False, normalized=False) for m in MARKERS])
    marker_ids(tokenizer)
    return tokenizer


def renamed(tokenizer: PreTrainedTokenizerFast, reuse: dict[str, str]) -> PreTrainedTokenizerFast:
    """The tokenizer with the markers in the place of other tokens, written as {marker: token}."""
    if set(reuse) != set(MARKERS) or len(set(reuse.values())) != len(MARKERS):
        raise DualHeadError("data", f"the tokens to reuse must be three different ones, for {', '.join(MARKERS)}")
    taken = {getattr(tokenizer, f"{name}_token") for name in ("bos", "eos", "pad", "unk")} & set(reuse.values())
    if taken:
        raise DualHeadError("data", f"{taken.pop()} begins, ends or fills texts of this model: reuse another token")
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary, added = backend["model"]["vocab"], {t["content"]: t for t in backend["added_tokens"]}
    for marker, old in reuse.items():
        token = tokenizer.convert_tokens_to_ids(old)
        if token is None or (old not in vocabulary and old not in added):
            raise DualHeadError("data", f"{old} is not a token of this model: name an unused one to reuse")
        if any(old in pair for pair in backend["model"]["merges"]):
            raise DualHeadError("data", f"{old} is a token of ordinary text: reuse one that texts do not hold")
        if vocabulary.pop(old, None) is not None:
            vocabulary[marker] = token
        plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        added.pop(old, None)
        added[marker] = {"id": token, "content": marker, **plain}
    backend["added_tokens"] = sorted(added.values(), key=lambda t: int(t["id"]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer.save_pretrained(folder)
        (folder / "tokenizer.json").write_text(json.dumps(backend, ensure_ascii=False), encoding="utf-8")
        path = folder / "tokenizer_config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config.pop("added_tokens_decoder", None)
        for key in ("additional_special_tokens", "extra_special_tokens"):
            if isinstance(config.get(key), list):
                config[key] = [t for t in config[key] if t not in reuse.values()]
        path.write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
        return load_tokenizer(folder)


def marker_ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    """The token id of each marker, or an error where one is not a single token."""
    ids = {}
    for marker in MARKERS:
        found = tokenizer(f"a{marker}b", add_special_tokens=False)["input_ids"]
        single = tokenizer(marker, add_special_tokens=False)["input_ids"]
        if len(single) != 1 or found.count(single[0]) != 1:
            raise DualHeadError("data", f"{marker} is not a single token of this tokenizer")
        ids[marker] = int(single[0])
    return ids


def prefix(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """The token that begins every text of the model, where its tokenizer adds one."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    bos = tokenizer.bos_token_id
    return [bos] if bos is not None and tokenizer("a")["input_ids"][0] == bos != bare[0] else []


# Sequences


def as_text(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """The tokens of a text in which markers are meant and the text of any other special token is just text."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return ids


@dataclass(frozen=True)
class Example:
    """A training sequence. turn_ends, speak and end are positions in ids; labels has one item for each turn end.

    The mediator speaks from the token after speak up to the one before end.
    """

    id: str
    ids: list[int]
    turn_ends: list[int]
    labels: list[int]
    speak: int
    end: int

    @property
    def targets(self) -> int:
        """The tokens that the mediator says."""
        return self.end - 1 - self.speak

    @property
    def gold(self) -> int:
        """The turn, from 1, after which the mediator speaks."""
        return self.labels.index(1) + 1


def encode(
    tokenizer: PreTrainedTokenizerFast, record: dict[str, Any], markers: dict[str, int], longest: int
) -> Example:
    """The tokens of a record's text, with what begins and ends a text of the model.

    A text longer than longest tokens is an error: cut short, it would lose its gold turn.
    """
    name = str(record.get("id", "?"))
    text, labels = record.get("text"), record.get("labels")
    if not isinstance(text, str) or not isinstance(labels, list):
        raise DualHeadError("data", f"record {name} has no text or no labels: export the data again")
    body: list[int] = as_text(tokenizer, text)
    ids = prefix(tokenizer) + body + [int(tokenizer.eos_token_id)]
    where = {m: [i for i, t in enumerate(ids) if t == markers[m]] for m in MARKERS}
    if len(where[TURN_END]) != len(labels) or sorted(map(int, labels)) != [0] * (len(labels) - 1) + [1]:
        raise DualHeadError(
            "data", f"record {name} has {len(where[TURN_END])} {TURN_END} and the labels {labels}: export it again"
        )
    gold = [int(x) for x in labels].index(1)
    # Turns may follow the mediation, at which it does not speak.
    later = where[TURN_END][gold + 1 :]
    spans = where[SPEAK] == [where[TURN_END][gold] + 1] and len(where[END_SPEAK]) == 1
    if not spans or not (where[SPEAK][0] < where[END_SPEAK][0] < min(later, default=len(ids))):
        raise DualHeadError("data", f"record {name} has no {SPEAK} ... {END_SPEAK} at its gold turn: export it again")
    if (later or where[END_SPEAK])[-1] != len(ids) - 2:
        raise DualHeadError("data", f"record {name} ends with more than a turn or {END_SPEAK}: export it again")
    if len(ids) > longest:
        raise DualHeadError(
            "too_long",
            f"record {name} has {len(ids)} tokens and at most {longest} are allowed: raise --max-length "
            "(up to the model's context), or leave the record out of the data",
        )
    # Where turns follow, the text does not end after what the mediator says.
    end = where[END_SPEAK][0] + 1 if later else len(ids)
    return Example(name, ids, where[TURN_END], [int(x) for x in labels], where[SPEAK][0], end)


@dataclass(frozen=True)
class Batch:
    """Padded sequences; at_turn_end and at_span index their states as one row after another."""

    ids: Tensor  # (sequences, length)
    mask: Tensor  # (sequences, length), 1 for tokens and 0 for padding
    at_turn_end: Tensor  # (decisions,)
    labels: Tensor  # (decisions,), f32
    at_span: Tensor  # (targets,): the positions before those of the targets
    targets: Tensor  # (targets,): the tokens after [SPEAK] up to [/SPEAK], and the end of the text after it

    def to(self, device: torch.device) -> "Batch":
        return Batch(**{name: x.to(device) for name, x in vars(self).items()})


def collate(examples: Sequence[Example], pad: int) -> Batch:
    """Pads on the right, so that no state of a sequence depends on the others."""
    length = max(len(e.ids) for e in examples)
    ids = torch.full((len(examples), length), pad)
    mask = torch.zeros((len(examples), length), dtype=torch.long)
    at_turn_end: list[int] = []
    labels: list[int] = []
    at_span: list[int] = []
    targets: list[int] = []
    for row, e in enumerate(examples):
        ids[row, : len(e.ids)] = torch.tensor(e.ids)
        mask[row, : len(e.ids)] = 1
        at_turn_end += [row * length + t for t in e.turn_ends]
        labels += e.labels
        at_span += range(row * length + e.speak, row * length + e.end - 1)
        targets += e.ids[e.speak + 1 : e.end]
    return Batch(
        ids,
        mask,
        torch.tensor(at_turn_end),
        torch.tensor(labels, dtype=torch.float32),
        torch.tensor(at_span),
        torch.tensor(targets),
    )


# Model


def load_model(folder: Path, **options: Any) -> PreTrainedModel:
    config = AutoConfig.from_pretrained(str(folder))
    # Only the eager attention knows Gemma's soft cap.
    soft_cap = getattr(config, "attn_logit_softcapping", None)
    options.setdefault("attn_implementation", "eager" if soft_cap else "sdpa")
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(str(folder), **options)
    return model


def embeddings(model: PreTrainedModel) -> list[Tensor]:
    """The input embeddings and, where it is not the same tensor, the output embeddings: (vocabulary, width)."""
    first: Any = model.get_input_embeddings().weight
    last: Any = model.get_output_embeddings().weight
    return [first] if first is last else [first, last]


def fit_vocabulary(model: PreTrainedModel, markers: dict[str, int]) -> None:
    """Adds embedding rows where a marker's id is beyond them."""
    rows = max(markers.values()) + 1
    if rows > embeddings(model)[0].shape[0]:
        model.resize_token_embeddings(rows, mean_resizing=False)


def start_markers(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, markers: dict[str, int], seed: int
) -> None:
    """Gives new markers the mean embedding of a few words and a little noise, which tells them apart."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in embeddings(model):
            spread = weight[: min(markers.values())].float().std(dim=0).cpu()
            for marker, token in markers.items():
                words = tokenizer(STARTS[marker], add_special_tokens=False)["input_ids"]
                noise = 0.1 * spread * torch.randn(spread.shape, generator=generator)
                weight[token] = (weight[words].float().mean(dim=0).cpu() + noise).to(weight)


class DualHead(nn.Module):
    """The model, the decision head and, where rows is true, the markers' own trainable embedding rows.

    The rows replace those of the frozen embeddings in both directions and are
    three vectors, so that the gradient never takes the size of the vocabulary.

    The decision head learns on standardised states: their mean is large against
    what tells them apart, and a head on the plain states swings with it. head
    gives the same decision as a linear map of the plain states.
    """

    marker_ids: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, model: PreTrainedModel, markers: dict[str, int], rows: bool) -> None:
        super().__init__()
        self.model = model  # a causal language model, its layers perhaps with adapters
        weights = embeddings(model)
        width = weights[0].shape[1]
        self.decision = nn.Linear(width, 1)
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        nn.init.zeros_(self.decision.weight)
        nn.init.zeros_(self.decision.bias)
        self.register_buffer("marker_ids", torch.tensor([markers[m] for m in MARKERS]), persistent=False)
        self.rows = nn.ParameterList()
        if rows:
            self.rows.extend(nn.Parameter(w[list(markers[m] for m in MARKERS)].detach().float()) for w in weights)

    def states(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """The final-norm states of shape (sequences, length, width)."""
        embed = self.model.get_input_embeddings()
        x = embed(ids)
        if len(self.rows) > 0:
            is_marker = torch.eq(ids.unsqueeze(-1), self.marker_ids)  # (sequences, length, 3)
            rows = self.rows[0] * getattr(embed, "embed_scale", 1.0)
            own = functional.embedding(is_marker.int().argmax(dim=-1), rows)
            x = torch.where(is_marker.any(dim=-1, keepdim=True), own.to(x.dtype), x)
        out: Tensor = self.model.model(inputs_embeds=x, attention_mask=mask, use_cache=False).last_hidden_state
        return out

    def logits(self, states: Tensor) -> Tensor:
        """The language model's logits in f32, for states of shape (positions, width)."""
        y: Tensor = self.model.get_output_embeddings()(states)
        if len(self.rows) > 0:
            y = y.index_copy(-1, self.marker_ids, (states @ self.rows[-1].to(states.dtype).T).to(y.dtype))
        y = y.float()
        cap = getattr(self.model.config, "final_logit_softcapping", None)
        return cap * torch.tanh(y / cap) if cap else y

    def decide(self, states: Tensor) -> Tensor:
        """The log-odds of speaking, in f32, for states of shape (decisions, width)."""
        with torch.autocast(states.device.type, enabled=False):
            y: Tensor = self.decision((states.float() - self.centre) / self.spread).squeeze(-1)
        return y

    def standardise(self, states: Tensor) -> None:
        """Takes mean and standard deviation from states of shape (positions, width)."""
        self.centre.copy_(states.float().mean(dim=0))
        self.spread.copy_(states.float().std(dim=0).clamp(min=1e-3))

    def head(self) -> dict[str, Tensor]:
        """The decision on plain states: decision.weight of shape (1, width) and decision.bias of shape (1), in f32."""
        weight = self.decision.weight.detach().double() / self.spread.double()
        bias = self.decision.bias.detach().double() - weight @ self.centre.double()
        return {"decision.weight": weight.float().cpu(), "decision.bias": bias.float().cpu()}

    def forward(self, batch: Batch, pos_weight: float) -> tuple[Tensor, Tensor, Tensor]:
        """The summed losses of the language model and of the decisions, and the decisions' log-odds.

        Sums, because the mean is over all micro-batches of a step.
        """
        states = self.states(batch.ids, batch.mask).flatten(0, 1)
        lm = functional.cross_entropy(self.logits(states[batch.at_span]), batch.targets, reduction="sum")
        odds = self.decide(states[batch.at_turn_end])
        weight = torch.tensor(pos_weight, device=odds.device)
        bce = functional.binary_cross_entropy_with_logits(odds, batch.labels, pos_weight=weight, reduction="sum")
        return lm, bce, odds


# Decisions


def first_speak(p: Sequence[float], threshold: float) -> int | None:
    """The first turn from FIRST_TURN on whose P(speak) reaches the threshold."""
    return next((t for t, x in enumerate(p, 1) if t >= FIRST_TURN and x >= threshold), None)


def turn_accuracy(dialogues: Sequence[Sequence[float]], threshold: float) -> float:
    """The share of dialogues in which the mediator speaks at the gold turn.

    Each is P(speak) by turn up to the gold one: what comes later cannot make an early or missed decision right.
    """
    return sum(first_speak(p, threshold) == len(p) for p in dialogues) / len(dialogues)


def best_threshold(dialogues: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The threshold with the highest turn accuracy, and that; of several the nearest to 0.5."""
    seen = sorted({x for p in dialogues for x in p})
    candidates = [0.5] + [(a + b) / 2 for a, b in zip(seen, seen[1:], strict=False)]
    scored = [(turn_accuracy(dialogues, c), -abs(c - 0.5), c) for c in candidates]
    accuracy, _, threshold = max(scored)
    return threshold, accuracy


@contextlib.contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of out when all went well and is removed otherwise."""
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
