"""Folders written here, by the forms that docs/formats.md of ccmed describes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

import ccmed_runs

ESTIMATE = {"value": 0.5, "lo": 0.25, "hi": 0.75, "n": 4, "groups": 2}
ALIKE = {"value": 1, "lo": 1, "hi": 1, "n": 4, "groups": 2, "no_interval": "all alike"}
STATES = np.arange(2 * 4 * 3, dtype=np.float32).reshape(2, 4, 3)
CELL = {"context": "ND", "text": "own-ND", "position": "utterance_end", "kind": "residual"}


def sample(item: str, step: str, data: dict[str, Any], **more: Any) -> dict[str, Any]:
    key = {"step": step, "item": item, "condition": "ND", "repeat": 0, "schema": 1, "group": item}
    return key | {"data": data, "usage": {"prompt": 3}, "seconds": 0.5} | more


def manifest(folder: Path, task: str, **more: Any) -> Path:
    folder.mkdir()
    identity = {
        "task": task,
        "models": {"mediator": {"name": "small"}, "judge": {"name": "small"}},
        "items": ["1", "2"],
    }
    sessions = [{"start": "2026-12-01T10:00:00Z"}]
    text = {"schema": 2, "status": "done", "identity": identity, "samples": 3, "samples_sha256": "sha256:aa"}
    (folder / "manifest.json").write_text(json.dumps(text | {"sessions": sessions} | more))
    return folder


@pytest.fixture
def timing(tmp_path: Path) -> Path:
    folder = manifest(tmp_path / "timing", "timing")
    samples = [
        sample("1", "decide", {"gold": 3, "predicted": 4, "curve": [{"turn": 1, "p": 0.5}]}),
        sample("2", "decide", {"gold": 3, "predicted": 0, "usage": "shadowed"}, unscored="no digit"),
        sample("1", "reason", {"text": "hm\u2028"}),
    ]
    lines = "\n".join(json.dumps(s, ensure_ascii=False) for s in samples) + '\n{"torn'
    (folder / "samples.jsonl").write_text(lines)
    metrics = {
        "n": 2,
        "degenerate": False,
        "accuracy": ESTIMATE,
        "conditions": [{"condition": "ND", "auc": ALIKE}, {"condition": "D", "auc": ESTIMATE}],
        "curve": [{"turn": 1, "p": 0.5}],
    }
    text = {"schema": 4, "samples_sha256": "sha256:aa", "metrics": metrics}
    (folder / "metrics.json").write_text(json.dumps(text))
    return folder


@pytest.fixture(params=[np.float32, np.float16])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    folder = manifest(tmp_path / "store", "extract")
    states = STATES.astype(request.param)
    stages, samples = ["Denial", "Defense", "Minimization"], []
    for row, item in ((2, "7"), (0, "8"), (3, "9")):  # row 1 was never written
        place = {"cell": CELL, "row": row, "token": row, "tokens": 9}
        data = {"states": [place], "stage": stages[row - 1], "context": f"c{row}", "turn": row + 3}
        samples.append(json.dumps(sample(item, "states", data)))
    samples.append(json.dumps(sample("10", "states", {}, unscored="too long")))
    (folder / "samples.jsonl").write_text("\n".join(samples) + "\n")
    if request.param == np.float32:
        states.view(np.uint32)[1, 3, 1] = 0x7FC0CC3D  # a torn row, in one layer
    else:
        states.view(np.uint16)[1, 3, 1] = 0x7E3D
    states[:, 1] = np.nan
    meta = {"model": "small", "layers": json.dumps(["embed", "block.1"])}
    save_file({"states": states}, folder / "ND.own-ND.utterance_end.residual.safetensors", metadata=meta)
    return folder


def test_runs_of_a_folder(timing: Path) -> None:
    manifest(timing.parent / "older", "mediation", sessions=[{"start": "2026-11-30T10:00:00Z"}])
    frame = ccmed_runs.list_runs(timing.parent)
    assert list(frame["name"]) == ["older", "timing"]
    assert list(frame.loc[1, ["task", "models", "items", "samples"]]) == ["timing", "small", 2, 3]
    assert frame["started"].iloc[0] == pd.Timestamp("2026-11-30T10:00", tz="UTC")
    assert ccmed_runs.list_runs(timing).empty


def test_samples(timing: Path) -> None:
    run = ccmed_runs.Run(timing)
    frame = run.samples("decide")
    assert frame["predicted"].tolist() == [4, 0]
    assert pd.isna(frame["unscored"].iloc[0]) and frame["unscored"].iloc[1] == "no digit"
    assert frame["curve"].iloc[0] == [{"turn": 1, "p": 0.5}]
    assert frame["usage"].tolist() == [{"prompt": 3}] * 2 and frame["data.usage"].iloc[1] == "shadowed"
    assert len(run.samples()) == 3  # the torn line is none, and U+2028 ends none
    with pytest.raises(ccmed_runs.ReadError, match="no sample of the step 'label'; it has decide, reason"):
        run.samples("label")


def test_values(timing: Path) -> None:
    frame = ccmed_runs.Run(timing).values().set_index("name")
    assert list(frame.index) == ["n", "accuracy", "conditions.ND.auc", "conditions.D.auc", "curve.0.turn", "curve.0.p"]
    assert list(frame.loc["accuracy", ["value", "lo", "hi", "n", "groups"]]) == [0.5, 0.25, 0.75, 4, 2]
    alike = frame.loc["conditions.ND.auc"]
    assert alike["value"] == 1 and alike["no_interval"] == "all alike" and np.isnan(alike["lo"])


def test_states(store: Path) -> None:
    run = ccmed_runs.Run(store)
    assert run.cells() == [ccmed_runs.Cell("ND", "own-ND", "utterance_end")]
    states = run.states("ND", "own-ND", "utterance_end")
    assert states.rows["item"].tolist() == ["8", "7"]  # by row; that of 9 is torn
    assert states.rows["turn"].tolist() == [3, 5] and states.rows["group"].tolist() == ["c0", "c2"]
    assert states.X.dtype == np.float32
    np.testing.assert_array_equal(states.X, STATES[:, [0, 2]])
    np.testing.assert_array_equal(states.layer("block.1"), STATES[1, [0, 2]])
    with pytest.raises(ccmed_runs.ReadError, match=r"no layer 'block.9'; it has embed to block.1"):
        states.layer("block.9")
    with pytest.raises(ccmed_runs.ReadError, match="no states of D, own-D, x; it has ND, own-ND, utterance_end"):
        run.states("D", "own-D", "x")


def test_accuracies(store: Path) -> None:
    run = ccmed_runs.Run(store)
    with pytest.raises(ccmed_runs.ReadError, match="no findings yet; make them with `ccmed probe train"):
        run.accuracies()
    layer = {"n": 4, "log_loss": 0.7, "macro_f1": 0.4, "brier": 0.3}
    layers = [layer | {"layer": "embed", "accuracy": 0.5}, layer | {"layer": "block.1", "accuracy": 1}]
    cell = {"cell": CELL, "layers": layers, "accuracy": [ESTIMATE, ALIKE], "shuffled": [0.1, 0.2], "majority": 0.4}
    (store / "probe.json").write_text(json.dumps({"schema": 4, "cells": [cell]}))
    frame = run.accuracies()
    assert frame["layer"].tolist() == ["embed", "block.1"] and frame["lo"].isna().tolist() == [False, True]
    assert list(frame.loc[1, ["accuracy", "shuffled", "majority"]]) == [1, 0.2, 0.4]


def test_refusals(timing: Path, tmp_path: Path) -> None:
    with pytest.raises(ccmed_runs.ReadError, match=r"none.manifest.json is not there; name a run folder of ccmed"):
        ccmed_runs.Run(tmp_path / "none")
    newer = manifest(tmp_path / "newer", "timing", schema=3)
    with pytest.raises(ccmed_runs.ReadError, match="schema 3 and this version reads up to 2; use a newer ccmed_runs"):
        ccmed_runs.Run(newer)
    (timing / "samples.jsonl").write_text('{"step": "decide"}\n{"step"\n')
    with pytest.raises(ccmed_runs.ReadError, match=r"samples.jsonl, line 2: "):
        ccmed_runs.Run(timing).samples("reason")
    stale = json.loads((timing / "metrics.json").read_text()) | {"samples_sha256": "sha256:bb"}
    (timing / "metrics.json").write_text(json.dumps(stale))
    with pytest.raises(ccmed_runs.ReadError, match="is of other samples than the run holds; score the run"):
        ccmed_runs.Run(timing).values()
