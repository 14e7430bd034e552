"""Write the stub of the operators in `R` for type checkers: `relaxpy/script/operators.pyi`.

Operators are registered when relaxpy runs, so checkers and editors cannot find them in the code.
`make format` runs it; a test compares the file with the registry.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relaxpy.script import relax

STUB = Path(__file__).parents[1] / "relaxpy" / "script" / "operators.pyi"
HEAD = '''"""The operators of `R` as type checkers see them; written by tools/stubs.py."""

from typing import Any
'''


def signature(function: Any) -> str:
    """The parameters for the stub: names, kinds, and whether they have defaults."""
    plain = [
        p.replace(
            annotation=Any, default=p.default if p.default is inspect.Parameter.empty else ...
        )
        for p in inspect.signature(function).parameters.values()
        if p.name != "span"
    ]
    text = str(inspect.Signature(plain, return_annotation=Any))
    return text.replace("typing.Any", "Any").replace("Ellipsis", "...")


def lines(space: Any, indent: str = "") -> Iterator[str]:
    """A line for each operator of a namespace, and nested namespaces as classes."""
    static = f"{indent}@staticmethod\n" if indent else ""
    for name in sorted(space._public_names() - set(getattr(space, "__all__", ()))):
        member = getattr(space, name)
        if hasattr(member, "_public_names"):
            yield f"\n{indent}class {name}:\n"
            yield from lines(member, indent + "    ")
            yield "\n"
        elif callable(member):
            yield f"{static}{indent}def {name}{signature(member)}: ...\n"


def stub() -> str:
    """The text of the stub."""
    return HEAD + "\n" + "".join(lines(relax))


def main() -> int:
    """Write the file; with `--check`, return whether it is outdated instead."""
    if "--check" not in sys.argv:
        STUB.write_text(stub(), encoding="utf-8")
        return 0
    present = STUB.read_text(encoding="utf-8")
    return int(ast.dump(ast.parse(present)) != ast.dump(ast.parse(stub())))


if __name__ == "__main__":
    sys.exit(main())
