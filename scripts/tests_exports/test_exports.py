"""The files of `ccmed runs export`, loaded with the packages that they are made for.

CCMED_EXPORTS names a folder with one folder a run: `run` is the run folder, `samples.jsonl`, `.csv` and `.parquet`
are its tables, `log.eval` and `2026-...json` its Inspect logs and `lm-eval` the harness's files. Values are compared
with the run's own metrics.json.
"""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import inspect_ai.scorer
import lm_eval.result_schema
import lm_eval.utils
import pandas as pd
import pyarrow.parquet as pq
import pytest
from inspect_ai.analysis import evals_df, samples_df
from inspect_ai.event import ModelEvent
from inspect_ai.log import EvalLog, EvalSample, list_eval_logs, read_eval_log
from inspect_ai.scorer import SampleScore
from pydantic import TypeAdapter

EXPORTS = Path(os.environ["CCMED_EXPORTS"])


class Run:
    """One run with its exports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found = json.loads((folder / "run" / "metrics.json").read_text())
        self.metrics = self.found["metrics"]
        self.timing = self.found["task"] == "timing"
        self.samples = [json.loads(line) for line in (folder / "run" / "samples.jsonl").open()]
        prompts = [json.loads(line) for line in (folder / "run" / "prompts.jsonl").open()]
        self.prompts = {p["hash"]: p["rendered"] for p in prompts}

    def log(self) -> EvalLog:
        return read_eval_log(str(self.folder / "log.eval"))

    def expected(self) -> dict[tuple[str, str], dict[str, float]]:
        """The values of every item under every condition, by metric."""
        if not self.timing:
            return {(o["item"], o["condition"]): o.get("values", {}) for o in self.metrics["outcomes"]}
        out = {}
        for s in self.samples:
            if s["step"] == "decide":
                right = {"turn_acc": float(s["data"]["predicted"] == s["data"]["gold"])}
                out[s["item"], s["condition"]] = {} if s.get("unscored") else right
        return out

    def unscored(self) -> dict[tuple[str, str], dict[str, str]]:
        """The reasons of missing values, by metric."""
        if not self.timing:
            outcomes = self.metrics["outcomes"]
            return {(o["item"], o["condition"]): o.get("unscored", {}) | o.get("withheld", {}) for o in outcomes}
        decided = [s for s in self.samples if s["step"] == "decide"]
        return {(s["item"], s["condition"]): {"turn_acc": s["unscored"]} if s.get("unscored") else {} for s in decided}


@pytest.fixture(params=sorted(p.name for p in EXPORTS.iterdir()))
def run(request: pytest.FixtureRequest) -> Run:
    return Run(EXPORTS / request.param)


def tables(run: Run) -> dict[str, pd.DataFrame]:
    text = dict.fromkeys(["item", "condition", "unscored", "prompt", "utterance"], "string")
    return {
        "csv": pd.read_csv(run.folder / "samples.csv", dtype=text),
        "jsonl": pd.read_json(run.folder / "samples.jsonl", lines=True, dtype=text, precise_float=True),
        "parquet": pd.read_parquet(run.folder / "samples.parquet"),
    }


def test_tables_hold_the_same_rows(run: Run) -> None:
    frames = tables(run)
    parquet = frames["parquet"]
    assert len(parquet) == len(run.expected())
    assert not parquet.duplicated(["item", "condition", "repeat"]).any()
    for name, frame in frames.items():
        assert list(frame.columns) == list(parquet.columns), name
        for column in parquet.columns:
            for a, b in zip(frame[column], parquet[column], strict=True):
                if isinstance(b, str) or not hasattr(b, "__len__"):
                    assert (pd.isna(a) and pd.isna(b)) or a == b, (name, column)
                else:  # a list, which CSV holds as JSON
                    assert list(json.loads(a) if isinstance(a, str) else a) == list(b), (name, column)


def test_tables_agree_with_the_metrics(run: Run) -> None:
    frame = tables(run)["parquet"].set_index(["item", "condition"])
    for key, values in run.expected().items():
        row = frame.loc[key]
        if run.timing:
            assert (float(row["correct"]) if values else None) == values.get("turn_acc")
            continue
        for metric, value in values.items():
            assert row[metric] == value, (key, metric)
        for metric in run.unscored()[key]:
            assert row[metric] is None or math.isnan(row[metric])
            assert metric in row["unscored"]
    if run.timing:
        scored = frame[frame["scored"]]
        assert len(scored) == run.metrics["scored"]
        assert scored["correct"].sum() == run.metrics["correct"]
        turns = scored["predicted_turn"].fillna(0).astype(int).value_counts().to_dict()
        assert turns == {int(k): v for k, v in run.metrics["predicted"].items()}
    else:
        for c in run.metrics["conditions"]:
            rows = frame.xs(c["condition"], level="condition")
            assert len(rows) == c["n"]
            for metric, found in c.get("values", {}).items():
                assert rows[metric].mean() == pytest.approx(found["value"], abs=1e-12)


def test_parquet_types_are_stable(run: Run) -> None:
    schema = pq.read_schema(run.folder / "samples.parquet")
    want = {"item": "string", "repeat": "int32", "scored": "bool", "unscored": "string", "seconds": "double"}
    want |= {"predicted_turn": "int32", "correct": "bool"} if run.timing else {"auc_paige": "double", "turn": "int32"}
    assert {name: str(schema.field(name).type) for name in want} == want
    assert not schema.field("item").nullable
    assert schema.field("unscored").nullable
    lists = "curve_p" if run.timing else "trajectory_stage"
    assert str(schema.field(lists).type).startswith("list<")


def test_datasets_loads_the_tables(run: Run, tmp_path: Path) -> None:
    for kind, suffix in (("parquet", "parquet"), ("json", "jsonl"), ("csv", "csv")):
        files = str(run.folder / f"samples.{suffix}")
        rows = datasets.load_dataset(kind, data_files=files, split="train", cache_dir=str(tmp_path))
        assert rows.num_rows == len(run.expected())


def sample_scores(run: Run, log: EvalLog, metric: str, condition: str | None) -> Iterator[SampleScore]:
    for s in log.samples or []:
        if condition is None or s.metadata["condition"] == condition:
            score = (s.scores or {}).get(metric)
            if score is not None and not (isinstance(score.value, float) and math.isnan(score.value)):
                yield SampleScore(score=score, sample_id=s.id, sample_metadata=s.metadata)


def test_inspect_log(run: Run) -> None:
    log = run.log()
    assert log.status == "success"
    assert log.eval.task == "ccmed_" + run.found["task"]
    assert log.samples is not None and log.results is not None
    assert len(log.samples) == len(run.expected()) == log.results.total_samples
    for s in log.samples:
        key = (s.metadata["item"], s.metadata["condition"])
        got = {}
        for metric, score in (s.scores or {}).items():
            if score.reason is not None:
                assert isinstance(score.value, float) and math.isnan(score.value)
                assert score.explanation == run.unscored()[key][metric] == score.reason
            else:
                got[metric] = inspect_ai.scorer.value_to_float()(score.value)
        assert got == run.expected()[key], key
        check_messages(run, s)
        check_events(run, s)
    usage = run.found["usage"]["usage"]
    assert sum(u.input_tokens for u in log.stats.model_usage.values()) == usage["evaluated"]
    assert sum(u.output_tokens for u in log.stats.model_usage.values()) == usage["generated"]
    assert sum(u.input_tokens_cache_read or 0 for u in log.stats.model_usage.values()) == usage["cached"]


def check_messages(run: Run, s: EvalSample) -> None:
    """System and user stand apart, and the assistant says what the model wrote and nothing else."""
    said = {}
    for one in run.samples:
        if one["step"] == "utterance" and one["data"]["source"] == "model":
            said[one["item"], one["condition"]] = one["data"]["text"]
    want = said.get((s.metadata["item"], s.metadata["condition"]))
    asked = s.messages if want is None else s.messages[:-1]
    if asked:  # nobody was asked for a line that was given
        assert [m.role for m in asked] == ["system", "user"]
        assert isinstance(s.input, list) and [m.text for m in s.input] == [m.text for m in asked]
        assert "<|im_start|>" not in asked[0].text + asked[1].text
    assert want is None or (s.messages[-1].role, s.messages[-1].text) == ("assistant", want)
    assert s.output.completion == (want or "") and len(s.output.choices) == (0 if want is None else 1)


def check_events(run: Run, s: EvalSample) -> None:
    """There is one event a question, with its prompt, and its probabilities or what was said."""
    events = [e for e in s.events if isinstance(e, ModelEvent)]
    assert len(events) == len(s.events)
    key = {k: s.metadata[k] for k in ("item", "condition", "repeat")}
    steps = {one["step"]: one for one in run.samples if key.items() <= one.items()}
    hashes = [
        h
        for step in ("reason", "decide", "utterance", "simulate", "label", "judge")
        if step in steps
        for h in steps[step].get("prompts", [])
    ]
    rendered = [run.prompts[h] for h in hashes]
    assert len(events) == len(rendered) > 0 or not hashes
    for event, prompt in zip(events, rendered, strict=True):
        roles = [m.role for m in event.input]
        assert roles[0] == "system" and roles[-1] == "user"
        assert roles == ["system", "user"] or event.role == "simulator"  # who plays a speaker is sent its earlier turns
        assert all(m.text.strip() in prompt for m in event.input)
        generated = "probabilities" not in (event.metadata or {})
        assert bool(event.output.choices) == generated
    if "decide" in steps and key["condition"] == "stream":
        curve = steps["decide"]["data"]["curve"]
        got = [e.metadata and e.metadata["probabilities"] for e in events]
        assert got == [{"yes": p["p"], "no": p.get("no", 0)} for p in curve]
    if "label" in steps and not steps["label"].get("unscored"):
        data = steps["label"]["data"]
        labels = [e for e in events if e.role == "labeller"]
        for event, label in zip(labels, [data["pre"], *(data.get("after") or [])], strict=True):
            assert event.metadata and list(event.metadata["probabilities"].values()) == label["p"]
            assert event.metadata["about"] == f"stage after turn {label['turn']}"


def test_inspect_computes_the_same_results(run: Run) -> None:
    log = run.log()
    assert log.results is not None and log.results.scores
    for result in log.results.scores:
        missing = sum(result.name in reasons for reasons in run.unscored().values())
        assert result.unscored_samples == missing
        for metric in result.metrics.values():
            condition = metric.name if metric.group else None
            scores = list(sample_scores(run, log, result.name, condition))
            compute: Any = inspect_ai.scorer.mean()
            if "stderr" in (metric.name, metric.group):
                compute = inspect_ai.scorer.stderr(cluster=metric.params["cluster"])
            assert compute(scores) == pytest.approx(metric.value, abs=1e-12), (result.name, metric)


def test_inspect_forms_and_data_frames(run: Run) -> None:
    (name,) = run.folder.glob("20*.json")
    plain, packed = read_eval_log(str(name)), run.log()
    for log in (plain, packed):
        log.location = ""
    by_id = {(s.id, s.epoch): s.model_dump_json() for s in packed.samples or []}
    assert {(s.id, s.epoch): s.model_dump_json() for s in plain.samples or []} == by_id
    assert plain.eval == packed.eval and plain.results == packed.results and plain.stats == packed.stats
    for path in (str(name), str(run.folder / "log.eval")):
        frame = samples_df(path)
        assert len(frame) == len(run.expected())
        assert {"metadata_item", "metadata_condition", "input", "target"} <= set(frame.columns)
        assert len(evals_df(path)) == 1
    assert {Path(log.name).name for log in list_eval_logs(str(run.folder))} == {name.name, "log.eval"}


def test_harness_files(run: Run, tmp_path: Path) -> None:
    files = [str(p) for p in (run.folder / "lm-eval").rglob("*.json*")]
    (result_file,) = lm_eval.utils.get_results_filenames(files)
    results = json.loads(Path(result_file).read_text())
    # The harness's own task configurations do not fit the flat type that the schema gives them.
    TypeAdapter(lm_eval.result_schema.EvalResults).validate_python(results | {"configs": {}})
    assert Path(result_file).parent.name == lm_eval.utils.sanitize_model_name(results["model_name"])
    table = lm_eval.utils.make_table(results)
    sample_files = lm_eval.utils.get_sample_results_filenames(files)
    conditions = {condition for _, condition in run.expected()}
    assert len(sample_files) == len(conditions) == len(results["results"])
    date = lm_eval.utils.get_file_datetime(Path(result_file).name).removesuffix(".json")
    for file in sample_files:
        assert lm_eval.utils.get_file_datetime(Path(file).name) == date
        task = lm_eval.utils.get_file_task_name(Path(file).name)
        scored = check_harness_task(run, results, task, file, tmp_path)
        assert (f"|{task}|" in table.replace(" ", "")) == scored


def check_harness_task(run: Run, results: dict[str, Any], task: str, file: str, cache: Path) -> bool:
    """Compares one samples file with the run, and tells whether it has a value."""
    rows = datasets.load_dataset("json", data_files=file, split="train", cache_dir=str(cache))
    assert results["n-samples"][task]["original"] == rows.num_rows
    hashes = ""
    values: dict[str, list[float]] = {}
    for row in rows:
        key = (row["doc"]["item"], row["doc"]["condition"])
        expected = run.expected()[key]
        assert {m: row[m] for m in row["metrics"]} == expected, key
        assert all(row[m] is None for m in run.unscored()[key])
        assert (row["unscored"] is None) == (not run.unscored()[key])
        for metric, value in expected.items():
            values.setdefault(metric, []).append(value)
        # As evaluator.py computes them.
        assert row["doc_hash"] == lm_eval.utils.hash_string(json.dumps(row["doc"], indent=2, ensure_ascii=False))
        assert row["prompt_hash"] == lm_eval.utils.hash_string(row["arguments"]["gen_args_0"]["arg_0"])
        assert row["target_hash"] == lm_eval.utils.hash_string(row["target"])
        hashes += row["doc_hash"] + row["prompt_hash"] + row["target_hash"]
    assert results["task_hashes"][task] == lm_eval.utils.hash_string(hashes)
    for metric, found in values.items():
        assert results["results"][task][f"{metric},none"] == pytest.approx(sum(found) / len(found), abs=1e-12)
    return bool(values)
