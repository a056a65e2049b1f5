"""Checkpoints out of GGUF files, against the models they were written from and llama.cpp's tokens."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import gguf_checkpoint
import tiny_models

GOLDENS = [
    json.loads(line)
    for line in (Path(__file__).parent / "testdata" / "llamacpp_tokens.jsonl").read_text(encoding="utf-8").splitlines()
]


class Renamed(gguf_checkpoint.File):
    """A GGUF file with other values for some keys."""

    def __init__(self, file: gguf_checkpoint.File, **values: Any) -> None:
        self.__dict__ |= file.__dict__
        self.values = {f"tokenizer.ggml.{k}": v for k, v in values.items()}

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, super().get(key, default))


@pytest.mark.parametrize("name", list(tiny_models.MODELS))
def test_weights_give_the_same_states(name: str, tmp_path: Path) -> None:
    arch, make = tiny_models.MODELS[name]
    model = make(
        {
            "vocab_size": 40,
            "hidden_size": tiny_models.WIDTH,
            "intermediate_size": 2 * tiny_models.WIDTH,
            "num_hidden_layers": tiny_models.BLOCKS,
            "num_attention_heads": tiny_models.HEADS,
            "num_key_value_heads": tiny_models.KV_HEADS,
            "max_position_embeddings": tiny_models.CONTEXT,
        }
    )
    model.set_attn_implementation("eager")
    model.train(False)
    tiny_models.randomise(model, torch.Generator().manual_seed(1))
    no_vocabulary = cast(gguf.GGUFReader, SimpleNamespace(fields={}))
    tiny_models.write_gguf(tmp_path / "tiny.gguf", arch, model, no_vocabulary)

    file = gguf_checkpoint.File(tmp_path / "tiny.gguf")
    config = gguf_checkpoint.configuration(file)
    gguf_checkpoint.write_weights(tmp_path, gguf_checkpoint.weights(file, config))
    config.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(str(tmp_path), attn_implementation="eager")
    ids = torch.arange(40).repeat(2)[None]  # longer than Gemma's window
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model(ids).logits)


def test_large_weights_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_checkpoint, "SHARD_BYTES", 100)
    parameters = {f"p{k}": torch.full((20,), float(k)) for k in range(3)}
    gguf_checkpoint.write_weights(tmp_path, iter(parameters.items()))
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 240
    assert index["weight_map"] == {f"p{k}": f"model-{k + 1:05d}-of-00003.safetensors" for k in range(3)}


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "qwen2", "llama-bpe"])
def test_tokens_are_those_of_llama_cpp(pre: str, smollm2: gguf_checkpoint.File) -> None:
    tokenizer = gguf_checkpoint.tokenizer(Renamed(smollm2, pre=pre))
    for golden in GOLDENS:
        assert tokenizer.encode(golden["text"], add_special_tokens=False).ids == golden[pre], golden["text"]


def test_a_first_token_is_added_where_the_model_wants_one(smollm2: gguf_checkpoint.File) -> None:
    with_first = gguf_checkpoint.tokenizer(Renamed(smollm2, add_bos_token=True))
    assert with_first.encode("a").ids == [1] + with_first.encode("a", add_special_tokens=False).ids


def test_transformers_loads_the_same_tokenizer(tokenizer_folder: Path, tmp_path: Path) -> None:
    loaded = AutoTokenizer.from_pretrained(str(tokenizer_folder))
    for golden in GOLDENS:
        ids = loaded(golden["text"], add_special_tokens=False)["input_ids"]
        assert ids == golden["smollm"], golden["text"]
        assert loaded.decode(ids) == golden["text"]
    assert (loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id) == (1, 2, 2)
    prompt = loaded.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert isinstance(prompt, str) and prompt.endswith("<|im_start|>user\nHi<|im_end|>\n")


def test_tokenize_writes_ids_line_by_line(tokenizer_folder: Path, tmp_path: Path) -> None:
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "ids.jsonl"
    corpus.write_text("".join(json.dumps({"text": g["text"]}) + "\n" for g in GOLDENS), encoding="utf-8")
    gguf_checkpoint.tokenize(tokenizer_folder, corpus, out)
    assert [json.loads(line)["ids"] for line in out.read_text().splitlines()] == [g["smollm"] for g in GOLDENS]
    corpus.write_text('{"words": 1}\n')
    with pytest.raises(gguf_checkpoint.Unsupported, match="line 1"):
        gguf_checkpoint.tokenize(tokenizer_folder, corpus, out)


@pytest.mark.parametrize(
    ("values", "said"),
    [({"pre": "tekken"}, "splits words by 'tekken'"), ({"model": "llama"}, "tokenizer of kind 'llama'")],
)
def test_unknown_tokenizers_are_refused(values: dict[str, str], said: str, smollm2: gguf_checkpoint.File) -> None:
    with pytest.raises(gguf_checkpoint.Unsupported, match=said + ".*Hugging Face folder"):
        gguf_checkpoint.tokenizer(Renamed(smollm2, **values))


def test_bad_files_are_refused(smollm2: gguf_checkpoint.File, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"no model here, only some text that is long enough for a header")
    with pytest.raises(gguf_checkpoint.Unsupported, match="cannot be read as a GGUF file"):
        gguf_checkpoint.File(tmp_path / "bad.gguf")
    with pytest.raises(gguf_checkpoint.Unsupported, match="exists already"):
        gguf_checkpoint.write_checkpoint(smollm2, tmp_path)
    other = Renamed(smollm2)
    other.arch = "mamba"
    with pytest.raises(gguf_checkpoint.Unsupported, match="architecture 'mamba'"):
        gguf_checkpoint.configuration(other)


def test_llama3_scaling_is_recognised() -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = LlamaConfig(hidden_size=128, num_attention_heads=1, max_position_embeddings=131072, rope_parameters=rope)
    plain = 1 / 500000.0 ** (torch.arange(0, 128, 2).double() / 128)
    divisors = (plain / LlamaRotaryEmbedding(config).inv_freq.double()).float().numpy()
    file = cast(gguf_checkpoint.File, SimpleNamespace(path="x.gguf", weight=lambda _name: divisors))
    assert gguf_checkpoint.llama3_rope(file, 500000.0, 128) == rope
    divisors = divisors * 1.01
    with pytest.raises(gguf_checkpoint.Unsupported, match="rotary frequencies"):
        gguf_checkpoint.llama3_rope(file, 500000.0, 128)
