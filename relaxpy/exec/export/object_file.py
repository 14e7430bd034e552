"""The object files of exported programs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from relaxpy.errors import CompileError
from relaxpy.exec.export.table import ExportedProgram
from relaxpy.exec.machine.platforms import Platform
from relaxpy.exec.native.machine_code.objects import emitted_object
from relaxpy.support.dataclass import replace
from relaxpy.support.progress import stage

MOST_SECONDS: Final = 1800
"""The longest that a linker takes: that of ziglang first builds a C library for a system."""


def linked_by(command: Sequence[str], result: Path) -> bytes:
    """The content of the file that the command of a linker writes.

    Errors:
        CompileError: it fails, or takes too long.
    """
    try:
        with stage("linking"):
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
            )
    except subprocess.TimeoutExpired:
        raise CompileError(f"{command[0]} links for longer than {MOST_SECONDS} s") from None
    if done.returncode or not result.exists():
        raise CompileError(f"{command[0]} cannot link {result.name}: {done.stderr.strip()[:2000]}")
    return result.read_bytes()


@lru_cache(maxsize=16)  # for each platform one
def _linked(platform: Platform) -> Platform:
    """A platform whose objects have the format of its linkers."""
    return replace(platform, triple=platform.linked, features="", attributes="")


def object_of(program: ExportedProgram) -> bytes:
    """The object file of a program, with its weights if they are inside."""
    machine = replace(program.machine, platform=_linked(program.machine.platform))
    text = program.text.replace(
        f'target triple = "{program.machine.triple}"', f'target triple = "{machine.triple}"', 1
    )
    with stage("code generation by LLVM"):
        code = emitted_object(text, machine)
    if not program.weights_inside or not program.constants:
        return code
    start = code.find(program.header)
    content = program.weights()
    return b"".join((code[:start], content, code[start + len(content) :]))
