"""Markers, sequences, masks and losses, against what is computed by hand."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import REUSE, record
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from dual_head import (
    MARKERS,
    DualHead,
    DualHeadError,
    add_markers,
    as_text,
    best_threshold,
    collate,
    encode,
    first_speak,
    fit_vocabulary,
    load_model,
    load_tokenizer,
    marker_ids,
    start_markers,
    turn_accuracy,
)


@pytest.fixture(scope="module", params=["new", "reused"])
def tokenizer(request: pytest.FixtureRequest, tokenizer_folder: Path) -> PreTrainedTokenizerFast:
    return add_markers(load_tokenizer(tokenizer_folder), REUSE if request.param == "reused" else None)


def test_markers_are_single_tokens(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    ids = marker_ids(tokenizer)
    assert sorted(ids.values()) in ([5, 7, 8], [49152, 49153, 49154])
    text = "Turn 1 (Ana): 1<TURN_END>\nx<TURN_END>[SPEAK] yes [/SPEAK]"
    tokenizer.save_pretrained(tmp_path)
    for t in (tokenizer, AutoTokenizer.from_pretrained(str(tmp_path))):
        found = t(text, add_special_tokens=False)["input_ids"]
        assert [i for i in found if i in ids.values()] == [ids[m] for m in (MARKERS[0], MARKERS[0], *MARKERS[1:])]
        # A server prints them, so that generation can stop at their text.
        assert t.decode(found, skip_special_tokens=True) == text
        for m, i in ids.items():
            assert t.added_tokens_decoder[i].content == m
            assert not t.added_tokens_decoder[i].special
        plain = "no marker: [SPEAKING] <TURN> 12"
        assert t(plain, add_special_tokens=False)["input_ids"] == load(tmp_path, plain)


def load(_folder: Path, text: str) -> list[int]:
    """Tokens of a text without markers by the saved tokenizer's own rules, its added tokens left out."""
    from tokenizers import Tokenizer

    bare = Tokenizer.from_file(str(_folder / "tokenizer.json"))
    return [
        bare.model.token_to_id(piece.value)
        for word, _ in bare.pre_tokenizer.pre_tokenize_str(text)
        for piece in bare.model.tokenize(word)
    ]


def test_control_tokens_in_a_record_are_text(tokenizer: PreTrainedTokenizerFast) -> None:
    # llama.cpp gives the same in infer/llamacpp/controls_test.go.
    text = "Turn 1 (Ana): hot?<|im_end|>\n<|im_start|>assistant\nyes <|endoftext|>"
    want = [24202, 216, 33, 365, 2089, 81, 727, 3380, 15137, 108, 306, 79, 486, 108, 46, 198, 44, 108, 306, 79]
    want += [3738, 108, 46, 520, 9531, 198, 10407, 2067, 108, 486, 1714, 2692, 108, 46]
    markers = marker_ids(tokenizer)
    assert as_text(tokenizer, text + "<TURN_END>") == [*want, markers["<TURN_END>"]]
    r = record(1, 3)
    r["text"] = r["text"].replace("listen", "<|im_end|>listen")
    ids = encode(tokenizer, r, markers, 512).ids
    assert ids.count(2) == 1 and ids[-1] == 2  # the one that ends the text


def test_reused_tokens_lose_their_name(tokenizer_folder: Path) -> None:
    t = add_markers(load_tokenizer(tokenizer_folder), REUSE)
    assert len(t) == 49152
    assert len(t("<file_sep>", add_special_tokens=False)["input_ids"]) > 1
    assert t.convert_ids_to_tokens(5) == "<TURN_END>"


@pytest.mark.parametrize(
    ("reuse", "said"),
    [
        ({**REUSE, "[SPEAK]": "<nothing>"}, "<nothing> is not a token"),
        ({**REUSE, "[SPEAK]": "<|im_end|>"}, "begins, ends or fills"),
        ({**REUSE, "[SPEAK]": "he"}, "ordinary text"),
        ({**REUSE, "[SPEAK]": "<file_sep>"}, "three different ones"),
    ],
)
def test_tokens_that_cannot_be_reused(reuse: dict[str, str], said: str, tokenizer_folder: Path) -> None:
    with pytest.raises(DualHeadError, match=said):
        add_markers(load_tokenizer(tokenizer_folder), reuse)


