"""Write docs/passes.md: every pass with its options, documentation and an example.

The examples are the files of examples/passes, all else comes from the docstrings. `make format`
runs it; a test compares the page with them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from docstrings import entries, escaped, sections, sentence

from relaxpy.cli.passes import example, public_passes, signature
from relaxpy.ir.pass_infra.passes import Pass
from relaxpy.ir.relax.pipelines import PIPELINES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "passes.md"
HEAD = """# Passes

All passes over Relax programs and their kernels, by their purpose. The page is written by
tools/passes.py from their docstrings and the files of examples/passes;
[running passes](running-passes.md) shows how to run, watch and compare them, and
[how to add a pass](how-to/add-a-pass.md) how to write one. The names are those of TVM's
`tvm.relax.transform`, `tvm.relax.training`, `tvm.relax.distributed.transform` and
`tvm.tir.transform`, where they have the same pass. Two
passes of TVM's first versions are parts of others, as in later versions: `FoldDataflowBlockOutput`
of `CanonicalizeBindings`, and `SimplifyNormInference` of `DecomposeOpsForInference`.

"""
PIPELINES_HEAD = """## Pipelines

| `get_pipeline` | passes |
| --- | --- |
"""
EXAMPLES = """The examples show a module before and after the pass, as does `relaxpy passes NAME`.
"""
ROOMS = {
    "transform": "Normal form, kernels, and passes that leave every module as it is",
    "transform.cleanup": "Cleaning: bindings, functions and their parameters",
    "transform.params": "Parameters: values in place of them, and what depends on them alone",
    "transform.algebra": "Algebra: the laws of operators, and precision",
    "transform.layout": "Layouts of tensors",
    "transform.fusion": "Fusion, and functions for back ends",
    "transform.gradient": "Gradients",
    "training": "Training",
    "transform.lowering": "Lowering: explicit calls, memory and checks",
    "transform.distributed": "Several devices, in relaxpy.relax.distributed.transform",
    "tir.transform": "Kernels, in relaxpy.tir.transform",
}
"""The titles of the packages that passes belong to, in the order of the page."""


def room(cls: type[Pass]) -> str:
    """Return the package that a pass belongs to."""
    return cls.__module__.removeprefix("relaxpy.ir.").removeprefix("relax.").rpartition(".")[0]


def details(name: str, cls: type[Pass]) -> Iterator[str]:
    """Yield the documentation of a pass, with its example."""
    parsed = sections(cls.__doc__ or "")
    yield f"\n### {name}\n\n`{signature(cls)}`\n\n{escaped(parsed[''])}\n"
    for heading in ("Rule", "Units"):
        if heading in parsed:
            yield f"\n{heading}: {escaped(parsed[heading])}\n"
    if "Errors" in parsed:
        yield "\nErrors:\n\n"
        for entry in entries(parsed["Errors"]):
            yield f"- {escaped(entry)}\n"
    if text := example(name):
        yield f"\n```python\n{text.strip()}\n```\n"


def pipelines() -> Iterator[str]:
    """Yield the rows of the table of pipelines."""
    for name, create in sorted(PIPELINES.items()):
        yield f'| "{name}" | {escaped(sentence(create.__doc__ or ""))} |\n'


def page() -> str:
    """Return the text of the page."""
    order = list(ROOMS)
    known = sorted(public_passes().items(), key=lambda item: (order.index(room(item[1])), item[0]))
    out = [HEAD]
    for package, members in groupby(known, key=lambda item: room(item[1])):
        out.append(f"## {ROOMS[package]}\n\n| pass | what it does |\n| --- | --- |\n")
        for name, cls in members:
            text = escaped(sentence(cls.__doc__ or ""))
            out.append(f"| [{name}](#{name.lower()}) | {text} |\n")
        out.append("\n")
    out += [PIPELINES_HEAD, *pipelines(), f"\n## Details\n\n{EXAMPLES}"]
    for name, cls in known:
        out += details(name, cls)
    return "".join(out)


def main() -> int:
    """Write the page; with `--check`, return whether it is outdated instead."""
    if "--check" not in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page())


if __name__ == "__main__":
    sys.exit(main())
