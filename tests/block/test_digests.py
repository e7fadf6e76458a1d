"""The same bits on every machine: digests of the small preset, made by DeepSeek's inference code.

tests/fixtures/make_digests.py ran that code (its kernels replaced by exact dots) on the checkpoint that
`blocklab synth` writes and on the input of the run below; nothing of ours computed them.
"""

import json

import numpy as np

from blocklab import BlockConfig, causal_mask, rotary_table, synthetic_weights, trace
from blocklab.synth.weights import synthetic_embedding, text_tokens
from goldens import FIXTURES

DIGESTS = json.loads((FIXTURES / "small-digests.json").read_text())


def small_trace():
    config = BlockConfig.preset("kimi-k2-small")
    ids = np.array([text_tokens("the cat sat on the mat")])
    x = np.asarray(synthetic_embedding(config).values())[ids]
    T = ids.shape[1]
    R = rotary_table(config, np.arange(T), "float32")
    return trace(x, R, causal_mask(T), synthetic_weights(config), "deepseek-fp8")


def test_every_step_has_the_bits_that_deepseeks_code_computes():
    ours = small_trace().digest()
    assert {step: ours[step] for step in DIGESTS} == DIGESTS
    assert len(DIGESTS) == 14
