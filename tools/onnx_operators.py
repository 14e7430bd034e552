"""Write docs/onnx-operators.md: the operators of ONNX that are imported, and their opsets.

The table comes from the converters and from the schemas of the package onnx. `make format` runs it;
a test compares the file with them.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import onnx

from relaxpy.frontend.onnx import ops as ops
from relaxpy.frontend.onnx.registry import CONVERTERS

PAGE = Path(__file__).parents[1] / "docs" / "onnx-operators.md"
HEAD = """# Operators of ONNX

What `from_onnx` imports; [ONNX models](onnx.md) shows how. The page is written by
tools/onnx_operators.py from the converters and the schemas of ONNX. *Converters* are the opsets
from which a converter of relaxpy is used; *body* stands for operators that ONNX itself defines by
simpler ones, which are imported in their place.

"""


def rows() -> dict[str, list[tuple[str, str, str]]]:
    """By domain: each operator, the opsets of its schemas, and how it is imported."""
    schemas = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        schemas[schema.domain, schema.name].append(schema)
    table: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for domain, name in sorted({*schemas, *CONVERTERS}):
        known = sorted(schemas.get((domain, name), ()), key=lambda schema: schema.since_version)
        versions = ", ".join(str(schema.since_version) for schema in known) or "all"
        found = sorted({entry.since for entry in CONVERTERS.get((domain, name), ())})
        has_body = any(s.has_function or s.has_context_dependent_function for s in known)
        how = ", ".join(map(str, found)) or ("body" if has_body else "not imported")
        table[domain].append((name, versions, how))
    return table


def page() -> str:
    """The text of the page."""
    parts = [HEAD]
    for domain, entries in rows().items():
        imported = sum(how != "not imported" for *_, how in entries)
        parts.append(f"## {domain or 'ai.onnx'}\n\n{imported} of {len(entries)} operators.\n\n")
        parts.append("| operator | versions | converters |\n| --- | --- | --- |\n")
        parts += [f"| {name} | {versions} | {how} |\n" for name, versions, how in entries]
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


def main() -> int:
    """Write the page, or with --check, say whether it is up to date."""
    text = page()
    if "--check" in sys.argv:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
