"""Each way in which a checkpoint can be wrong gives one line that names what was expected and what was found."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_checkpoints import PREFIX, SETTINGS, edit_index, tensors

from blocklab.errors import InputError
from blocklab.store.checkpoint import embedding_rows, load_weights, parameter_table
from blocklab.store.synth_checkpoint import write_checkpoint
from blocklab.store.writing import Source, source, write_safetensors

Make = Callable[..., Path]
Content = dict[str, Source]
GATE = PREFIX + "mlp.gate_proj.weight"
KV_A = PREFIX + "self_attn.kv_a_proj_with_mqa.weight"
NORM = PREFIX + "input_layernorm.weight"


def message(folder: Path, layer: Any = 0) -> str:
    with pytest.raises(InputError) as caught:
        load_weights(folder, layer)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 600
    return text


def put(name: str, dtype: str, array: np.ndarray) -> Callable[[Content], None]:
    return lambda t: t.update({name: source(dtype, array)})


def patch(name: str, index: Any, value: Any) -> Callable[[Content], None]:
    """Change one stored number, or raw code."""

    def change(t: Content) -> None:
        array = t[name].make().copy()
        array[index] = value
        t[name] = source(t[name].dtype, array)

    return change


def transpose(*names: str) -> Callable[[Content], None]:
    return lambda t: t.update({n: source(t[n].dtype, t[n].make().T) for n in names})


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


# kind of damage -> (edit of the tensors, words of the message in their order)
TENSORS: dict[str, tuple[Callable[[Content], Any], tuple[str, ...]]] = {
    "tensor missing": (lambda t: t.pop(GATE), ("checkpoint: tensor", GATE, "is missing")),
    "tensor misspelt": (
        lambda t: t.update({PREFIX + "self_attn.o_project.weight": t.pop(PREFIX + "self_attn.o_proj.weight")}),
        ("self_attn.o_proj.weight is missing; closest: self_attn.o_project.weight",),
    ),
    "bias": (
        put(PREFIX + "self_attn.q_a_proj.bias", "F32", ones(20)),
        ("model.safetensors", "q_a_proj.bias", "unexpected", "no biases"),
    ),
    "foreign tensor": (put(PREFIX + "mlp.extra.weight", "F32", ones(2)), ("mlp.extra.weight", "unexpected")),
    "input scale": (put(PREFIX + "mlp.gate_proj.input_scale", "F32", ones(1)), ("gate_proj.input_scale", "unexpected")),
    "q_proj beside q_a_proj": (
        put(PREFIX + "self_attn.q_proj.weight", "F32", ones(42, 24)),
        ("self_attn.q_proj.weight", "does not belong", "q_lora_rank 20"),
    ),
    "transposed weight": (transpose(GATE), ("model.safetensors", GATE, "transposed", "[40, 24]", "[24, 40]")),
    "one weight of another shape": (
        put(GATE, "BF16", np.ones((39, 24), np.uint16)),
        (GATE, "[40, 24] = [intermediate_size, hidden_size]", "found [39, 24]"),
    ),
    "flat weight": (put(GATE, "F32", ones(960)), (GATE, "expected shape [40, 24]", "found [960]")),
    "scale missing": (
        lambda t: t.pop(GATE + "_scale_inv"),
        ("model.safetensors", GATE, "FP8 without scale", "weight_scale_inv [3, 2]", "found none"),
    ),
    "all scales missing": (
        lambda t: [t.pop(name) for name in list(t) if name.endswith("_scale_inv")],
        ("q_a_proj.weight", "FP8 without scale", "weight_scale_inv [2, 2]", "found none (nor for 7 other weights)"),
    ),
    "last scale row lost": (
        put(KV_A + "_scale_inv", "F32", ones(1, 2)),
        (KV_A + "_scale_inv", "expected shape [2, 2]", "[18, 24] in blocks of [16, 16]", "found [1, 2]"),
    ),
    "transposed scales": (
        transpose(GATE + "_scale_inv"),
        (GATE + "_scale_inv", "transposed scales", "expected shape [3, 2]", "found [2, 3]"),
    ),
    "scale of a number": (put(GATE + "_scale_inv", "F32", ones(1)), (GATE, "expected shape [3, 2]", "found [1]")),
    "scale of another dtype": (
        put(GATE + "_scale_inv", "F8_E8M0", np.ones((3, 2), np.uint8)),
        (GATE + "_scale_inv", "expected dtype F32, BF16", "found F8_E8M0"),
    ),
    "both scale spellings": (
        put(GATE + "_scale", "F32", ones(3, 2)),
        (GATE + "_scale", "found beside", "expected one spelling"),
    ),
    "scale on a norm": (
        put(NORM + "_scale_inv", "F32", ones(2)),
        (NORM + "_scale_inv", "expected scales of F8_E4M3 weights only", "found some of a BF16 tensor"),
    ),
    "scale on a bfloat16 weight": (
        put(GATE, "BF16", np.full((40, 24), 0x3F80, np.uint16)),
        (GATE + "_scale_inv", "F8_E4M3 weights only", "found some of a BF16 tensor"),
    ),
    "scale without weight": (
        put(PREFIX + "mlp.extra.weight_scale_inv", "F32", ones(1, 1)),
        ("mlp.extra.weight_scale_inv", "unexpected"),
    ),
    "zero scale": (
        patch(GATE + "_scale_inv", (2, 1), 0),
        ("model.safetensors", GATE + "_scale_inv[2, 1]", "positive finite", "found 0.0"),
    ),
    "negative scale": (patch(GATE + "_scale_inv", (0, 1), -2), (GATE + "_scale_inv[0, 1]", "found -2.0")),
    "infinite scale": (patch(GATE + "_scale_inv", (1, 0), np.inf), (GATE + "_scale_inv[1, 0]", "found inf")),
    "NaN scale": (patch(GATE + "_scale_inv", (1, 1), np.nan), (GATE + "_scale_inv[1, 1]", "found nan")),
    "NaN code 7F": (
        patch(GATE, (39, 23), 0x7F),
        ("model.safetensors", GATE + "[39, 23]", "expected finite values", "code 0x7F"),
    ),
    "NaN code FF": (patch(GATE, (17, 2), 0xFF), (GATE + "[17, 2]", "code 0xFF")),
    "NaN in a norm": (patch(NORM, 7, 0x7FC0), (NORM + "[7]", "finite", "code 0x7FC0")),
    "infinity in a norm": (patch(NORM, 23, 0xFF80), (NORM + "[23]", "finite", "code 0xFF80")),
    "FP8 as bytes": (
        put(GATE, "U8", np.ones((40, 24), np.uint8)),
        (GATE, "expected dtype F8_E4M3, BF16, F16, F32", "found U8", "F8_E4M3"),
    ),
    "e5m2": (put(GATE, "F8_E5M2", np.ones((40, 24), np.uint8)), (GATE, "expected dtype", "found F8_E5M2")),
    "integer norm": (put(NORM, "I64", np.ones(24, np.int64)), (NORM, "expected dtype BF16, F16, F32, F64", "I64")),
    "FP8 norm": (put(NORM, "F8_E4M3", np.ones(24, np.uint8)), (NORM, "expected dtype", "found F8_E4M3")),
    "experts that config.json does not know": (
        put(PREFIX + "mlp.experts.0.gate_proj.weight", "F32", ones(2, 2)),
        ("layer 0 is a mixture of experts", "expected a dense layer", "mlp.experts.0"),
    ),
    "two prefixes": (
        lambda t: t.update(tensors(prefix="language_model.model.layers.0.")),
        ("layer 0 under several prefixes", "language_model.model.layers.0., model.layers.0."),
    ),
}


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("shards", [1, 2])
def test_tensors(make: Make, kind: str, shards: int) -> None:
    change, words = TENSORS[kind]
    text = message(make("fp8", shards, change=change))
    position = 0
    for word in (w if shards == 1 else w.replace("model.safetensors", ".safetensors") for w in words):
        position = text.find(word, position)
        assert position >= 0, (word, text)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("hidden_size", 25), ("intermediate_size", 41), ("q_lora_rank", 21), ("kv_lora_rank", 13)),
        *(("qk_nope_head_dim", 9), ("qk_rope_head_dim", 8), ("v_head_dim", 11)),
    ],
)
def test_setting_that_disagrees_with_the_tensors(make: Make, setting: str, value: int) -> None:
    text = message(make(**{setting: value}))
    assert "model.safetensors: tensor model.layers.0." in text
    assert text.endswith(f"; {setting} {value} of config.json disagrees with the tensors")


def test_number_of_heads_that_disagrees(make: Make) -> None:
    text = message(make(num_attention_heads=4, num_key_value_heads=4))
    assert "q_b_proj.weight: expected shape [56, 20] = [num_attention_heads * (qk_nope" in text
    assert text.endswith("found [42, 20]; num_attention_heads 4 of config.json disagrees with the tensors")


def test_query_rank_null_beside_compressed_queries(make: Make) -> None:
    assert "q_a_proj.weight: does not belong to q_lora_rank null" in message(make(q_lora_rank=None))


def test_fp8_without_block_size(make: Make) -> None:
    text = message(make(quantization_config=None))
    assert "FP8, but config.json has no quantization_config.weight_block_size" in text
    assert "never inferred" in text


def test_no_config(make: Make) -> None:
    folder = make()
    (folder / "config.json").unlink()
    assert "checkpoint: no config.json" in message(folder)
    assert "checkpoint: no config.json" in message(folder / "model.safetensors")


def test_config_that_is_no_json(make: Make) -> None:
    folder = make()
    (folder / "config.json").write_text("{")
    assert "config.json: expected JSON" in message(folder)


@pytest.mark.parametrize("layer", [-1, 4, True, "0", 1.0])
def test_layer_out_of_range(make: Make, layer: Any) -> None:
    assert f"layer {layer!r}: expected 0 to 3: num_hidden_layers is 4" in message(make(), layer)


def test_mixture_of_experts(make: Make) -> None:
    assert "layer 2 is a mixture of experts (MoE): expected a dense layer; dense are: 0, 1" in message(make(), 2)


def test_more_layers_of_experts_than_can_be_counted(make: Make) -> None:
    text = message(make(num_hidden_layers=2**31 - 1, first_k_dense_replace=0, moe_layer_freq=1))
    assert text.endswith("expected a dense layer; dense are: none of this checkpoint")


def test_layer_that_is_not_there(make: Make) -> None:
    text = message(make(), 1)
    assert "no tensors of layer 1: expected model.layers.1.self_attn.kv_a_proj_with_mqa.weight; closest: " in text
    assert "model.layers.0.self_attn.kv_a_proj_with_mqa.weight" in text


def test_missing_shards_are_listed(make: Make) -> None:
    folder = make(shards=4)
    for number in (2, 4):
        (folder / f"model-0000{number}-of-00004.safetensors").unlink()
    expected = "missing shards: model-00002-of-00004.safetensors, model-00004-of-00004.safetensors"
    assert message(folder).endswith(expected)
    (folder / "model.safetensors.index.json").unlink()
    assert message(folder).endswith(expected)


def test_truncated_shard(make: Make) -> None:
    folder = make(shards=2)
    shard = folder / "model-00002-of-00002.safetensors"
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-5])
    assert f"{shard}: truncated: expected {size:,} bytes, found {size - 5:,}" in message(folder)
    with pytest.raises(InputError, match="truncated"):
        parameter_table(folder)


def test_shard_cut_inside_its_header(make: Make) -> None:
    folder = make(shards=2)
    shard = folder / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:30])
    assert f"{shard}: header length" in message(folder)


def test_index_names_a_tensor_that_the_shard_lacks(make: Make) -> None:
    folder = make(shards=2)
    edit_index(folder, lambda index: index.update({GATE + "_x": "model-00001-of-00002.safetensors"}))
    text = message(folder)
    assert "model-00001-of-00002.safetensors: tensor" in text
    assert f"{GATE}_x: the index expects it in this shard; the shard lacks it" in text


def test_index_names_the_wrong_shard(make: Make) -> None:
    folder = make(shards=2)
    edit_index(folder, lambda index: index.update({NORM: "model-00002-of-00002.safetensors"}))
    text = message(folder)
    assert f"model-00002-of-00002.safetensors: tensor {NORM}: the index expects it in this shard" in text
    assert "found it in model-00001-of-00002.safetensors" in text


def test_shard_holds_a_tensor_that_the_index_does_not_name(make: Make) -> None:
    folder = make(shards=2)
    edit_index(folder, lambda index: index.pop(NORM))
    assert f"tensor {NORM} is in the shard, but the index does not name it" in message(folder)


@pytest.mark.parametrize("indexed", [True, False])
def test_tensor_in_two_files(make: Make, indexed: bool) -> None:
    folder = make(shards=2)
    if not indexed:
        (folder / "model.safetensors.index.json").unlink()
    write_safetensors(folder / "model.safetensors", {NORM: tensors()[NORM]})
    assert f"{NORM} is in two files: model-00001-of-00002.safetensors and model.safetensors" in message(folder)


@pytest.mark.parametrize("target", ["../model.safetensors", "model.bin", 3, "", "a/b.safetensors"])
def test_index_that_points_elsewhere(make: Make, target: Any) -> None:
    folder = make(shards=2)
    edit_index(folder, lambda index: index.update({NORM: target}))
    assert f"index.json: tensor {NORM}: expected the name of a safetensors file in the same folder" in message(folder)


@pytest.mark.parametrize("content", ["", "[]", '{"weight_map": []}', '{"weight_map": {}}', "\x00"])
def test_index_that_is_none(make: Make, content: str) -> None:
    folder = make(shards=2)
    (folder / "model.safetensors.index.json").write_text(content)
    assert "model.safetensors.index.json: expected" in message(folder)


@pytest.mark.parametrize("name", [NORM, "weight_map"])
def test_index_that_says_something_twice(make: Make, name: str) -> None:
    index = make(shards=2) / "model.safetensors.index.json"
    index.write_text(index.read_text().replace(f'"{name}":', f'"{name}": {{}}, "{name}":'))
    assert f"model.safetensors.index.json: duplicate key {name}" in message(index.parent)


def test_index_that_may_never_end(make: Make) -> None:
    index = make(shards=2) / "model.safetensors.index.json"
    index.unlink()
    os.mkfifo(index)
    assert f"{index}: expected a file, found something else" in message(index.parent)


def test_two_indices(make: Make) -> None:
    folder = make(shards=2)
    shutil.copy(folder / "model.safetensors.index.json", folder / "other.safetensors.index.json")
    assert "expected one index, found model.safetensors.index.json, other" in message(folder)


def test_shards_of_two_checkpoints(make: Make) -> None:
    folder = make(shards=2)
    (folder / "model.safetensors.index.json").unlink()
    shutil.copy(folder / "model-00001-of-00002.safetensors", folder / "model-00001-of-00003.safetensors")
    assert "shards of several checkpoints: model-*-of-00002, model-*-of-00003" in message(folder)


def test_folders_without_safetensors(tmp_path: Path) -> None:
    assert "no such file or folder" in message(tmp_path / "absent")
    assert "no safetensors file" in message(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    assert "found pytorch_model.bin: pickles are never read" in message(tmp_path)
    assert "pickles are never read" in message(tmp_path / "pytorch_model.bin")


def test_deepseek_names_are_told_apart(tmp_path: Path) -> None:
    names = ("layers.0.attn.wq_a.weight", "layers.0.attn_norm.weight")
    content = {name: source("F32", ones(2, 2)) for name in names}
    write_checkpoint(tmp_path / "ds", SETTINGS, content)
    assert "no tensors of layer 0: expected model.layers.0.self_attn.kv_a_proj_with_mqa" in message(tmp_path / "ds")


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([0, 30], "embed_tokens.weight: token id out of range: expected 0 to 29, found 30"),
        ([-1], "expected 0 to 29, found -1"),
        ([2**80], "token ids: expected integers"),
        ([1.5], "token ids: expected integers, found dtype float64"),
        ([True], "token ids: expected integers, found dtype bool"),
        (["a"], "token ids: expected integers"),
        ([[1], [1, 2]], "token ids: expected integers"),
        ([], "token ids: expected integers, found none"),
    ],
)
def test_token_ids(make: Make, ids: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        embedding_rows(make(), ids)


EMBEDDING = "model.embed_tokens.weight"
EMBEDDINGS: dict[str, tuple[Callable[[Content], Any], str]] = {
    "missing": (lambda t: t.pop(EMBEDDING), "expected one embed_tokens.weight for token ids, found none"),
    "two": (put("x.embed_tokens.weight", "F32", ones(30, 24)), "found model.embed_tokens.weight, x.embed_tokens"),
    "width": (put(EMBEDDING, "F32", ones(30, 23)), r"expected shape \[30, 24\] = \[vocab_size, hidden_size\].*30, 23"),
    "rows": (put(EMBEDDING, "F32", ones(29, 24)), r"expected shape \[30, 24\].*found \[29, 24\]"),
    "bytes": (put(EMBEDDING, "U8", np.ones((30, 24), np.uint8)), "expected dtype BF16, F16, F32, found U8"),
    "NaN": (patch(EMBEDDING, (3, 5), 0x7FC0), "row of token 3: expected finite values, found nan"),
}


@pytest.mark.parametrize("kind", EMBEDDINGS)
def test_embedding(make: Make, kind: str) -> None:
    change, words = EMBEDDINGS[kind]
    with pytest.raises(InputError, match=words):
        embedding_rows(make(change=change), [1, 3])


def test_embedding_in_a_missing_shard(make: Make) -> None:
    folder = make(shards=2)
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    (folder / index[EMBEDDING]).unlink()
    with pytest.raises(InputError, match=f"missing shards: {index[EMBEDDING]}"):
        embedding_rows(folder, [1])


@pytest.mark.parametrize(
    "content",
    [b"", b"\x10\0\0\0\0\0\0\0{", b"\x08\0\0\0\0\0\0\0{'a': 1}"],
    ids=["empty", "cut", "damaged"],
)
def test_the_fault_of_a_header_is_told_and_not_that_tensors_are_missing(tmp_path, content):
    (tmp_path / "config.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError) as told:
        load_weights(tmp_path)
    assert str(told.value).startswith(f"{tmp_path}/model.safetensors: ")
    assert "no tensors of layer" not in str(told.value)
