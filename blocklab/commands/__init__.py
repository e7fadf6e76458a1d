"""The commands, one module each: the first line of its docstring, `add_options(parser)` and `run(options)`."""

from blocklab.commands import (
    compare,
    conformance,
    explain,
    explore,
    figures,
    mistakes,
    params,
    plot,
    run,
    step,
    sweep,
    synth,
    validate,
)

COMMANDS = (run, step, explain, explore, plot, figures, params, synth, validate, compare, mistakes, conformance, sweep)
"""The command modules in the order in which help lists them."""
