"""`python -m blocklab` is the command line."""

import sys

from blocklab.cli import main

if __name__ == "__main__":
    sys.exit(main())
