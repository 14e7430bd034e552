"""`python -m relaxpy`, the same as the command `relaxpy`."""

import sys

from relaxpy.plugins.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
