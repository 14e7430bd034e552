"""Build the site of documents: `make docs` runs it, with the extra `docs` installed.

The site of a version is a folder of build/site, beside those of other versions that were built
there, and build/site/index.html leads to the newest one. The pages are the documents of the
repository, at the same paths so that their links hold, and those that are written here from the
package. The sections are those of docs/README.md.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from inspect import isclass, isroutine
from pathlib import Path
from types import ModuleType
from typing import Any

from docstrings import toctree
from packaging.version import Version

import relaxpy
from relaxpy.plugins.cli.named_passes import public_passes

ROOT = Path(__file__).parents[1]
LISTING = ROOT / "docs" / "README.md"
SOURCE = ROOT / "build" / "site-source"
SITES = ROOT / "build" / "site"
SITE = SITES / relaxpy.__version__
CACHE = ROOT / "build" / "site-cache"
COPIED = ["LICENSE", "relaxpy/rules.toml"]
BESIDE_CODE = [
    path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "relaxpy").rglob("README.md"))
]
"""The pages of the packages, to which docs/architecture.md leads."""
ORPHAN = "---\norphan: true\n---\n"
"""The head of a page that is in no list of Sphinx."""
NOTEBOOKS = [
    f"notebooks/{path.name}" for path in sorted((ROOT / "notebooks").glob("*.*")) if path.is_file()
]
MODULES = [
    "relaxpy",
    "relaxpy.ir",
    "relaxpy.errors",
    "relaxpy.script",
    "relaxpy.relax",
    "relaxpy.relax.analysis",
    "relaxpy.relax.dpl",
    "relaxpy.relax.transform",
    "relaxpy.relax.training",
    "relaxpy.relax.distributed",
    "relaxpy.relax.frontend.nn",
    "relaxpy.relax.frontend.nn.llm",
    "relaxpy.relax.frontend.onnx",
    "relaxpy.relax.frontend.torch",
    "relaxpy.transform",
    "relaxpy.ir.instrument",
    "relaxpy.runtime",
    "relaxpy.testing",
    "relaxpy.tir",
    "relaxpy.tir.analysis",
    "relaxpy.tir.transform",
    "relaxpy.te",
    "relaxpy.topi",
    "relaxpy.arith",
    "relaxpy.relay",
    "relaxpy.distributed",
]
"""The modules of the reference, in its order."""


def main() -> int:
    """Collect the pages and build the site; return Sphinx's exit code."""
    from sphinx.cmd.build import main as sphinx

    collect()
    options = ["-c", str(ROOT / "docs"), "-b", "html", "-d", str(CACHE), *sys.argv[1:]]
    status = sphinx(["-q", "-W", "--keep-going", *options, str(SOURCE), str(SITE)])
    shutil.rmtree(
        SITES / "jupyter_execute", ignore_errors=True
    )  # myst-nb leaves copies of notebooks
    if status == 0:
        build_wheel(SITE / "wheels")
        build_digits(SITE / "_static")
        list_versions(SITES)
    return status


