"""Check the Python in README.md and docs/ with mypy and pyright, as users of relaxpy do.

The blocks of a page are one module, with the lines of the page, under the settings that
docs/language.md gives for models. `make types` runs this.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: The settings of docs/language.md. Pages import packages of readers, and of extras without types.
MYPY = """
[mypy]
strict = true
plugins = relaxpy.testing.mypy_plugin
disable_error_code = valid-type, no-untyped-def, import-not-found, import-untyped
warn_return_any = false
disallow_untyped_calls = false
disallow_any_generics = false
disallow_subclassing_any = false
disallow_untyped_decorators = false

[mypy-dask.*]
implicit_reexport = true

# These pages register names, and show several files.
[mypy-docs_how_to_add_an_operator,docs_how_to_add_an_annotation,docs_how_to_write_a_plug_in]
disable_error_code =
    valid-type, no-untyped-def, import-not-found, import-untyped, attr-defined, no-redef
"""
PYRIGHT = """
[tool.basedpyright]
typeCheckingMode = "standard"
reportInvalidTypeForm = false
reportGeneralTypeIssues = false
reportMissingImports = false
reportPrivateImportUsage = false
extraPaths = ["{root}"]
venvPath = "{root}"
venv = ".venv"
"""


def python_of(text: str, *languages: str) -> str:
    """The blocks of a page in fences of these languages, at their lines, without indentation."""
    kept, indent = [], None
    for line in text.splitlines():
        fence = re.fullmatch(r"( *)```(\w*)", line)
        kept.append("" if fence or indent is None else line[indent:])
        if fence:
            begins = indent is None and fence[2] in languages
            indent = len(fence[1]) if begins else None
    return "\n".join(kept) + "\n"


def main() -> int:
    """Print what the checkers find; the exit code is 1 if there is something."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
            python = python_of(page.read_text(encoding="utf-8"), "python", "py")
            if python.strip():
                module = "_".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_")
                (folder / f"{module}.py").write_text(python, encoding="utf-8")
        (folder / "mypy.ini").write_text(MYPY, encoding="utf-8")
        text = PYRIGHT.format(root=ROOT.as_posix())
        (folder / "pyproject.toml").write_text(text, encoding="utf-8")
        pages = sorted(str(path) for path in folder.glob("*.py"))
        cache = ROOT / ".mypy_cache" / "documents"
        failed = False
        for words in (
            ["mypy", f"--config-file={folder / 'mypy.ini'}", f"--cache-dir={cache}", *pages],
            ["basedpyright", "--level", "error", "-p", name, *pages],
        ):
            run = subprocess.run([sys.executable, "-m", *words], check=False, cwd=ROOT)
            failed |= run.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
