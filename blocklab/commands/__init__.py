"""The commands, one module each: the first line of its docstring, `add_options(parser)` and `run(options)`."""

from blocklab.commands import conformance, explain, explore, figures, params, plot, run, step, sweep, synth

COMMANDS = (run, step, explain, explore, plot, figures, params, synth, conformance, sweep)
"""The command modules in the order in which help lists them."""
