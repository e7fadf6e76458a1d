"""The formulas of the block as it uses them under a recipe."""

from dataclasses import replace

from blocklab.block import operations
from blocklab.block.config import BlockConfig
from blocklab.block.run import Run
from blocklab.block.taps import no_tap


def run_of(recipe, tap=no_tap, **settings):
    return Run(replace(BlockConfig.preset("kimi-k2-small"), **settings), recipe, tap=tap)


def rms_norm(x, gain, eps, recipe):
    return run_of(recipe, rms_norm_eps=eps).norm("attn_norm", x, gain)


def rotate(x, R, recipe):
    return run_of(recipe).rotate("q_rot", x, R)


def silu(x, recipe):
    return run_of(recipe).each("gate_act", operations.silu, x)


def softmax(scores, recipe):
    run = run_of(recipe)
    return run.store("pattern", operations.softmax(run.work(scores)))


def linear(x, weight, recipe, tap=no_tap, step="gate"):
    return run_of(recipe, tap).linear(step, x, weight)
