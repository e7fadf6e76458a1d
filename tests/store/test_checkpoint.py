from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_checkpoints import PREFIX, SETTINGS, edit_index, tensors

from blocklab.block.config import BlockConfig
from blocklab.block.weights import weight_shapes
from blocklab.errors import InputError
from blocklab.file_array import FileArray
from blocklab.numerics import decode
from blocklab.store import layer as layer_module
from blocklab.store.agreement import axes_in_settings
from blocklab.store.checkpoint import checkpoint_config, embedding_rows, has_embedding, load_weights, parameter_table
from blocklab.store.safetensors_file import open_safetensors
from blocklab.store.synth_checkpoint import write_checkpoint
from blocklab.store.writing import source

Make = Callable[..., Path]
SHAPES = weight_shapes(BlockConfig.from_dict(SETTINGS))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_float_checkpoints(make: Make, dtype: str, shards: int) -> None:
    weights = load_weights(make(dtype, shards))
    expected = tensors(dtype)
    assert weights.named().keys() == SHAPES.keys()
    for name, weight in weights.named().items():
        assert weight.format == dtype
        assert weight.shape == SHAPES[name]
        assert weight.scale is None
        np.testing.assert_array_equal(weight.values(), decode(expected[PREFIX + name].make(), dtype))


@pytest.mark.parametrize("shards", [1, 3])
def test_fp8_with_short_last_blocks(make: Make, shards: int) -> None:
    weights = load_weights(make("fp8", shards))
    expected = tensors("fp8")
    assert weights.input_layernorm.format == "bfloat16"
    for name, weight in weights.named().items():
        if not name.endswith("layernorm.weight"):
            assert weight.format == "e4m3fn"
            assert weight.block == (16, 16)
            n, k = SHAPES[name]
            scale = expected[PREFIX + name + "_scale_inv"].make()
            assert scale.shape == (-(-n // 16), -(-k // 16))
            spread = np.repeat(np.repeat(scale, 16, 0)[:n], 16, 1)[:, :k]
            np.testing.assert_array_equal(weight.values(), decode(expected[PREFIX + name].make(), "e4m3fn") * spread)
            np.testing.assert_array_equal(weight.values(slice(15, 18)), weight.values()[15:18])
    # 18 rows of kv_a_proj_with_mqa: the last two have the second row of scales to themselves
    kv = weights.self_attn.kv_a_proj_with_mqa
    assert kv.shape == (18, 24)
    assert kv.scale is not None
    assert kv.scale.shape == (2, 2)


@pytest.mark.parametrize(
    "prefix",
    ["model.layers.0.", "language_model.model.layers.0.", "model.language_model.layers.0.", "layers.0.", "x.layers.0."],
)
def test_any_prefix(make: Make, prefix: str) -> None:
    folder = make("fp8", 2, prefix)
    np.testing.assert_array_equal(load_weights(folder).mlp.up_proj.raw, tensors()[PREFIX + "mlp.up_proj.weight"].make())
    assert embedding_rows(folder, [3]).shape == (1, 24)


def test_vision_tower_beside_the_language_model(make: Make) -> None:
    other = {"vision_tower.layers.0.mlp.gate_proj.weight": source("F32", np.zeros((2, 2), np.float32))}
    assert load_weights(make(change=lambda t: t.update(other))).mlp.gate_proj.shape == (40, 24)


def test_another_dense_layer(make: Make) -> None:
    assert load_weights(make(prefix="model.layers.1."), layer=1).mlp.gate_proj.shape == (40, 24)


def test_uncompressed_queries(make: Make, tmp_path: Path) -> None:
    settings = SETTINGS | {"q_lora_rank": None}
    write_checkpoint(tmp_path / "v2", settings, tensors("fp8", settings=settings))
    weights = load_weights(tmp_path / "v2")
    assert weights.self_attn.q_a_proj is None
    assert weights.self_attn.q_b_proj.shape == (3 * 14, 24)


def test_weight_scale_is_the_same_multiplier(make: Make) -> None:
    def rename(t: dict) -> None:
        for name in [n for n in t if n.endswith("_scale_inv")]:
            t[name.removesuffix("_inv")] = t.pop(name)

    name = PREFIX + "mlp.down_proj.weight_scale_inv"
    np.testing.assert_array_equal(load_weights(make(change=rename)).mlp.down_proj.scale, tensors()[name].make())


def test_bfloat16_scales(make: Make) -> None:
    name = PREFIX + "mlp.down_proj.weight_scale_inv"
    codes = np.full((2, 3), 0x3E20, np.uint16)
    scale = load_weights(make(change=lambda t: t.update({name: source("BF16", codes)}))).mlp.down_proj.scale
    assert scale is not None
    assert scale.dtype == np.float32
    np.testing.assert_array_equal(scale, np.full((2, 3), 0.15625))


def test_stored_rotary_buffer_is_junk(make: Make) -> None:
    junk = {PREFIX + "self_attn.rotary_emb.inv_freq": source("BF16", np.full(56, 0x7FC0, np.uint16))}
    folder = make(change=lambda t: t.update(junk))
    assert load_weights(folder).named().keys() == SHAPES.keys()
    assert {row.name for row in parameter_table(folder)} == SHAPES.keys()


def test_values_stay_in_the_file(make: Make) -> None:
    folder = make()
    weight = load_weights(folder).mlp.gate_proj
    assert isinstance(weight.raw, FileArray)
    whole = np.asarray(weight.raw)
    for rows, columns in ((slice(3, 20), slice(None)), (slice(3, 20), slice(5, 9)), (slice(39, 99), slice(0, 1))):
        np.testing.assert_array_equal(weight.raw[rows, columns], whole[rows, columns])
    np.testing.assert_array_equal(weight.raw[-1], whole[-1])
    np.testing.assert_array_equal(weight.raw[::2], whole[::2])
    assert not weight.raw[3:5].flags.writeable


@pytest.mark.parametrize("use", ["values", "read again", "another row"])
def test_a_file_that_is_cut_short_while_it_is_open(make: Make, use: str) -> None:
    folder = make()
    weight = load_weights(folder).mlp.down_proj
    weight.values(slice(0, 8), slice(0, 8))
    os.truncate(folder / "model.safetensors", 4000)
    with pytest.raises(InputError, match=r"model\.safetensors: tensor \S*down_proj.* cut short after it was opened"):
        {"values": weight.values, "read again": lambda: np.asarray(weight.raw), "another row": lambda: weight.raw[23]}[
            use
        ]()


def test_one_file(make: Make) -> None:
    assert load_weights(make() / "model.safetensors").mlp.gate_proj.shape == (40, 24)


def test_a_dump_beside_the_checkpoint_is_left_alone(make: Make) -> None:
    folder = make()
    (folder / "dump.safetensors").write_bytes(b"broken")
    assert load_weights(folder).mlp.gate_proj.shape == (40, 24)


def test_only_the_shards_of_the_layer_are_needed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def more(t: dict) -> None:
        for number in range(1, 4):
            t[f"model.layers.{number}.mlp.gate.weight"] = source("F32", np.zeros((50, 1000), np.float32))

    folder = make("fp8", 4, change=more)
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    needed = {file for name, file in index.items() if name.startswith(PREFIX)}
    others = sorted(set(index.values()) - needed)
    assert len(others) == 3
    (folder / others[0]).unlink()
    (folder / others[1]).write_bytes((folder / others[1]).read_bytes()[:7])
    opened = []

    def spy(path: Path) -> object:
        opened.append(path.name)
        return open_safetensors(path)

    monkeypatch.setattr(layer_module, "open_safetensors", spy)
    assert load_weights(folder).mlp.gate_proj.shape == (40, 24)
    assert set(opened) == needed


def test_numbered_shards_without_index(make: Make) -> None:
    folder = make(shards=3)
    (folder / "model.safetensors.index.json").unlink()
    assert load_weights(folder).named().keys() == SHAPES.keys()


def test_parameter_table(make: Make) -> None:
    folder = make(shards=2)
    rows = {row.name: row for row in parameter_table(folder)}
    assert list(rows) == list(SHAPES)
    gate, norm = rows["mlp.gate_proj.weight"], rows["input_layernorm.weight"]
    assert (gate.shape, gate.dtype, gate.parameters, gate.bytes) == ((40, 24), "e4m3fn", 960, 960)
    assert (norm.shape, norm.dtype, norm.parameters, norm.bytes) == ((24,), "bfloat16", 24, 48)


def test_embedding_rows(make: Make) -> None:
    folder = make("fp8", 2)
    table = decode(tensors()["model.embed_tokens.weight"].make(), "bfloat16")
    rows = embedding_rows(folder, np.array([[0, 29], [5, 5]]))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, table[[[0, 29], [5, 5]]])


def test_config_and_embedding_of_a_checkpoint(make: Make) -> None:
    folder = make()
    assert checkpoint_config(folder) == checkpoint_config(folder / "model.safetensors") == load_weights(folder).config
    assert has_embedding(folder)
    shutil.rmtree(folder)
    assert not has_embedding(make(change=lambda t: t.pop("model.embed_tokens.weight")))


def test_axes_in_messages_are_those_of_the_block() -> None:
    assert len({SETTINGS[n] for n in ("hidden_size", "q_lora_rank", "kv_lora_rank", "intermediate_size")}) == 4
    for settings in (SETTINGS, SETTINGS | {"q_lora_rank": None}):
        config = BlockConfig.from_dict(settings)
        for name, shape in weight_shapes(config).items():
            assert tuple(eval(axis, vars(config).copy()) for axis in axes_in_settings(config)[name]) == shape


def test_index_edit_helper_is_seen(make: Make) -> None:
    folder = make(shards=2)
    edit_index(folder, lambda index: index.clear())
    with pytest.raises(InputError, match="weight_map"):
        load_weights(folder)
