"""The commands, one module each: the first line of its docstring, `add_options(parser)` and `run(options)`."""

from blocklab.commands import params, run, synth

COMMANDS = (run, params, synth)
"""The command modules in the order in which help lists them."""
