"""Recipes that no run could follow are refused when they are made, with the reason."""

import pytest

from blocklab import InputError
from blocklab.numerics import RECIPES, get_recipe


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hopper-fp8,group=64", "promote must be at most group 64: scales differ from group to group; found 128"),
        ("hopper-fp8,promote=none", "promote must be at most group 128: scales differ from group to group; found None"),
        ("hopper-fp8,promote=48", "expected promote in multiples of 32, which hopper adds at a time"),
        ("deepseek-fp8,amax_floor=5e-36", "amax_floor must be a positive number below 1e30, at least 5.27e-36"),
        (
            "deepseek-fp8,activation_format=e5m2,amax_floor=6e-34",
            "a positive number below 1e30, at least 6.74e-34",
        ),
        ("deepseek-fp8,amax_floor=nan", "amax_floor must be a positive number"),
        (
            "float32,latent_norm_eps=0",
            "latent_norm_eps must be a positive number below 1e30, a normal float32; found 0",
        ),
    ],
)
def test_impossible_options(text, words):
    with pytest.raises(InputError) as error:
        get_recipe(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "hopper-fp8,group=64,promote=64",
        "hopper-fp8,promote=32",
        "hopper-fp8,granularity=token,promote=none",
        "deepseek-fp8,group=64",
        "deepseek-fp8,promote=none",
        "deepseek-fp8,amax_floor=5.3e-36",
        "float32,latent_norm_eps=none",
    ],
)
def test_options_that_go_together(text):
    assert get_recipe(text) != RECIPES[text.partition(",")[0]] or text.endswith("none")
