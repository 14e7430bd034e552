"""Write the modules of public names, one for each table of `relaxpy/names.toml`.

Such a module defines nothing: type checkers read its imports, and programs load a name when they
first use it. `make format` runs this tool; a test compares the files with the table.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "relaxpy" / "names.toml"
MARK = "# Written by tools/faces.py from relaxpy/names.toml."


class Face(TypedDict, total=False):
    """What the table says of a module.

    `names` are for `relaxpy.lazy.face`, and so is `lookup`; a module that is the `same` as another
    has that one's place in `sys.modules`; `code` stands before the names.
    """

    doc: str
    names: str
    lookup: str
    same: str
    code: str


def faces() -> dict[str, Face]:
    """The table: what to write for each module."""
    table: dict[str, Face] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return table


def file_of(module: str) -> Path:
    """The file of a module of relaxpy; a folder of that name makes it a package."""
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def static_imports(names: str) -> Iterator[str]:
    """The imports that type checkers read, and assignments of what has another name."""
    module, made = "", []
    for token in names.split():
        if token.endswith(":"):
            module = token.removesuffix(":").removesuffix(".")
            continue
        name, _, old = token.partition("=")
        root, _, attribute = (old or name).partition(".")
        if token == "*" and ":" in module:
            continue  # the keys of a dictionary, which only programs know
        if token == "*":
            yield f"from {module} import *"
        elif attribute:
            yield f"from {module} import {root} as _{root}"
            made.append(f"{name} = _{root}.{attribute}")
        else:
            yield f"from {module} import {root} as {name}"
    yield from made


def text_of(face: Face) -> str:
    """The text of a module, which ruff has yet to format."""
    head = f'"""{face["doc"]}"""\n\n{MARK}\n'
    if same := face.get("same"):
        package, _, name = same.rpartition(".")
        static = f"if TYPE_CHECKING:\n    from {same} import *"
        alias = f"    from {package} import {name}\n\n    sys.modules[__name__] = {name}"
        return f"{head}import sys\nfrom typing import TYPE_CHECKING\n\n{static}\nelse:\n{alias}\n"
    names = face["names"]
    static = textwrap.indent("\n".join(static_imports(names)), "    ") or "    pass"
    lines = textwrap.indent(names.strip(), "        ")
    lookup = f', "{face["lookup"]}"' if "lookup" in face else ""
    imports = "from typing import TYPE_CHECKING\n\nfrom relaxpy.lazy import face as _face"
    call = f'    _face(\n        globals(),\n        """\n{lines}\n        """{lookup},\n    )'
    code = face.get("code", "")
    return f"{head}{imports}\n{code}\nif TYPE_CHECKING:\n{static}\nelse:\n{call}\n"


def written() -> dict[Path, str]:
    """The files of all modules with their texts, with imports and lines as `make lint` wants them."""
    with TemporaryDirectory(dir=ROOT) as folder:
        drafts = {file_of(module): Path(folder, f"{module}.py") for module in faces()}
        for draft, face in zip(drafts.values(), faces().values(), strict=True):
            draft.write_text(text_of(face), encoding="utf-8")
        for command in (["check", "--select=I", "--fix"], ["format"]):
            ruff = [sys.executable, "-m", "ruff", *command, "-q", "--no-cache", folder]
            subprocess.run(ruff, check=True)
        return {path: draft.read_text(encoding="utf-8") for path, draft in drafts.items()}


def main() -> int:
    """Write the files; with `--check`, print those that are outdated instead."""
    files = written()
    outdated = [
        path for path, text in files.items() if not path.exists() or path.read_text() != text
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
