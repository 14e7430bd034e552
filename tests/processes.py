"""Programs that each need a process of their own: copies of one that has imported relaxpy."""

from collections.abc import Sequence
from pathlib import Path

_BAR = "=" * 20
_DRIVER = f"""
import os, sys
import relaxpy.script
for path in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        status = 0
        names = {{"__name__": "__main__", "__file__": path}}
        with open(path) as file:
            code = compile(file.read(), path, "exec")
        try:
            exec(code, names)
        except Exception as error:
            status = 1
            error.with_traceback(error.__traceback__.tb_next)
            sys.excepthook(type(error), error, error.__traceback__)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("{_BAR}", status, file=sys.stderr)
"""


def arguments(scripts: Sequence[Path | str]) -> list[str]:
    """The arguments of a Python that runs the scripts, and leaves itself out of tracebacks.

    `outcomes` reads what it writes to the standard error.
    """
    return ["-c", _DRIVER, *map(str, scripts)]


def outcomes(text: str) -> list[tuple[str, int]]:
    """What each script wrote to the standard error, and its exit code."""
    found, rest = [], text
    while _BAR in rest:
        wrote, _, rest = rest.partition(f"{_BAR} ")
        code, _, rest = rest.partition("\n")
        found.append((wrote, int(code)))
    return found
