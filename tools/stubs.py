"""Write what is known of operators without their modules.

The stubs of `R`, `relax.op` and `topi` are for type checkers: operators are registered when relaxpy
runs, so checkers and editors cannot find them in the code. The families are for relaxpy, which
imports the module of an operator when a program names it. `make format` runs this, and a test
compares the files.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relaxpy.ir import op_families, ops as op
from relaxpy.ir.ops.definition import registry
from relaxpy.ir.te import topi
from relaxpy.script import relax

FAMILIES = Path(op_families.__file__)
ROOT = Path(__file__).parents[1] / "relaxpy"
STUB = ROOT / "script" / "operators.pyi"
#: The stubs of modules whose functions are found when relaxpy runs.
FUNCTIONS = {
    "relax.op": (op, ROOT / "ir" / "ops" / "operators.pyi"),
    "topi": (topi, ROOT / "ir" / "te" / "topi" / "generated.pyi"),
}
HEAD = '''"""The {what} as type checkers see them; written by tools/stubs.py."""

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
    return HEAD.format(what="operators of `R`") + "".join(lines(relax))


def functions(name: str) -> str:
    """The text of the stub of a module: its functions that no module defines by `def`."""
    module, path = FUNCTIONS[name]
    known = module.__all__ if module is op else defined_in(path.parent)
    found = {member: getattr(module, member) for member in sorted(set(dir(module)) - {*known})}
    return HEAD.format(what=f"functions of `{name}`") + "".join(
        f"def {member}{signature(value)}: ...\n"
        for member, value in found.items()
        if not member.startswith("_") and callable(value) and not isinstance(value, type)
    )


def defined_in(folder: Path) -> set[str]:
    """The names of the functions at the top level of the modules in a folder."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in folder.glob("*.py"))
    return {s.name for tree in trees for s in tree.body if isinstance(s, ast.FunctionDef)}


def listed() -> str:
    """Return the text of the table of families."""
    names: dict[str, list[str]] = {}
    for found in pkgutil.walk_packages(op.__path__, f"{op.__name__}."):
        pkgutil.resolve_name(found.name)
        family = found.name.removeprefix(f"{op.__name__}.")
        if not found.ispkg and not family.startswith("definition."):
            names[family] = []
    for operator in registry.registered_ops().values():
        if operator.record.is_of_relaxpy:
            family = operator.__module__.removeprefix(f"{op.__name__}.")
            names.setdefault(family, []).append(operator.name.removeprefix("relax."))
    rows = (f"{family}: {' '.join(sorted(names[family]))}".rstrip() for family in sorted(names))
    lines = (textwrap.fill(row, 96, subsequent_indent="    ") for row in rows)
    start, quotes, _ = FAMILIES.read_text(encoding="utf-8").rpartition('"""')[0].rpartition('"""')
    return start + quotes + "\n" + "\n".join(lines) + '\n"""\n'


def main() -> int:
    """Write the files; with `--check`, return whether one is outdated instead."""
    texts = {FAMILIES: listed(), STUB: stub()}
    texts |= {path: functions(name) for name, (_, path) in FUNCTIONS.items()}
    if "--check" not in sys.argv:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        return 0
    present = {path: path.read_text(encoding="utf-8") for path in texts}
    return int(any(ast.dump(ast.parse(present[p])) != ast.dump(ast.parse(texts[p])) for p in texts))


if __name__ == "__main__":
    sys.exit(main())
