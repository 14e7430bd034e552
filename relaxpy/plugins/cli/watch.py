"""Running a command again whenever files change."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from relaxpy.plugins.cli.programs import STDIN, files_in
from relaxpy.plugins.cli.usage import UsageError

_SECONDS: Final = 0.3


def watch(paths: Sequence[str], run: Callable[[], int]) -> int:
    """Call `run` now and after each change of a file, until Ctrl-C; return its last result.

    A file may be created or deleted meanwhile.

    Errors:
        UsageError: one of the paths is standard input, or names a module.
    """
    for path in paths:
        if path == STDIN or not Path(path).exists():
            raise UsageError(f"--watch takes files and folders, found {path!r:.60}")
    code, before = 0, None
    try:
        while True:
            now = {file: _time(file) for path in paths for file in files_in(path)}
            if now != before:
                code, before = run(), now
            time.sleep(_SECONDS)
    except KeyboardInterrupt:
        return code


def _time(path: str) -> int:
    """When the file was changed, in nanoseconds; 0 if it does not exist."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
