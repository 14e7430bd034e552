"""`python -m relaxpy`, the same as the command `relaxpy`."""

import sys

from relaxpy.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
