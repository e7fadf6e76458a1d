"""The commands, one module each: the first line of its docstring, `add_options(parser)` and `run(options)`."""

from blocklab.commands import explain, params, run, step, synth

COMMANDS = (run, step, explain, params, synth)
"""The command modules in the order in which help lists them."""
