"""Run folders: what the run is, its samples, its metrics and the findings of probes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from ccmed_runs.files import Object, ReadError, read_lines, read_object
from ccmed_runs.states import Cell, States, index

__all__ = ["ReadError", "Run", "list_runs"]

# The versions of the forms that are read; docs/formats.md of ccmed tells them.
MANIFEST, METRICS, FINDINGS = 2, 4, {"probe.json": 4, "turns.json": 2, "labeller.json": 1}

KEY = ["step", "item", "condition", "repeat"]


class Run:
    """A run folder. Nothing in it is changed, and each file is read when it is asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        remedy = "name a run folder of ccmed"
        self.manifest = read_object(self.path / "manifest.json", MANIFEST, remedy)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.task}, {self.status})"

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def identity(self) -> Object:
        """Everything that could change a number of the run."""
        found: Object = self.manifest["identity"]
        return found

    @property
    def task(self) -> str:
        """timing, mediation, extract and others."""
        return str(self.identity["task"])

    @property
    def status(self) -> str:
        """started, done, interrupted or failed."""
        return str(self.manifest["status"])

    @property
    def models(self) -> dict[str, str]:
        """Names of the models, by role."""
        return {role: m["name"] for role, m in (self.identity.get("models") or {}).items()}

    def samples(self, step: str | None = None) -> pd.DataFrame:
        """A row for each sample, or for each sample of one step: the key, the reason of an unscored one (missing
        where it is scored), its group, seconds and usage, and each member of its data as a column of the same name.
        Members that are lists or objects stay Python values."""
        rows = [_row(s) for s in self._lines() if step is None or s["step"] == step]
        if step is not None and not rows:
            known = sorted({s["step"] for s in self._lines()})
            raise ReadError(
                f"{self.path} has no sample of the step {step!r}; it has {', '.join(known) or 'none at all'}"
            )
        frame = pd.DataFrame(rows)
        return frame if rows else pd.DataFrame(columns=[*KEY, "unscored", "group", "seconds"])

    def _lines(self) -> Iterator[Object]:
        return read_lines(self.path / "samples.jsonl")

    @property
    def metrics(self) -> Object:
        """What scoring found, as metrics.json holds it."""
        remedy = f"score the run: ccmed score {self.path}"
        found = read_object(self.path / "metrics.json", METRICS, remedy)
        if self.status != "started" and found["samples_sha256"] != self.manifest.get("samples_sha256"):
            raise ReadError(f"{self.path / 'metrics.json'} is of other samples than the run holds; {remedy}")
        metrics: Object = found["metrics"]
        return metrics

    def values(self) -> pd.DataFrame:
        """Every number of the metrics: `name`, the dotted path to it; `value`; and, where it has an interval, `lo` and
        `hi` at 95 %, the `n` items and `groups` it is over, and `no_interval`, the reason why there is none."""
        columns = ["name", "value", "lo", "hi", "n", "groups", "no_interval"]
        return pd.DataFrame(list(_values("", self.metrics)), columns=columns)

    def cells(self) -> list[Cell]:
        """The cells of a store of hidden states."""
        return sorted({cell for cell, _ in index(self._lines())})

    def states(self, context: str, text: str, position: str) -> States:
        """The hidden states of one cell of a store."""
        cell = Cell(context, text, position)
        rows = [row for c, row in index(self._lines()) if c == cell]
        if not rows:
            known = "; ".join(str(c) for c in self.cells())
            raise ReadError(f"{self.path} has no states of {cell}; it has {known or 'none at all'}")
        return States(self.path / cell.file, pd.DataFrame(rows))

    @property
    def findings(self) -> Object:
        """What probes found, as `ccmed probe report --format json` prints it."""
        for name, schema in FINDINGS.items():
            if (self.path / name).exists():
                return read_object(self.path / name, schema, "")
        raise ReadError(f"{self.path} has no findings yet; make them with `ccmed probe train {self.path}`")

    def accuracies(self) -> pd.DataFrame:
        """The probes of a store of lines, a row a cell and layer: accuracy with its interval (`lo`, `hi`; nothing where
        there is none), log-loss, macro-F1 and Brier score, beside shuffled labels and the majority class."""
        found = self.findings
        if "cells" not in found:
            raise ReadError(f"the findings of {self.path} are not by cell; read them from Run.findings")
        rows = []
        for cell in found["cells"]:
            of = {k: cell["cell"][k] for k in ("context", "text", "position")}
            for k, layer in enumerate(cell["layers"]):
                lo, hi = _bounds(cell["accuracy"][k])
                scores = {s: layer[s] for s in ("log_loss", "macro_f1", "brier")}
                beside = {"shuffled": cell["shuffled"][k], "majority": cell["majority"]}
                row = {"layer": layer["layer"], "n": layer["n"], "accuracy": layer["accuracy"], "lo": lo, "hi": hi}
                rows.append(of | row | scores | beside)
        return pd.DataFrame(rows)


def list_runs(folder: str | Path = "runs") -> pd.DataFrame:
    """The runs of a folder, the oldest first: name, task, model names, status, items, samples, start of the first
    session (UTC) and path."""
    rows = []
    for manifest in sorted(Path(folder).glob("*/manifest.json")):
        run = Run(manifest.parent)
        sessions = run.manifest.get("sessions") or [{}]
        models, items = ", ".join(dict.fromkeys(run.models.values())), len(run.identity.get("items") or [])
        started = pd.to_datetime(sessions[0].get("start"), utc=True)
        rows.append([run.name, run.task, models, run.status, items, run.manifest["samples"], started, str(run.path)])
    columns = ["name", "task", "models", "status", "items", "samples", "started", "path"]
    return pd.DataFrame(rows, columns=columns).sort_values("started", ignore_index=True)


def _row(sample: Object) -> Object:
    row = {k: sample[k] for k in KEY} | {"unscored": sample.get("unscored"), "group": sample.get("group")}
    row |= {"seconds": sample["seconds"], "usage": sample["usage"]}
    for name, value in (sample.get("data") or {}).items():
        row[f"data.{name}" if name in row else name] = value
    return row


def _bounds(estimate: Object) -> tuple[float, float]:
    if estimate.get("no_interval"):
        return float("nan"), float("nan")
    return estimate["lo"], estimate["hi"]


def _values(name: str, value: Any) -> Iterator[list[Any]]:
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        yield [name, value, None, None, None, None, None]
    elif isinstance(value, dict) and {"value", "lo", "hi"} <= value.keys():
        lo, hi = _bounds(value)
        yield [name, value["value"], lo, hi, value.get("n"), value.get("groups"), value.get("no_interval")]
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _values(f"{name}.{key}" if name else key, member)
    elif isinstance(value, list):
        labels = [_label(member, number) for number, member in enumerate(value)]
        if len(set(labels)) < len(labels):
            labels = [str(number) for number in range(len(value))]
        for label, member in zip(labels, value, strict=True):
            yield from _values(f"{name}.{label}", member)


def _label(member: Any, number: int) -> str:
    """What names a member of a list: its own words where it has some."""
    words = (
        [member[k] for k in ("condition", "metric", "measure", "name") if member.get(k)]
        if isinstance(member, dict)
        else []
    )
    return " ".join(map(str, words)) or str(number)