def test_the_loss_is_on_the_span_and_the_decisions_only(tokenizer: PreTrainedTokenizerFast) -> None:
    markers = marker_ids(tokenizer)
    records = [record(1, 3), record(2, 6)]
    examples = [encode(tokenizer, r, markers, 512) for r in records]
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == 2  # padding must not pass for an end
    batch = collate(examples, 2)
    assert batch.mask.sum().item() == sum(len(e.ids) for e in examples) < batch.ids.numel()
    flat = batch.ids.flatten()
    assert torch.equal(flat[batch.at_span + 1], batch.targets)
    assert (flat[batch.at_turn_end] == markers["<TURN_END>"]).all()
    assert batch.labels.tolist() == records[0]["labels"] + records[1]["labels"]
    wanted: list[int] = []
    for r in records:
        span = tokenizer(f" {r['utterance']} ", add_special_tokens=False)["input_ids"]
        wanted += [*span, markers["[/SPEAK]"], 2]
    assert batch.targets.tolist() == wanted
    at_speak = [k for k, t in enumerate(flat.tolist()) if t == markers["[SPEAK]"]]
    assert set(at_speak) <= set(batch.at_span.tolist())
    assert not set(at_speak) & {k + 1 for k in batch.at_span.tolist()}  # [SPEAK] is given, not learned


def test_turns_after_the_mediation_are_decisions_and_not_words(tokenizer: PreTrainedTokenizerFast) -> None:
    markers = marker_ids(tokenizer)
    plain = record(1, 3)
    later = plain | {
        "text": plain["text"] + "\nTurn 4 (Ken): so be it.<TURN_END>\nTurn 5 (Ana): yes.<TURN_END>",
        "labels": [0, 0, 1, 0, 0],
    }
    a, b = encode(tokenizer, plain, markers, 512), encode(tokenizer, later, markers, 512)
    assert b.gold == a.gold == 3 and len(b.turn_ends) == 5 and b.turn_ends[:3] == a.turn_ends
    batch = collate([b], 2)
    assert batch.labels.tolist() == [0, 0, 1, 0, 0]
    span = tokenizer(f" {plain['utterance']} ", add_special_tokens=False)["input_ids"]
    assert batch.targets.tolist() == [*span, markers["[/SPEAK]"]]  # no end of text: turns follow
    assert b.targets == len(span) + 1 and a.targets == len(span) + 2
    for bad in (plain["labels"], [0, 0, 1, 1, 0], [0, 0, 0, 1, 0]):
        with pytest.raises(DualHeadError, match="export it again"):
            encode(tokenizer, later | {"labels": bad}, markers, 512)


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"labels": [0, 1]}, "data", "record d1 has 3 <TURN_END> and the labels"),
        ({"labels": [1, 0, 1]}, "data", "record d1"),
        ({"text": "Turn 1 (Ana): a.<TURN_END>", "labels": [1]}, "data", r"record d1 has no \[SPEAK\]"),
        ({"text": record(1, 3)["text"] + " more"}, "data", "record d1 ends with more"),
        ({"text": record(1, 3)["text"].replace("listen", "[/SPEAK]")}, "data", r"record d1 has no \[SPEAK\]"),
        ({"text": "word " * 600 + record(1, 3)["text"]}, "too_long", r"record d1 has \d+ tokens and at most 512"),
        ({"text": None}, "data", "record d1 has no text"),
    ],
)
def test_bad_records(
    change: dict[str, Any], kind: str, said: str, tokenizer: PreTrainedTokenizerFast, tokenizer_folder: Path
) -> None:
    with pytest.raises(DualHeadError, match=said) as e:
        encode(tokenizer, {**record(1, 3), **change}, marker_ids(tokenizer), 512)
    assert e.value.kind == kind


def network(folder: Path, rows: bool) -> tuple[DualHead, PreTrainedTokenizerFast]:
    tokenizer = add_markers(load_tokenizer(folder), None)
    markers = marker_ids(tokenizer)
    model = load_model(folder, dtype=torch.float32)
    fit_vocabulary(model, markers)
    start_markers(model, tokenizer, markers, 1)
    made = DualHead(model, markers, rows)
    torch.manual_seed(4)
    torch.nn.init.normal_(made.decision.weight)
    torch.nn.init.normal_(made.decision.bias)
    return made.train(False), tokenizer


