"""Write the modules of public names, one for each table of `relaxpy/names.toml`.

Such a module defines nothing: type checkers read its imports, and programs find a name by the
table when they first use it. `make format` runs this tool; a test compares them with the table.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "relaxpy" / "names.toml"
MARK = "# Written by tools/faces.py from relaxpy/names.toml.\n"


class Face(TypedDict, total=False):
    """What the table says of a module.

    `relaxpy.support.lazy.face` reads `names` and takes `lookup`; `code` stands before. A module
    that is the `same` as another takes that one's place in `sys.modules`.
    """

    doc: str
    names: str
    lookup: str
    same: str
    code: str


#: The stubs of the names of a module that are found when programs run, for type checkers.
STUBS = {
    "relaxpy.ir.ops": "relaxpy.ir.ops.operators",
    "relaxpy.ir.te.topi": "relaxpy.ir.te.topi.generated",
}
Names = dict[str, list[str]]
"""Modules, and what comes from each: a name, `new=old`, or `*`."""


def parsed(text: str) -> Names:
    """The names of a table by the modules where they are."""
    found: Names = {}
    for token in text.split():
        if token.endswith(":"):
            names = found.setdefault(token[:-1], [])
        else:
            names.append(token)
    return {module: sorted(names) for module, names in sorted(found.items())}


def static_imports(names: Names) -> Iterator[str]:
    """The imports that type checkers read; the keys of a dictionary only programs know."""
    for place, tokens in names.items():
        module = place.removesuffix(".")
        plain = [token for token in tokens if "=" not in token and token != "*"]
        if "*" in tokens and ":" not in module:
            yield f"from {module} import *"
            if module in STUBS:
                yield f"from {STUBS[module]} import *"
        if plain:
            yield f"from {module} import {', '.join(f'{name} as {name}' for name in plain)}"
        for token in tokens:
            name, _, old = token.partition("=")
            root, _, attribute = old.partition(".")
            if attribute:
                yield f"from {module} import {root} as _{root}"
                yield f"{name} = _{root}.{attribute}"
            elif old:
                yield f"from {module} import {old} as {name}"


def exported(table: dict[str, Face], module: str) -> set[str]:
    """The names of a module: type checkers take `X as Y` for private without a list of them."""
    found = set()
    for place, tokens in parsed(table[module].get("names", "")).items():
        found |= {token.partition("=")[0] for token in tokens if token != "*"}
        if "*" in tokens and place in table:
            found |= exported(table, place)
    return found


def text_of(table: dict[str, Face], module: str) -> str:
    """The text of a module."""
    face = table[module]
    head = f'"""{face["doc"]}"""\n\n{MARK}'
    if same := face.get("same"):
        package, _, name = same.rpartition(".")
        return (
            f"{head}import sys\nfrom typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n"
            f"    from {same} import *\nelse:\n    from {package} import {name}\n\n"
            f"    sys.modules[__name__] = {name}\n"
        )
    names = parsed(face["names"])
    lookup = f', "{face["lookup"]}"' if "lookup" in face else ""
    lines = [
        f'_face(globals(), "{module}"{lookup})',
        "if TYPE_CHECKING:",
        *(f"    {line}" for line in list(static_imports(names)) or ("pass",)),
    ]
    if lookup:
        lines += ["", "    def __getattr__(name: str) -> _Any: ..."]
    if "=" in face["names"]:
        lines.append(f"    __all__ = {sorted(exported(table, module))}")
    any_type = "from typing import Any as _Any\n\n" if lookup else ""
    imports = f"{any_type}from relaxpy.support.lazy import TYPE_CHECKING, face as _face\n"
    code = face.get("code", "")
    return f"{head}{imports}{code}\n" + "\n".join([*lines, ""])


def file_of(module: str) -> Path:
    """The file of a module of relaxpy; a folder of that name makes it a package."""
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def main() -> int:
    """Write the files; with `--check`, print those that are outdated instead."""
    table: dict[str, Face] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    files = {file_of(module): text_of(table, module) for module in table}
    outdated = [
        path
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv:
        print(*(path.relative_to(ROOT) for path in outdated), sep="\n")
        return bool(outdated)
    for path in outdated:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
