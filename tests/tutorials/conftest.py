"""Let the tests import what the tutorials import: checks, percent, exercises."""

import sys
from pathlib import Path

TUTORIALS = Path(__file__).parents[2] / "tutorials"
sys.path.insert(0, str(TUTORIALS))
