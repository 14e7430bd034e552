"""The links of the documents lead somewhere, and docs/README.md has every document."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ["docs", "examples", "benchmarks", "notebooks", "relaxpy"]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(p for f in FOLDERS for p in (ROOT / f).rglob("*.md"))]
)

BUILT = {"digits.html": "examples/export/web/page.html"}
"""Files that only the site has, and what they are built from."""


def prose(text: str) -> str:
    """The text without what is between fences, and without code in lines."""
    text = re.sub(r"^ *(```+)[^\n]*\n.*?^ *\1[ ]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(`+)[^`].*?\1", "`code`", text)


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a document, as GitHub names them."""
    text = re.sub(r"^ *(```+)[^\n]*\n.*?^ *\1[ ]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


def broken(document: Path, text: str) -> Iterator[str]:
    """The links of a document that lead nowhere."""
    text = prose(text)
    links = re.findall(r"(?<!\\)\]\(([^)\s]*)\)", text)
    links += re.findall(r'<(?:a|img|script)\b[^>]* (?:src|href)="([^"]*)"', text)
    for link in links:
        path, _, anchor = link.partition("#")
        if re.match(r"https?://", link):
            continue
        target = document.parent / path if path else document
        if target.resolve().parent == ROOT / "_static":  # of the site, whose pages keep their paths
            target = ROOT / BUILT.get(target.name, f"docs/static/{target.name}")
        there = target.exists()
        if not there or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            yield link


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_to_files_and_headings(name: str) -> None:
    assert list(broken(ROOT / name, (ROOT / name).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.name)
def test_links_of_notebooks_lead_to_files_and_headings(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert list(broken(path, "\n".join(texts))) == []


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One\n\n## A `b`, c\n\n## One\n", encoding="utf-8")
    text = (
        "# Here\n[a](other.md) [b](#here) [c](other.md#a-b-c) [d](other.md#one-1) `[e](code)`\n"
        '[f](none.md) [g](#there) [h](other.md#two) ![i](none.svg) <img src="gone.svg">\n'
        '<a href="_static/lost.js">l</a> <script type="module" src="lost.js"></script>\n'
        "```\n# F\n[j](code)\n```\n[k](#f)\n"
    )
    lost = ["none.md", "#there", "other.md#two", "none.svg", "#f", "gone.svg"]
    lost += ["_static/lost.js", "lost.js"]
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert list(broken(page, text)) == lost


def test_the_list_of_documents_has_each_of_them_once() -> None:
    listed = []
    for index in ("docs", "docs/decisions"):
        text = (ROOT / index / "README.md").read_text(encoding="utf-8")
        rows = re.findall(r"^- \[[^]]+\]\(([^)]+)\)", text, re.MULTILINE)
        listed += [(ROOT / index / row).resolve().relative_to(ROOT).as_posix() for row in rows]
    written = {name for name in DOCUMENTS if name.startswith("docs/")} - {"docs/README.md"}
    assert len(listed) == len(set(listed))
    assert written - set(listed) == set(), "these pages, from which the site is built, list all"


#: What people type into the search of a site, which ranks headings first.
SEARCHED = (
    *("install", "first error", "save a model", "load a model", "load weights", "quantize weights"),
    *("4 bits", "cpu", "make it faster", "compile time", "profile", "threads", "blas", "onnx"),
    *("pytorch", "torch.compile", "torch.export", "hugging face", "gguf", "kv cache", "chat"),
    *("train a model", "gradients", "debug", "nan", "wrong results", "environment variables"),
    *("options", "command line", "mpi", "dask", "vs code", "security", "pytest", "glossary"),
    *("tensor parallel", "data parallel", "automatic differentiation", "dynamic shapes"),
    *("batch size", "docker", "custom operators", "publish a version"),
)


def test_a_heading_has_the_words_that_people_search() -> None:
    headings = [
        set(re.findall(r"[\w.]+", heading.lower()))
        for path in (ROOT / "docs").rglob("*.md")
        for heading in re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert [words for words in SEARCHED if not any({*words.split()} <= h for h in headings)] == []


def test_the_site_has_the_pages_that_its_pages_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from build_site import BESIDE_CODE, COPIED, NOTEBOOKS, written_sections

    sections = list(written_sections())
    rows = [re.sub(r".*<(.*)>", r"docs/\1", row) for _, _, listed in sections for row in listed]
    assert [row for row in rows if not (ROOT / row).is_file()] == []
    pages = {(ROOT / name).resolve() for name in [*rows, *BESIDE_CODE, *NOTEBOOKS, *COPIED]}
    for folder in ("docs/decisions", "docs/images"):
        pages |= {path.resolve() for path in (ROOT / folder).iterdir()}
    pages.add(ROOT / "docs" / "README.md")
    lost = {
        (path.relative_to(ROOT).as_posix(), link)
        for path in pages
        if path.suffix == ".md" and path.name != "CHANGELOG.md"
        for link in re.findall(
            r"(?<!\\)\]\((?!https?:)([^)#\s]+)", prose(path.read_text(encoding="utf-8"))
        )
        if (path.parent / link).resolve() not in pages
    }
    assert lost == set()


def test_a_module_of_a_package_that_is_not_installed_has_an_empty_page(monkeypatch) -> None:
    class Lazy(ModuleType):
        __all__ = ("from_file",)

        def __getattr__(self, name: str) -> None:
            raise ImportError("it needs the package heavy")

    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import build_site

    monkeypatch.setattr(build_site, "MODULES", ["relaxpy.lazy_of_test"])
    monkeypatch.setitem(sys.modules, "relaxpy.lazy_of_test", Lazy("relaxpy.lazy_of_test"))
    [(page, text)] = build_site.api()
    assert page == "api/relaxpy.lazy_of_test.md"
    assert "This page is empty: it needs the package heavy." in text
