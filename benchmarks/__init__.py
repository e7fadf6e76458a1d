"""How fast blocklab is and how much memory it takes, beside what one would use instead: `python -m benchmarks`.

Everything that shares a row is measured in turn in one run, and medians are compared: times change with the machine
and with what else runs on it, ratios hardly do.
"""
