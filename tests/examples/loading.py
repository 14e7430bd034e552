"""The modules of examples, which are scripts that import one another by name."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace


def load_example(folder: Path) -> SimpleNamespace:
    """The modules of an example, imported as its scripts import one another."""
    names = [path.stem for path in sorted(folder.glob("*.py"))]
    sys.path.insert(0, str(folder))
    try:
        return SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(folder))
        for name in names:  # another example may have modules of the same names
            sys.modules.pop(name, None)
