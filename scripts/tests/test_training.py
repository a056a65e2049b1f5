"""Whole trainings of a two-layer model: resumption, interruption, failures, merging."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from conftest import REUSE, MakeTrainer, Recorder, record, write_export
from safetensors.torch import load_file

import train_dual_head
from dual_head import TURN_END, DualHeadError, embeddings, load_model, load_tokenizer, marker_ids
from merge_dual_head import merge
from reference_dual_head import describe, load
from train_dual_head import Config, Interrupted, Trainer, explained

LORA: dict[str, Any] = {"dropout": 0.2, "lr_adapter": 1e-2, "lr_head": 1e-2, "max_steps": 5, "warmup_steps": 2}
FULL: dict[str, Any] = {"method": "full", "reuse_tokens": REUSE, "lr_adapter": 1e-3, "max_steps": 5}


def values(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in trainer.trainable().items()}


def steps(recorder: Recorder) -> list[tuple[float, float]]:
    return [(e["lm"], e["bce"]) for e in recorder.named("step")]


@pytest.mark.parametrize("options", [LORA, FULL], ids=["lora", "full"])
def test_resumed_equals_unbroken_bit_for_bit(
    options: dict[str, Any], make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    whole = Recorder()
    unbroken = make_trainer(whole, out=tmp_path / "whole", **options)
    unbroken.run()
    assert unbroken.steps == 5  # 11 records in groups of two: the second epoch's order is drawn too

    first = Recorder(stop_after=2)
    with pytest.raises(Interrupted):
        make_trainer(first, out=tmp_path / "broken", **options).run()
    assert [e["step"] for e in first.named("checkpoint")] == [2]
    second = Recorder()
    resumed = make_trainer(second, out=tmp_path / "broken", resume=True, save_steps=1, **options)
    resumed.run()

    assert steps(first) + steps(second) == steps(whole)
    a, b = unbroken.learned(), resumed.learned()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[n], b[n]) for n in a)
    assert second.named("eval")[-1] == whole.named("eval")[-1]
    kept = sorted(p.name for p in (tmp_path / "broken" / "checkpoints").iterdir())
    assert kept == ["step-4", "step-5"]
    done = second.named("done")[0]
    assert done["steps"] == 5 and done["path"].endswith("final")


def test_another_training_is_left_alone(make_trainer: MakeTrainer) -> None:
    make_trainer(max_steps=1).run()
    with pytest.raises(DualHeadError, match="--resume, or name another folder"):
        make_trainer(max_steps=1)
    with pytest.raises(DualHeadError, match="other settings, data or base model"):
        make_trainer(max_steps=1, resume=True, lr_head=1.0)


def test_micro_batches_do_not_change_the_step(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    recorders = [Recorder(), Recorder()]
    made = []
    for r, batch in zip(recorders, (4, 1), strict=True):
        trainer = make_trainer(r, out=tmp_path / str(batch), batch=batch, grad_accum=4 // batch, epochs=1)
        assert trainer.steps == 3  # 11 records: the last group has three
        trainer.run()
        made.append(values(trainer))
    for x, y in zip(steps(recorders[0]), steps(recorders[1]), strict=True):
        assert x == pytest.approx(y, rel=1e-4)
    assert sum(e["tokens"] for e in recorders[0].named("step")) == sum(len(e.ids) for e in trainer.train)
    for n in made[0]:
        torch.testing.assert_close(made[0][n], made[1][n], rtol=1e-3, atol=2e-5)


def test_the_losses_fall_and_the_base_stays(make_trainer: MakeTrainer, base: Path, tmp_path: Path) -> None:
    data = write_export(tmp_path / "data", [record(n, 3 + n % 2) for n in range(4)], [record(9, 3)])
    recorder = Recorder()
    trainer = make_trainer(
        recorder,
        data=data,
        batch=4,
        epochs=25,
        lr_adapter=2e-2,
        lr_head=5e-2,
        targets=["q_proj", "v_proj"],
        gradient_checkpointing=True,
    )
    rows = trainer.network.rows[0].detach().clone()
    trainer.run()
    losses = steps(recorder)
    assert losses[-1][0] < losses[0][0] - 0.5
    assert losses[-1][1] < 0.5 * losses[0][1]
    assert ((trainer.network.rows[0] - rows).abs().amax(dim=1) > 0.01).all()
    assert torch.equal(embeddings(trainer.network.model)[0][:49152], embeddings(load_model(base))[0])
    rates = [e["lr"] for e in recorder.named("step")]
    assert rates[0] == 2e-2 and rates == sorted(rates, reverse=True)


@pytest.mark.parametrize(
    ("which", "options"), [("base", LORA), ("untied_base", LORA), ("base", FULL)], ids=["tied", "untied", "full"]
)
def test_the_merged_model_decides_and_speaks_alike(
    options: dict[str, Any], which: str, make_trainer: MakeTrainer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    trainer = make_trainer(base=request.getfixturevalue(which), **{**options, "dropout": 0.0})
    trainer.run()
    final, out = tmp_path / "out" / "final", tmp_path / "merged"
    card = json.loads((final / "dual_head.json").read_text())
    assert card["width"] == 32 and card["threshold"]["n"] == 4
    head = load_file(final / "head.safetensors")
    assert {n: (t.shape, t.dtype) for n, t in head.items()} == {
        "decision.weight": ((1, 32), torch.float32),
        "decision.bias": ((1,), torch.float32),
    }
    merge(final, out, None)
    network, tokenizer = load(out, final / "head.safetensors")
    assert marker_ids(tokenizer) == card["markers"] == trainer.markers
    assert tokenizer.chat_template == load_tokenizer(request.getfixturevalue(which)).chat_template
    assert network.model.config.tie_word_embeddings == (which == "base")

    example = record(30, 4, extra=3)
    found = describe(network, tokenizer, {**example, "at": 4}, 6)
    assert len(found["p"]) == 7
    assert tokenizer.decode(found["tokens"]) == example["dialogue"]
    ids = torch.tensor([found["tokens"]])
    trainer.network.train(False)
    with torch.no_grad():
        states = trainer.network.states(ids)[0]
        ends = ids[0] == card["markers"][TURN_END]
        expected = torch.sigmoid(trainer.network.decide(states[ends]))
        assert found["p"] == pytest.approx(expected.tolist(), abs=1e-5)
        prefix = found["tokens"][: ends.nonzero()[3].item() + 1] + [card["markers"]["[SPEAK]"]]
        for token, gap in zip(found["greedy"], found["gap"], strict=True):  # no cache here
            best = trainer.network.logits(trainer.network.states(torch.tensor([prefix]))[0, -1:])[0].topk(2)
            assert best.values[0] - best.values[1] == pytest.approx(gap, abs=1e-3)
            if gap > 1e-2:
                assert token == best.indices[0]
            prefix.append(token)


def test_held_out_dialogues_are_measured_at_the_end(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    heldout = [record(n, 3 + n % 3) for n in range(40, 45)]
    data = write_export(tmp_path / "data", [record(n, 3 + n % 4) for n in range(11)], [record(20, 3)], heldout)
    seen = Recorder()
    trainer = make_trainer(seen, data=data, max_steps=2)
    trainer.run()
    (event,) = seen.named("heldout")
    valid = seen.named("eval")[-1]
    assert event["step"] == 2 and event["n"] == 5 and event["threshold"] == valid["threshold"]
    # Against single dialogues, without the trainer's own averages.
    lm = bce = 0.0
    right, decisions, words = [], 0, 0
    for e in trainer.heldout:
        with torch.no_grad():
            states = trainer.network.states(torch.tensor([e.ids]))[0]
            odds = trainer.network.decide(states[torch.tensor(e.ids) == trainer.markers[TURN_END]])
            logits = trainer.network.logits(states[e.speak : -1])
        labels = torch.tensor([0.0] * (len(odds) - 1) + [1.0])
        weight = torch.tensor(trainer.pos_weight)
        bce += torch.nn.functional.binary_cross_entropy_with_logits(
            odds, labels, pos_weight=weight, reduction="sum"
        ).item()
        lm += torch.nn.functional.cross_entropy(logits, torch.tensor(e.ids[e.speak + 1 :]), reduction="sum").item()
        decisions, words = decisions + len(odds), words + len(logits)
        p = torch.sigmoid(odds).tolist()
        if p[-1] >= 0.5 and all(x < 0.5 for x in p[2:-1]):
            right.append(e.id)
    assert event["right"] == right and event["turn_acc"] == len(right) / 5
    assert event["lm"] == pytest.approx(lm / words, rel=1e-5)
    assert event["bce"] == pytest.approx(bce / decisions, rel=1e-5)


def test_merging_refuses_what_it_cannot_merge(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    make_trainer(max_steps=1).run()
    final = tmp_path / "out" / "final"
    with pytest.raises(DualHeadError, match="name its folder with --base"):
        merge(final, tmp_path / "merged", tmp_path / "gone")
    with pytest.raises(DualHeadError, match="exists already"):
        merge(final, final, None)
    with pytest.raises(DualHeadError, match="name the folder final"):
        merge(tmp_path, tmp_path / "merged", None)


def test_a_loss_that_is_no_number_ends_the_training(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(max_steps=1)
    with torch.no_grad():
        trainer.network.decision.weight[0, 0] = float("nan")
    with pytest.raises(DualHeadError, match="step 1 .*--lr-head") as e:
        trainer.run()
    assert e.value.kind == "nan"


def test_real_failures_are_explained() -> None:
    def failure(act: Any) -> DualHeadError:
        with pytest.raises(Exception) as e:
            act()
        return explained(e.value, None)

    no_memory = failure(lambda: torch.empty(1 << 60, dtype=torch.int8))
    assert no_memory.kind == "oom"
    assert all(f in str(no_memory) for f in ("--gradient-checkpointing", "--max-length", "--batch", "--load-in-4bit"))
    assert explained(torch.cuda.OutOfMemoryError("CUDA out of memory. Tried ..."), None).kind == "oom"
    if os.path.exists("/dev/full"):
        assert failure(lambda: Path("/dev/full").write_text("x")).kind == "disk"
        assert failure(lambda: torch.save(torch.zeros(100_000), "/dev/full")).kind == "disk"
    assert explained(OSError(errno.ENOSPC, "No space left on device"), None).kind == "disk"
    assert explained(RuntimeError("something\nelse"), None).kind == "other"


def test_what_cannot_fit_is_refused_before_loading(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1_000_000))
    with pytest.raises(DualHeadError, match=r"need 6\.\d MB|alone need .* GB .*without a GPU.*--load-in-4bit") as e:
        make_trainer()
    assert e.value.kind == "oom"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "prefix"}, "unknown method"),
        ({"dtype": "f16"}, "unknown dtype"),
        ({"method": "full", "load_in_4bit": True}, "adapters only"),
        ({"load_in_4bit": True}, "bitsandbytes"),
        ({"targets": ["c_attn"]}, r"no layers \['c_attn'\]"),
        ({"max_length": 4096}, "beyond the model's context of 512"),
        ({"max_length": 40}, r"record d\d+ has \d+ tokens and at most 40"),
    ],
)
def test_bad_options(options: dict[str, Any], said: str, make_trainer: MakeTrainer) -> None:
    if torch.cuda.is_available() and "bitsandbytes" in said:
        pytest.skip("with a GPU the flag may work")
    with pytest.raises(DualHeadError, match=said):
        make_trainer(**options)


def test_bad_configurations_and_exports(export: Path, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"base": "b", "data": "d", "learning_rate": 1}))
    with pytest.raises(DualHeadError, match=r"unknown keys \['learning_rate'\] and lacks the keys \['out'\]"):
        Config.read(path)
    path.write_text(json.dumps({"base": "b", "data": "d", "out": "o", "lambda": 0.5, "reuse_tokens": None}))
    assert Config.read(path).weight == 0.5
    with pytest.raises(DualHeadError, match="export is not whole|not complete"):
        train_dual_head.check_export(tmp_path)
    copy = write_export(tmp_path / "copy", [record(1, 3)], [])
    train_dual_head.check_export(copy)
    (copy / "train.jsonl").write_text("{}\n")
    with pytest.raises(DualHeadError, match="not the file that export.json describes"):
        train_dual_head.check_export(copy)


def test_the_command_reports_stops_and_resumes(base: Path, export: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "config.json", tmp_path / "out"
    options = {"base": str(base), "data": str(export), "out": str(out), "threads": 1, "lambda": 1}
    options |= {"epochs": 200, "grad_accum": 2}

    def start(**more: Any) -> subprocess.Popen[str]:
        path.write_text(json.dumps(options | more))
        script = Path(train_dual_head.__file__)
        return subprocess.Popen([sys.executable, str(script), "--config", str(path)], stdout=subprocess.PIPE, text=True)

    process = start()
    assert process.stdout is not None
    events = []
    try:
        for line in process.stdout:
            events.append(json.loads(line))  # nothing else is on standard output
            if events[-1]["event"] == "step" and events[-1]["step"] == 2:
                process.send_signal(signal.SIGTERM)
        assert process.wait() == 130
    finally:
        process.kill()
    assert [e["event"] for e in events[-2:]] == ["checkpoint", "interrupted"]
    assert events[0]["event"] == "start" and events[0]["steps"] == 1100 and events[0]["device"] in ("cpu", "cuda:0")
    assert events[-1]["step"] == events[-2]["step"] >= 2

    printed, _ = start(epochs=1).communicate()
    error = json.loads(printed.splitlines()[-1])
    assert error["event"] == "error" and error["kind"] == "data" and "--resume" in error["message"]
