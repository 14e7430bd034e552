"""Write docs/differences.md: the names that are absent, and the rows of docs/differences.toml.

The names are those of relaxpy/support/absent.py. `make format` runs this; a test compares the page
with it.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relaxpy.support.absent import ABSENT

DOCS = Path(__file__).parents[1] / "docs"
PAGE, DATA = DOCS / "differences.md", DOCS / "differences.toml"
HEAD = "| absent | instead |\n| --- | --- |\n"
INTRO = """# Where relaxpy differs from TVM

relaxpy implements Relax as its specification defines it, and takes its names from Apache TVM v0.22.
Where the two disagree, the specification decides. In most programs, `import tvm` becomes
`import relaxpy` and nothing else changes; [coming from TVM](coming-from-tvm.md) is a shorter guide.

"""
ABSENT_INTRO = """
## What is absent

Programs run on the CPU. There are no GPUs, no tuning, and no libraries of kernels. An error that
names something in this table ends with the same hint.

"""
END = """
Names of older versions are accepted where they mean the same: `nd.array` and `nd.empty`,
`runtime.NDArray`, `tensor.asnumpy()` and `to_dlpack()`, `runtime.relax_vm`, `register_func`,
`mod.astext()`, `script.parser.from_source`.

## Adding to this list

The tables are printed from `docs/differences.toml` by `tools/differences.py`: a row for each
difference, with a sentence for each side and the test that shows it. If a program behaves
differently and no row says so, please report it as a bug.
"""


def absent() -> str:
    """The table of absent names, with a row for all names that have one thing instead."""
    rows: dict[str, list[str]] = {}
    for parent, names, instead in ABSENT:
        listed = ", ".join(f"`{name}`" for name in names.split())
        rows.setdefault(instead.replace("](", "]\\("), []).append(
            f"`{parent}`: {listed}" if parent else listed
        )
    return HEAD + "".join(f"| {'; '.join(all_)} | {instead} |\n" for instead, all_ in rows.items())


def section(area: Mapping[str, Any]) -> str:
    """A title, a sentence if there is one, and the rows of an area."""
    text = f"{area['text']}\n\n" if "text" in area else ""
    head = f"| subject | relaxpy | {area['them']} |\n| --- | --- | --- |\n"
    return f"\n## {area['title']}\n\n{text}{head}" + "".join(map(row, area["row"]))


def row(difference: Mapping[str, str]) -> str:
    """A row of a table; the rule that decides stands after what relaxpy does."""
    ours = difference["ours"]
    if rule := difference.get("rule"):
        ours = f"{ours.removesuffix('.')} ({rule})."
    cells = (difference["subject"], ours, difference["theirs"])
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def anchor(title: str) -> str:
    """The anchor of a heading."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def page() -> str:
    """The page: the differences that change results, what is absent, and the areas."""
    first, *areas = tomllib.loads(DATA.read_text(encoding="utf-8"))["area"]
    titles = [first["title"], "What is absent", *(area["title"] for area in areas)]
    contents = "".join(f"- [{title}](#{anchor(title)})\n" for title in titles)
    listed = [INTRO, contents, section(first), ABSENT_INTRO, absent(), *map(section, areas), END]
    return "".join(listed)


def main() -> int:
    """Write the page, or with --check say whether it is up to date."""
    if "--check" in sys.argv:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
