"""Synthetic weights that are worth looking at: noise shaped as in a trained model, and the circuits of `circuits`.

Every value is a function of the seed and the tensor's name, and is made as `noise` says, so that it is the same on
every machine and with every numpy. Shaped as in a trained model means:

- the embedding has one loud channel, 32 times the others' root mean square, the same for every token;
- norm gains are log-normal, and 1/4 for the loud channel;
- blocks of weights that share an FP8 scale differ by powers of two (1/2, 1, 2), so that lost or transposed
  scales show; one block of `up_proj` is zero;
- a few neurons of the MLP have loud inputs and quiet outputs: outlier channels of `act`;
- attention and MLP add about as much as the residual stream holds, or somewhat less.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.block.weights import BlockWeights, weight_shapes
from blocklab.errors import InputError
from blocklab.numerics import encode, quantize
from blocklab.numerics.weight import Weight
from blocklab.synth import circuits
from blocklab.synth.noise import log_normal, noise

BLOCK = (128, 128)
"""Rows and columns that share one scale where the config names none."""

_AMAX_FLOOR = 1e-10  # below every block's amax: only a block of zeros meets it

_GAINS = {
    "self_attn.q_b_proj.weight": 0.75,
    "self_attn.q_proj.weight": 0.75,
    "self_attn.o_proj.weight": circuits.RESIDUAL / 2,
    "mlp.down_proj.weight": circuits.RESIDUAL,
}
"""Output over input root mean square of a matrix of noise, where it is not 1."""

_ROTARY_KEY_GAIN = 1 / 16
"""The rotary key is mostly constant: what tokens add to it stays well below KAPPA."""

_OUTLIER = 4.0
"""Factor on gate and up of an outlier neuron; its column of W_down makes up for both."""


@dataclass(frozen=True)
class SyntheticTensor:
    """A tensor as a checkpoint stores it: nothing is computed before `make` is called.

    name   relative to the layer
    dtype  as safetensors spells it: F8_E4M3 (made as uint8 codes), BF16 (uint16 codes), F32
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    make: Callable[[], np.ndarray]


def synthetic_weights(config: BlockConfig, seed: int = 0, dtype: str = "fp8") -> BlockWeights:
    """Return all weights of a dense block, made from a seed.

    dtype  "fp8": matrices are e4m3fn in blocks, with float32 scales; "bfloat16": the same matrices unquantised.
           Norm gains are bfloat16.
    Full-size Kimi K2 takes 475 MiB. Heads 0-2 and neuron 0 are built by hand (see `circuits`) where the config is
    large enough, and noise where it is not.
    Errors: InputError for another dtype and for a seed that is no non-negative integer.
    """
    _check(seed, dtype)
    return BlockWeights.from_mapping(
        config, {name: synthetic_weight(config, name, seed, dtype) for name in weight_shapes(config)}
    )


def synthetic_weight(config: BlockConfig, name: str, seed: int = 0, dtype: str = "fp8") -> Weight:
    """Return one weight by its name in `weight_shapes(config)`; the others need not be made."""
    _check(seed, dtype)
    shapes = weight_shapes(config)
    if name not in shapes:
        raise InputError(f"no weight {name!r}; the block has {', '.join(shapes)}")
    if len(shapes[name]) == 1:
        return Weight(encode(_norm_gain(config, name, seed), "bfloat16"), "bfloat16")
    if dtype == "bfloat16":
        return Weight(_bfloat16_codes(config, name, seed), "bfloat16")
    block = _block(config)
    codes, scale = np.empty(shapes[name], np.uint8), np.empty(_scale_shape(config, name), np.float32)
    for i, (band_codes, band_scale) in enumerate(_quantized_bands(config, name, seed)):
        codes[i * block[0] : (i + 1) * block[0]] = band_codes
        scale[i] = band_scale
    return Weight(codes, "e4m3fn", scale, block)


def synthetic_tensors(config: BlockConfig, seed: int = 0, dtype: str = "fp8") -> Iterator[SyntheticTensor]:
    """Yield what a checkpoint of this block stores, in reading order: an FP8 matrix, then its `weight_scale_inv`.

    The bytes are those of `synthetic_weights`. Making one tensor takes little more memory than the tensor.
    """
    _check(seed, dtype)
    for name, shape in weight_shapes(config).items():
        if len(shape) == 1:
            yield SyntheticTensor(name, "BF16", shape, partial(_raw, config, name, seed, dtype))
        elif dtype == "bfloat16":
            yield SyntheticTensor(name, "BF16", shape, partial(_bfloat16_codes, config, name, seed))
        else:
            yield SyntheticTensor(name, "F8_E4M3", shape, partial(_raw, config, name, seed, dtype))
            scale_shape = _scale_shape(config, name)
            yield SyntheticTensor(f"{name}_scale_inv", "F32", scale_shape, partial(_scales, config, name, seed))


def synthetic_embedding(config: BlockConfig, seed: int = 0) -> Weight:
    """Return the embedding of the 256 bytes, bfloat16 [256, D]; its channels are described in `circuits`."""
    _check(seed, "bfloat16")
    D = config.hidden_size
    spread = log_normal("embedding channels", seed, D, 0.25)  # mean square 1
    x = circuits.RESIDUAL * spread * noise("embed_tokens.weight", seed, 0, 256 * D).reshape(256, D)
    if circuits.fits(config):
        x[:, circuits.CODES] = circuits.RESIDUAL * circuits.byte_codes()
        x[:, circuits.PREVIOUS] = 0
        x[:, circuits.START] = 0
        x[circuits.START_OF_TEXT, circuits.START] = circuits.MARK * circuits.RESIDUAL
        x[:, circuits.VOWEL] = 0
    x[:, circuits.loud_channel(config)] = circuits.LOUDNESS * circuits.RESIDUAL
    return Weight(encode(x.astype(np.float32), "bfloat16"), "bfloat16")


