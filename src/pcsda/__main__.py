"""Run the command line as ``python -m pcsda``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
