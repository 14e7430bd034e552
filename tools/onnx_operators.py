"""Write docs/onnx-operators.md: the operators of ONNX that are imported, and their opsets.

The table comes from the converters and from the schemas of the package onnx. `make format` runs it;
a test compares the file with them.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import onnx

from relaxpy.plugins.onnx.context import CONVERTERS, find

PAGE = Path(__file__).parents[1] / "docs" / "onnx-operators.md"
HEAD = """# Operators of ONNX

What `from_onnx` imports; [ONNX models](onnx.md) shows how. The page is written by
tools/onnx_operators.py from the converters and the schemas of ONNX. *Converters* are the opsets
from which a converter of relaxpy is used; *body* stands for operators that ONNX itself defines by
simpler ones, which are imported in their place. *Strings* says, where ONNX admits tensors of
strings as operands, whether they are imported.

"""


def rows() -> dict[str, list[tuple[str, str, str, str]]]:
    """By domain: each operator, the opsets of its schemas, how it is imported, and strings."""
    find("", "no operator", 1)  # which loads all converters
    schemas = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        schemas[schema.domain, schema.name].append(schema)
    table: dict[str, list[tuple[str, str, str, str]]] = defaultdict(list)
    for domain, name in sorted({*schemas, *CONVERTERS}):
        known = sorted(schemas.get((domain, name), ()), key=lambda schema: schema.since_version)
        versions = ", ".join(str(schema.since_version) for schema in known) or "all"
        entries = CONVERTERS.get((domain, name), [])
        found = sorted({entry.since for entry in entries})
        has_body = any(s.has_function or s.has_context_dependent_function for s in known)
        how = ", ".join(map(str, found)) or ("body" if has_body else "not imported")
        admits = any("tensor(string)" in x.types for s in known[-1:] for x in s.inputs)
        takes = any(entry.strings for entry in entries) or how == "body"
        strings = ("yes" if takes else "no") if admits or any(e.strings for e in entries) else ""
        table[domain].append((name, versions, how, strings))
    return table


def page() -> str:
    """The text of the page."""
    parts = [HEAD]
    for domain, entries in rows().items():
        imported = sum(how != "not imported" for _, _, how, _ in entries)
        parts.append(f"## {domain or 'ai.onnx'}\n\n{imported} of {len(entries)} operators.\n\n")
        parts.append("| operator | versions | converters | strings |\n| --- | --- | --- | --- |\n")
        parts += [f"| {' | '.join(entry)} |\n" for entry in entries]
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
