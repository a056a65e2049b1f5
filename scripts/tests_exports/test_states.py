"""Hidden states that were made elsewhere, imported, probed and exported, held against numpy and scikit-learn.

CCMED_STATES names a folder: `planted` is what plant_states.py wrote, `runs/store` the store that was imported and
probed with three folds in two partitions, `arrays`, `tables` and `places.parquet` its exports, `findings.csv` its
findings. `ccmed` is on the path.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import ccmed_runs
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

HERE = Path(os.environ["CCMED_STATES"])
NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.md"
CELLS = ["D.own-D.utterance_end", "D.prompt.prompt_end", "ND.own-ND.utterance_end", "ND.prompt.prompt_end"]


@pytest.fixture
def store() -> ccmed_runs.Run:
    return ccmed_runs.Run(HERE / "runs" / "store")


def planted(cell: str) -> tuple[np.ndarray[Any, Any], list[int]]:
    """The array of a cell as it was written, and the items of its rows."""
    name = "end" if cell.endswith("utterance_end") else "prompt"
    nd, d = np.load(HERE / "planted" / "nd.npz"), load_file(HERE / "planted" / "d.safetensors")
    array = nd[name] if cell.startswith("ND") else d[name]
    return array.astype(np.float32), [i for i in range(72) if i != 10 or array.shape[1] == 72]


@pytest.mark.parametrize("cell", CELLS)
def test_states_survive(store: ccmed_runs.Run, cell: str) -> None:
    want, items = planted(cell)
    states = store.states(*cell.split("."))
    np.testing.assert_array_equal(states.X, want)
    assert states.rows["item"].tolist() == [str(100 + i) for i in items]
    archive = np.load(HERE / "arrays" / f"{cell}.residual.npz")
    np.testing.assert_array_equal(archive["X"], want)
    meta = json.loads(archive["meta.json"])
    assert meta["items"] == states.rows["item"].tolist() and meta["layers"] == states.layers
    assert [meta["groups"][g] for g in archive["group"]] == [f"scene {i // 3}" for i in items]
    assert [meta["stages"][s] for s in archive["y"]] == states.rows["stage"].tolist()
    table = pd.read_parquet(HERE / "tables" / f"{cell}.residual.parquet")
    assert len(table) == 4 * len(items)
    assert set(table["condition"]) == {cell.split(".")[0]} and set(table["position"]) == {cell.split(".")[2]}
    for k, layer in enumerate(states.layers):
        rows = table[table["layer"] == layer]
        np.testing.assert_array_equal(np.stack(rows["x"].tolist()), want[k])
        np.testing.assert_array_equal(np.stack(rows["fold"].tolist()).T, archive["fold"])
        assert rows["item"].tolist() == meta["items"] and rows["stage"].tolist() == states.rows["stage"].tolist()


def test_places_are_exported(store: ccmed_runs.Run) -> None:
    places = pd.read_parquet(HERE / "places.parquet")
    assert len(places) == 4 * 72 - 1
    for cell in CELLS:
        of = places[places["file"] == f"{cell}.residual.safetensors"].sort_values("row")
        rows = store.states(*cell.split(".")).rows
        for ours, theirs in {"item": "item", "stage": "stage", "group": "context", "row": "row"}.items():
            assert of[theirs].tolist() == rows[ours].tolist()
        assert of["sha256"].is_unique and of["line"].isna().all()


def test_folds_keep_groups_together() -> None:
    archive = np.load(HERE / "arrays" / f"{CELLS[0]}.residual.npz")
    assert archive["fold"].shape == (2, 72)
    out = archive["fold"][0] < 0
    assert np.flatnonzero(out).tolist() == [10]  # which one cell does not have
    for partition in archive["fold"]:
        assert set(partition[~out]) == {0, 1, 2}
        for group in np.unique(archive["group"]):
            assert len(set(partition[(archive["group"] == group) & ~out])) == 1


@pytest.mark.parametrize("cell", CELLS)
def test_scikit_learn_finds_the_same(store: ccmed_runs.Run, cell: str) -> None:
    archive = np.load(HERE / "arrays" / f"{cell}.residual.npz")
    X, y, fold = archive["X"].astype(np.float64), archive["y"], archive["fold"]
    of = dict(zip(("context", "text", "position"), cell.split("."), strict=True))
    found = next(c for c in store.findings["cells"] if of.items() <= c["cell"].items())
    for k, layer in enumerate(found["layers"]):
        hits, losses, penalties = [], [], iter(layer["c"])
        for partition in fold:
            p = np.full((len(y), 3), np.nan)
            for held in range(3):
                train, test = (partition != held) & (partition >= 0), partition == held
                scale = StandardScaler().fit(X[k][train])
                probe = LogisticRegression(C=next(penalties), max_iter=10_000, tol=1e-10)
                probe.fit(scale.transform(X[k][train]), y[train])
                p[test] = probe.predict_proba(scale.transform(X[k][test]))
            tested = partition >= 0
            hits.append(np.mean(p[tested].argmax(axis=1) == y[tested]))
            losses.append(log_loss(y[tested], p[tested]))
        assert np.mean(hits) == pytest.approx(layer["accuracy"], abs=1e-12), layer["layer"]
        assert np.mean(losses) == pytest.approx(layer["log_loss"], rel=1e-4), layer["layer"]
        assert (layer["accuracy"] > 0.6) == (layer["layer"] == "block.2")  # where the stage was planted


def test_accuracies_are_those_of_the_report(store: ccmed_runs.Run) -> None:
    ours, report = store.accuracies(), pd.read_csv(HERE / "findings.csv")
    assert len(ours) == len(report) == 16
    names = {"lo": "lower", "hi": "upper"}
    for column in ours.columns:
        theirs = report[names.get(column, column)]
        if ours[column].dtype.kind == "f":
            np.testing.assert_allclose(ours[column], theirs, rtol=1e-12)
        else:
            assert ours[column].tolist() == theirs.tolist()


def test_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)
    cells = re.findall(r"^```(python|sh|sh setup)\n(.*?)^```$", NOTEBOOK.read_text(), re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in cells].count("python") >= 8
    names: dict[str, Any] = {}
    for kind, text in cells:
        if kind == "python":
            exec(compile(text, "notebook", "exec"), names)
        elif kind == "sh":
            subprocess.run(["bash", "-euc", text], check=True)
    assert len(names["accuracies"]) == 16 and len(names["values"]) > 20
    mine = ccmed_runs.Run("runs/mine")
    assert mine.accuracies()["n"].tolist() == [72] * 4
