"""The command line: `relaxpy`, or `python -m relaxpy`."""