def text_tokens(text: str | bytes) -> list[int]:
    """Return the token ids of a text: START_OF_TEXT, then its UTF-8 bytes.

    The id at place i + 1 is the text's byte i. Ids are rows of `synthetic_embedding`.
    """
    return [circuits.START_OF_TEXT, *(text.encode() if isinstance(text, str) else text)]


def _raw(config: BlockConfig, name: str, seed: int, dtype: str) -> np.ndarray:
    return np.asarray(synthetic_weight(config, name, seed, dtype).raw)


def _scales(config: BlockConfig, name: str, seed: int) -> np.ndarray:
    return np.concatenate([scale for _, scale in _quantized_bands(config, name, seed)])


def _quantized_bands(config: BlockConfig, name: str, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield codes [rows, K] and scales [1, blocks] of one row of blocks after the other."""
    for band in _bands(config, name, seed):
        yield quantize(band, "e4m3fn", block=_block(config), amax_floor=_AMAX_FLOOR)


def _bfloat16_codes(config: BlockConfig, name: str, seed: int) -> np.ndarray:
    codes = np.empty(weight_shapes(config)[name], np.uint16)
    start = 0
    for band in _bands(config, name, seed):
        codes[start : start + len(band)] = encode(band, "bfloat16")
        start += len(band)
    return codes


def _bands(config: BlockConfig, name: str, seed: int) -> Iterator[np.ndarray]:
    """Yield a matrix before it is quantised, one row of blocks after the other: float32 [<= height of a block, K]."""
    N, K = weight_shapes(config)[name]
    height, width = _block(config)
    rows_gain, columns_gain = _row_and_column_gains(config, name, seed)
    amplitudes = _amplitudes(config, name, seed) * np.float32(_GAINS.get(name, 1.0) / math.sqrt(K))
    wires = circuits.wires(config, name)
    for i, start in enumerate(range(0, N, height)):
        stop = min(start + height, N)
        band = noise(name, seed, i, (stop - start) * K).reshape(stop - start, K)
        band *= np.repeat(amplitudes[i], width)[:K] * columns_gain
        band *= rows_gain[start:stop, None]
        if wires is not None:
            band[wires.cleared[(wires.cleared >= start) & (wires.cleared < stop)] - start] = 0
            here = (wires.rows >= start) & (wires.rows < stop)
            band[wires.rows[here] - start, wires.columns[here]] = wires.values[here]
        yield band


def _amplitudes(config: BlockConfig, name: str, seed: int) -> np.ndarray:
    """Return each block's amplitude: 1/2, 1, 2 in turn along rows and columns, over their root mean square.

    Taking turns keeps the rows' sums of squares alike, which the sizes in `circuits` rely on; the turns run in
    opposite directions along the two axes, so that a transposed grid differs.
    """
    rows, columns = _scale_shape(config, name)
    offset = zlib.crc32(f"{name} amplitudes {seed}".encode()) % 3
    turn = (np.arange(rows)[:, None] - np.arange(columns) + offset) % 3
    grid = np.float32(2.0) ** (turn - 1).astype(np.float32) / np.float32(math.sqrt((1 / 4 + 1 + 4) / 3))
    if name == "mlp.up_proj.weight" and rows > 1:
        grid[-1, 0] = 0  # neuron 0 lives in the first row of blocks
    return grid


def _row_and_column_gains(config: BlockConfig, name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return factors on the rows and the columns of a matrix of noise: the quiet rotary key, the outlier neurons."""
    N, K = weight_shapes(config)[name]
    rows, columns = np.ones(N, np.float32), np.ones(K, np.float32)
    if name == "self_attn.kv_a_proj_with_mqa.weight":
        rows[config.kv_lora_rank :] = _ROTARY_KEY_GAIN
    elif name in ("mlp.gate_proj.weight", "mlp.up_proj.weight"):
        rows[outlier_neurons(config, seed)] = _OUTLIER
    elif name == "mlp.down_proj.weight":
        columns[outlier_neurons(config, seed)] = _OUTLIER**-2
    return rows, columns


def outlier_neurons(config: BlockConfig, seed: int = 0) -> np.ndarray:
    """Return the indices of the MLP's outlier neurons, one in 512."""
    F = config.intermediate_size
    return np.sort(np.argsort(noise("outlier neurons", seed, 0, F), kind="stable")[: max(1, F // 512)])


def _norm_gain(config: BlockConfig, name: str, seed: int) -> np.ndarray:
    gain = log_normal(name, seed, weight_shapes(config)[name][0], 0.25)
    gain[: circuits.wired_channels(config, name)] = 1
    if not name.startswith("self_attn."):
        gain[circuits.loud_channel(config)] = circuits.LOUD_GAIN
    return gain.astype(np.float32)


def _block(config: BlockConfig) -> tuple[int, int]:
    return config.weight_block_size or BLOCK


def _scale_shape(config: BlockConfig, name: str) -> tuple[int, int]:
    N, K = weight_shapes(config)[name]
    height, width = _block(config)
    return -(-N // height), -(-K // width)


def _check(seed: int, dtype: str) -> None:
    if dtype not in ("fp8", "bfloat16"):
        raise InputError(f"synthetic weights: dtype must be fp8 or bfloat16; found {dtype!r}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"synthetic weights: seed must be a non-negative integer; found {seed!r}")
