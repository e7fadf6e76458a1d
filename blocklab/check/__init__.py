"""Checking: somebody's block against ours, two dumps against each other, and the catalogue of mistakes."""

from blocklab.check.compare_dumps import Comparison, compare
from blocklab.check.mistakes import MISTAKES, catalogue, catalogue_table, inject
from blocklab.check.report import Report
from blocklab.check.validation import validate

__all__ = ["MISTAKES", "Comparison", "Report", "catalogue", "catalogue_table", "compare", "inject", "validate"]
