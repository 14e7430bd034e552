"""Write the first table of docs/differences.md: names of TVM that are absent, and what to use.

It is the table of relaxpy/support/absent.py. `make format` runs it; a test compares the page with
it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from relaxpy.support.absent import ABSENT

PAGE = Path(__file__).parents[1] / "docs" / "differences.md"
HEAD = "| absent | instead |\n| --- | --- |\n"


def table() -> str:
    """The table, with a row for all names that have one thing instead."""
    rows: dict[str, list[str]] = {}
    for parent, names, instead in ABSENT:
        listed = ", ".join(f"`{name}`" for name in names.split())
        rows.setdefault(instead.replace("](", "]\\("), []).append(
            f"`{parent}`: {listed}" if parent else listed
        )
    return HEAD + "".join(f"| {'; '.join(all_)} | {instead} |\n" for instead, all_ in rows.items())


def main() -> int:
    """Write the page, or with --check say whether it is up to date."""
    text = PAGE.read_text(encoding="utf-8")
    start = text.index(HEAD)
    new = text[:start] + table() + text[text.index("\n\n", start) + 1 :]
    if "--check" in sys.argv:
        return int(text != new)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