def build_wheel(folder: Path) -> None:
    """Build the wheel of relaxpy that a page runs in the browser, and a file with its name."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    (folder / "name.txt").write_text(f"{wheel.name}\n")


def build_digits(folder: Path) -> None:
    """Build the page that reads digits, to which a how-to leads."""
    command = [sys.executable, str(ROOT / "examples" / "export" / "web" / "export_digits.py")]
    with tempfile.TemporaryDirectory() as built:
        subprocess.run([*command, built], check=True)
        shutil.copy(Path(built, "digits.html"), folder)


def list_versions(sites: Path) -> None:
    """Let the sites of all versions in a folder know of each other, and its index of the newest."""
    found = [page.parent.name for page in sites.glob("*/index.html")]
    versions = sorted(found, key=Version, reverse=True)
    (sites / "versions.js").write_text(f"window.relaxpyVersions = {json.dumps(versions)};\n")
    newest = f'<meta http-equiv="refresh" content="0; url={versions[0]}/index.html">'
    (sites / "index.html").write_text(f"<!doctype html>\n<title>relaxpy</title>\n{newest}\n")


def collect() -> None:
    """Write all pages into a new folder of sources."""
    for folder in (SOURCE, SITE, CACHE):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE / "docs")
    for tool in ("operators", "passes", "rules"):
        command = [sys.executable, str(ROOT / "tools" / f"{tool}.py")]
        subprocess.run([*command, "--pages", str(SOURCE / "docs")], check=True)
    outside = re.findall(r"^- \[[^]]+\]\(\.\./([^)]+)\)", LISTING.read_text("utf-8"), re.M)
    for name in dict.fromkeys([*COPIED, *BESIDE_CODE, *NOTEBOOKS, *outside]):
        (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, SOURCE / name)
    for name in BESIDE_CODE:
        (SOURCE / name).write_text(ORPHAN + (ROOT / name).read_text("utf-8"), encoding="utf-8")
    for folder, pattern in (
        (SOURCE / "notebooks", r"\]\((\w+\.ipynb)\)"),
        (SOURCE / "docs" / "decisions", r"^- \[.*\]\(([\w-]+\.md)\)"),
    ):
        text = (folder / "README.md").read_text(encoding="utf-8")
        text += toctree(re.findall(pattern, text, re.MULTILINE))
        (folder / "README.md").write_text(text, encoding="utf-8")
    pages = dict(api())
    sections = list(written_sections())
    after = 1 + next(k for k, section in enumerate(sections) if section[0] == "Reference")
    sections.insert(after, ("API", "The public names, by module.", list(pages)))
    for name, text in pages.items():
        write(name, text)
    for title, text, listed in sections:
        write(section_file(title), f"# {title}\n\n{text}\n{toctree(listed)}")
    listing = ORPHAN + LISTING.read_text(encoding="utf-8")
    (SOURCE / "docs" / "README.md").write_text(listing, encoding="utf-8")
    index = (ROOT / "README.md").read_text(encoding="utf-8")
    top = [f"docs/{section_file(title)}" for title, _, _ in sections]
    (SOURCE / "index.md").write_text(index + toctree(top), encoding="utf-8")
    for file in [*SOURCE.rglob("*.md"), *SOURCE.rglob("*.ipynb")]:
        file.write_text(with_titles(file.read_text("utf-8")), encoding="utf-8")


def write(name: str, text: str) -> None:
    """Write a page of the folder docs."""
    file = SOURCE / "docs" / name
    if file.exists():
        raise SystemExit(f"two pages are called docs/{name}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def with_titles(text: str) -> str:
    """A document in which links that show the name of a file show its title."""
    return re.sub(r"\[(?:[\w-]+/)*[\w-]+\.md\]\(", "[](", text)


def section_file(title: str) -> str:
    """The file of a section."""
    return f"{title.lower()}.md"


def written_sections() -> Iterator[tuple[str, str, list[str]]]:
    """The title, the text and the pages of each section of docs/README.md."""
    _, *sections = re.split(r"^## ", LISTING.read_text("utf-8"), flags=re.M)
    for section in sections:
        title, _, text = section.partition("\n")
        pages = re.findall(r"^- \[([^]]+)\]\(([^)#]+)\)", text, re.M)
        yield title, text.strip(), [f"{name} <{path}>" for name, path in pages]


def api() -> Iterator[tuple[str, str]]:
    """The name and the text of a page for each module of the reference."""
    homes: dict[int, str] = {}
    for name in MODULES:
        try:
            module = import_module(name)
            names = listed(module, homes)
        except ImportError as error:  # of a package that is not installed
            yield f"api/{name}.md", f"# {name}\n\nThis page is empty: {error}.\n"
        else:
            doc = (module.__doc__ or "").strip()
            yield f"api/{name}.md", f"# {name}\n\n{doc}\n\n{names}"


def listed(module: ModuleType, homes: dict[int, str]) -> str:
    """The directives that show the public names of a module.

    A value is shown at the first of its names, which `homes` has, and others refer to it.
    """
    shown, others = [], []
    for member, value in public(module):
        path = f"{module.__name__}.{member}"
        if home := homes.get(id(value)):
            others.append(f"- `{member}` is {{py:obj}}`{home}`\n")
            continue
        homes[id(value)] = path
        directive = "autoclass" if isclass(value) else "autofunction"
        shown.append(f".. {directive}:: {path}\n" + "   :members:\n" * isclass(value))
    out = "```{eval-rst}\n" + "\n".join(shown) + "```\n"
    return out + ("\n## Other names\n\n" + "".join(others) if others else "")


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The classes and functions of a module by name; operators and passes have own pages."""
    found, passes = [], set(public_passes().values())
    for member in getattr(module, "__all__", dir(module)):
        value = getattr(module, member)
        if member.startswith("_") or not (isclass(value) or isroutine(value)):
            continue
        if value in passes:
            continue
        if (getattr(value, "__module__", None) or "").startswith("relaxpy."):
            found.append((value.__name__ != member, member, value))
    yield from ((member, value) for _, member, value in sorted(found, key=lambda item: item[:2]))


if __name__ == "__main__":
    sys.exit(main())
