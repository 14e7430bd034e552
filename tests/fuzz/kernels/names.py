"""Names that a kernel may have and that generated code, or its runtime, may have as well."""

from __future__ import annotations

import ast
import builtins
import keyword
from functools import cache
from pathlib import Path

import relaxpy.exec.loops
from relaxpy.exec.numpy import runtime
from relaxpy.exec.runtime import arguments

PLAIN = tuple("ABCDEFGHKMPQUVWXYZ")
_RESERVED = {"T", "R", "I", "m", "range", "relaxpy", "tvm", "tir", "relax", "ir"}
"""What the text of a program itself speaks of."""


@cache
def colliding() -> tuple[str, ...]:
    """Builtins, the runtime's functions, and every word that the kernel compiler writes."""
    found = {name for name in dir(builtins) if name.islower()}
    found |= set(dir(runtime)) | set(dir(arguments))
    for path in Path(next(iter(relaxpy.exec.loops.__path__))).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(node.value.split("."))
    usual = ["n", "i", "j", "k", "i_0", "i_1", "i_2", "_", "a_", "v0", "loop", "lv", "let", "tmp"]
    found |= {*usual, *(f"{word}_" for word in keyword.kwlist)}
    plain = (n for n in found if n.isidentifier() and len(n) < 20 and not n.startswith("_"))
    return tuple(sorted(n for n in plain if not keyword.iskeyword(n) and n not in _RESERVED))