@pytest.mark.parametrize("which", ["base", "untied_base"])
@pytest.mark.parametrize("rows", [False, True])
def test_losses_equal_a_hand_computed_batch(which: str, rows: bool, request: pytest.FixtureRequest) -> None:
    net, tokenizer = network(request.getfixturevalue(which), rows)
    markers = marker_ids(tokenizer)
    records = [record(1, 3), record(2, 6), record(3, 4)]
    examples = [encode(tokenizer, r, markers, 512) for r in records]
    pos_weight = 3.5

    lm_by_hand = bce_by_hand = 0.0
    w, b = net.decision.weight[0].double(), net.decision.bias.double()
    with torch.no_grad():
        for e, r in zip(examples, records, strict=True):
            out = net.model(torch.tensor([e.ids]), output_hidden_states=True)  # one by one: no padding
            log_p = out.logits[0].double().log_softmax(-1)
            for k in range(e.ids.index(markers["[SPEAK]"]) + 1, len(e.ids)):
                lm_by_hand -= log_p[k - 1, e.ids[k]].item()
            states = out.hidden_states[-1][0].double()
            at = [k for k, t in enumerate(e.ids) if t == markers["<TURN_END>"]]
            for turn, k in enumerate(at, 1):
                p = 1 / (1 + math.exp(-(states[k] @ w + b).item()))
                bce_by_hand -= pos_weight * math.log(p) if turn == r["gold"] else math.log(1 - p)
        lm, bce, odds = net(collate(examples, 2), pos_weight)
        other_pad = net(collate(examples, 7), pos_weight)
    assert lm.item() == pytest.approx(lm_by_hand, rel=1e-5)
    assert bce.item() == pytest.approx(bce_by_hand, rel=1e-5)
    assert len(odds) == sum(r["gold"] for r in records)
    assert torch.equal(lm, other_pad[0]) and torch.equal(odds, other_pad[2])  # nothing rests on padding


def test_the_head_on_plain_states_decides_alike(base: Path) -> None:
    net, _ = network(base, rows=False)
    states = 20 + torch.randn(50, 32) * torch.linspace(0.1, 3, 32)
    net.standardise(states)
    z = (states - states.mean(dim=0)) / states.std(dim=0)
    odds = net.decide(states)
    torch.testing.assert_close(odds, net.decision(z).squeeze(-1))
    head = net.head()
    torch.testing.assert_close(odds, states @ head["decision.weight"][0] + head["decision.bias"], rtol=1e-3, atol=1e-3)


def test_only_the_markers_rows_move(base: Path) -> None:
    net, tokenizer = network(base, rows=True)
    net.model.requires_grad_(False)
    batch = collate([encode(tokenizer, record(1, 3), marker_ids(tokenizer), 512)], 2)
    lm, bce, _ = net(batch, 1.0)
    (lm + bce).backward()
    assert len(net.rows) == 1  # input and output embedding stay one
    gradient = net.rows[0].grad
    assert gradient is not None and (gradient.abs().sum(dim=1) > 0).all()  # all three learn
    assert all(p.grad is None for p in net.model.parameters())


def test_gemma_caps_its_logits(base: Path) -> None:
    net, _ = network(base, rows=False)
    states = torch.randn(4, 32)
    plain = net.logits(states)
    net.model.config.final_logit_softcapping = 2.0
    assert torch.allclose(net.logits(states), 2 * torch.tanh(plain / 2))


P = [[0.9, 0.9, 0.2, 0.6], [0.1, 0.1, 0.4], [0.0, 0.0, 0.45, 0.7]]


def test_the_first_turn_at_the_threshold_counts() -> None:
    assert [first_speak(p, 0.5) for p in P] == [4, None, 4]
    assert [first_speak(p, 0.4) for p in P] == [4, 3, 3]
    assert turn_accuracy(P, 0.5) == pytest.approx(2 / 3)
    assert turn_accuracy(P, 0.4) == pytest.approx(2 / 3)
    assert turn_accuracy([[0.1, 0.99]], 0.5) == 0.0  # before the first turn that may be chosen


def test_the_best_threshold_is_the_nearest_to_a_half() -> None:
    assert best_threshold(P) == (0.5, 2 / 3)
    threshold, accuracy = best_threshold([[0.0, 0.0, 0.2, 0.3], [0.0, 0.0, 0.1, 0.28], [0.0, 0.0, 0.27]])
    assert accuracy == 1.0 and 0.2 < threshold < 0.27
