"""Hidden states of one cell of a store, read layer by layer."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import safe_open

from ccmed_runs.files import Object, ReadError

# A row that was not written holds this mark, a NaN with a payload of its own (probe/activation of ccmed).
MISSING = {np.dtype(np.float32): (np.uint32, 0x7FC0CC3D), np.dtype(np.float16): (np.uint16, 0x7E3D)}

# Cells that have a row a turn: of the transcript as it went, and of the labeller's questions.
TURN_CELLS = {("transcript", "original"), ("labeller", "question")}


@dataclass(frozen=True, order=True)
class Cell:
    """What was read: after which context, of which text, at which position."""

    context: str
    text: str
    position: str

    def __str__(self) -> str:
        return f"{self.context}, {self.text}, {self.position}"

    @property
    def file(self) -> str:
        """The name of the cell's file in a store."""
        return f"{self.context}.{self.text}.{self.position}.residual.safetensors"


class States:
    """The hidden states of one cell. Rows that miss a layer are left out."""

    def __init__(self, path: Path, rows: pd.DataFrame) -> None:
        self.path = path
        with self._open() as file:
            meta = file.metadata()
            self.layers: list[str] = json.loads(meta["layers"])
            self.model: str = meta["model"]
            self.width: int = file.get_slice("states").get_shape()[2]
        self._rows = rows.sort_values("row", ignore_index=True)

    def __repr__(self) -> str:
        return f"States({self.path.name!r}, {len(self.layers)} layers of {self.width}, {len(self.rows)} rows)"

    def _open(self) -> safe_open:
        try:
            return safe_open(self.path, "numpy")
        except OSError as error:
            raise ReadError(f"{self.path}: {error}; extract these states into a new run") from error

    @cached_property
    def rows(self) -> pd.DataFrame:
        """What each row is: `item`, `turn`, `stage` (as recorded), `group` (hash of the scenario context; keep groups
        whole in folds), `row` in the file, and `token` of `tokens`."""
        kept = np.ones(len(self._rows), dtype=bool)
        for k in range(len(self.layers)):
            stored = self._stored(k)
            kind, mark = MISSING[stored.dtype]
            kept &= ~(stored.view(kind) == mark).any(axis=1)
        return self._rows[kept].reset_index(drop=True)

    def layer(self, name: str) -> NDArray[np.float32]:
        """The states of one layer, (rows, width)."""
        if name not in self.layers:
            raise ReadError(f"{self.path} has no layer {name!r}; it has {self.layers[0]} to {self.layers[-1]}")
        kept = self._rows["row"].isin(self.rows["row"]).to_numpy()
        return self._stored(self.layers.index(name))[kept].astype(np.float32)

    @property
    def X(self) -> NDArray[np.float32]:  # noqa: N802 the name that probes know
        """All states, (layers, rows, width)."""
        return np.stack([self.layer(name) for name in self.layers])

    def _stored(self, layer: int) -> NDArray[np.float32 | np.float16]:
        with self._open() as file:
            states: NDArray[np.float32 | np.float16] = file.get_slice("states")[layer]
        chosen: NDArray[np.float32 | np.float16] = states[self._rows["row"].to_numpy()]
        return chosen


def index(samples: Iterable[Object]) -> Iterator[tuple[Cell, Object]]:
    """The rows of all cells, with the sample that each belongs to."""
    for sample in samples:
        data = sample.get("data") or {}
        if sample["step"] != "states" or sample.get("unscored"):
            continue
        turns = {t["row"]: t for t in data.get("turns") or []}
        for place in data["states"]:
            at = place["cell"]
            row = {"item": sample["item"], "turn": data["turn"], "stage": data["stage"], "group": data["context"]}
            if (at["context"], at["text"]) in TURN_CELLS:
                row |= {"turn": turns[place["row"]]["turn"], "stage": turns[place["row"]]["label"]}
            row |= {k: place[k] for k in ("row", "token", "tokens")}
            yield Cell(at["context"], at["text"], at["position"]), row
