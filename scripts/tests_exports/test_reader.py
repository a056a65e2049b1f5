"""ccmed_runs on runs that the program made, held against its files and its exports."""

import json
import os
from pathlib import Path

import ccmed_runs
import pandas as pd
import pytest

EXPORTS = Path(os.environ["CCMED_EXPORTS"])


@pytest.fixture(params=sorted(p.name for p in EXPORTS.iterdir()))
def folder(request: pytest.FixtureRequest) -> Path:
    name: str = request.param
    return EXPORTS / name


def test_runs_are_listed(folder: Path) -> None:
    frame = ccmed_runs.list_runs(folder)
    manifest = json.loads((folder / "run" / "manifest.json").read_text())
    assert frame["samples"].tolist() == [manifest["samples"]]
    assert frame["task"].tolist() == [manifest["identity"]["task"]]
    assert frame["status"].tolist() == ["done"]


def test_samples_are_those_of_the_export(folder: Path) -> None:
    run = ccmed_runs.Run(folder / "run")
    assert len(run.samples()) == run.manifest["samples"]
    step = "decide" if run.task == "timing" else "utterance"
    samples = run.samples(step).set_index(["item", "condition"])
    exported = pd.read_parquet(folder / "samples.parquet")
    assert not exported.empty
    for _, row in exported.iterrows():
        if run.task == "timing":
            one = samples.loc[(row["item"], row["condition"])]
            assert row["scored"] == pd.isna(one["unscored"])
            assert (row["predicted_turn"] if row["predicted_turn"] > 0 else 0) == one["predicted"]
        elif (row["item"], row["condition"]) in samples.index:  # nobody says anything where there is no mediator
            said = samples.loc[(row["item"], row["condition"]), "text"]
            assert (row["utterance"] if pd.notna(row["utterance"]) else "") == said
        else:
            assert row["condition"] == "none"


def test_values_are_those_of_the_metrics(folder: Path) -> None:
    run = ccmed_runs.Run(folder / "run")
    values = run.values().set_index("name")
    assert values.index.is_unique and not values["value"].isna().any()
    if run.task == "timing":
        assert values.loc["scored", "value"] == run.metrics["scored"]
        return
    for c in run.metrics["conditions"]:
        for metric, found in c.get("values", {}).items():
            one = values.loc[f"conditions.{c['condition']}.values.{metric}"]
            assert one["value"] == found["value"] and one["n"] == found["n"]
            assert pd.isna(one["lo"]) if found.get("no_interval") else one["lo"] == found["lo"]
