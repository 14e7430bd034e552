"""Write docs/passes.md, a table of every pass, and the pages of the site about them.

The examples are the files of examples/passes, all else comes from the docstrings. `make format`
writes the table, which a test compares with them; `make docs` has a page for each purpose and each
pass, and `--pages FOLDER` writes them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from docstrings import entries, escaped, sections, sentence, toctree, written_or_checked

from relaxpy.ir.pass_infra.passes import Pass
from relaxpy.ir.passes.compile import STEPS
from relaxpy.ir.transform import pipelines
from relaxpy.plugins.cli.named_passes import example, public_passes, signature

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "passes.md"
HEAD = """# Passes

All passes over Relax programs and their kernels, by their purpose, written by tools/passes.py from
their docstrings. `relaxpy passes NAME` shows the options, the documentation and an example of one,
and so does its page of the site that `make docs` builds;
[running passes](running-passes.md) shows how to run, watch and compare them, and
[how to add a pass](how-to/add-a-pass.md) how to write one. The names are those of TVM's
`tvm.relax.transform`, `tvm.relax.training`, `tvm.relax.distributed.transform` and
`tvm.tir.transform`, where they have the same pass. Two
passes of TVM's first versions are parts of others, as in later versions: `FoldDataflowBlockOutput`
of `CanonicalizeBindings`, and `SimplifyNormInference` of `DecomposeOpsForInference`.

"""
PIPELINES_HEAD = """## Pipelines

| `get_pipeline(name)` | passes |
| --- | --- |
"""
STEPS_HEAD = """
## Passes of compile

The pipeline "default", which `relaxpy.compile` runs, is these passes, in order. The target
"reference" has `Normalize` and `LegalizeOps` alone.

| pass | targets | reason for its position |
| --- | --- | --- |
"""
COLUMNS = """| pass | what it does |
| --- | --- |
"""
ROOMS = {
    "passes": "Normal form and kernels",
    "passes.cleanup": "Cleaning: bindings, functions and their parameters",
    "passes.params": "Parameters: values in place of them, and what depends on them alone",
    "passes.algebra": "Algebra: the laws of operators, and precision",
    "passes.layout": "Layouts of tensors",
    "passes.fusion": "Fusion, and functions for back ends",
    "passes.gradient": "Gradients",
    "plugins.training": "Training",
    "passes.lowering": "Lowering: explicit calls",
    "passes.distributed": "Several devices, in relaxpy.relax.distributed.transform",
    "tvm.cleanup": "Passes of TVM over bindings, functions and virtual devices",
    "tvm.params": "Passes of TVM that read parameters and write outputs one by one",
    "tvm.layout": "Passes of TVM that choose layouts by hand",
    "tvm.libraries": "Passes of TVM that partition a module by libraries",
    "tvm.lowering": "Lowering to TVM's virtual machine: memory, shapes, purity",
    "tvm.tir": "Kernels, in relaxpy.tir.transform",
}
"""The titles of the groups of passes, in the order of the page. Most of them are packages."""
MODULES = {
    "passes.bind_params": "passes.params",
    "passes.lift_transform_params": "passes.params",
    "passes.quantize_weights": "passes.params",
    "passes.convert_layout": "passes.layout",
    "passes.gradient": "passes.gradient",
    "passes.append_in_place": "passes.lowering",
    "tvm.lazy_params": "tvm.params",
    "tvm.alter_layout": "tvm.layout",
}
"""The groups of the passes of some modules."""


def room(cls: type[Pass]) -> str:
    """The group that a pass belongs to."""
    module = cls.__module__.removeprefix("relaxpy.").removeprefix("ir.")
    return MODULES.get(module, module.rpartition(".")[0])


def details(name: str, cls: type[Pass]) -> Iterator[str]:
    """The documentation of a pass, with its example."""
    parsed = sections(cls.__doc__ or "")
    yield f"# {name}\n\n`{signature(cls)}`\n\n{escaped(parsed[''])}\n"
    for heading in ("Rule", "Units"):
        if heading in parsed:
            yield f"\n**{heading}**: {escaped(parsed[heading])}\n"
    if "Errors" in parsed:
        yield "\n**Errors**\n\n"
        for entry in entries(parsed["Errors"]):
            yield f"- {escaped(entry)}\n"
    if text := example(name):
        yield f"\n```python\n{text.strip()}\n```\n"


def rows_of_pipelines() -> Iterator[str]:
    """The rows of the table of pipelines."""
    for name, create in sorted(pipelines().items()):
        yield f'| "{name}" | {escaped(sentence(create.__doc__ or ""))} |\n'


def rows_of_compile() -> Iterator[str]:
    """The rows of the table of the passes that `compile` runs."""
    for step in STEPS:
        name = type(step.create()).__name__
        yield f"| **{name}** | {step.on} | {escaped(step.reason)} |\n"


def row(name: str, cls: type[Pass], folder: str | None) -> str:
    """The row of a pass in a table, with a link to its page in `folder`."""
    cell = f"`{name}`" if folder is None else f"[{name}]({folder}{name}.md)"
    return f"| {cell} | {escaped(sentence(cls.__doc__ or ''))} |\n"


def rooms() -> list[tuple[str, list[tuple[str, type[Pass]]]]]:
    """The groups of passes, each with its passes by name."""
    order = list(ROOMS)
    known = sorted(public_passes().items(), key=lambda item: (order.index(room(item[1])), item[0]))
    return [(package, list(m)) for package, m in groupby(known, key=lambda item: room(item[1]))]


def page(*, linked: bool = False) -> str:
    """The text of the page of all passes."""
    out = [HEAD]
    for package, members in rooms():
        rows = "".join(row(name, cls, "passes/" if linked else None) for name, cls in members)
        out.append(f"## {ROOMS[package]}\n\n{COLUMNS}{rows}\n")
    return "".join([*out, PIPELINES_HEAD, *rows_of_pipelines(), STEPS_HEAD, *rows_of_compile()])


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of each page of the site about passes."""
    listed = []
    for package, members in rooms():
        listed.append(f"passes/{package}.md")
        rows = "".join(row(name, cls, "") for name, cls in members)
        names = [f"{name}.md" for name, _ in members]
        yield listed[-1], f"# {ROOMS[package]}\n\n{COLUMNS}{rows}{toctree(names)}"
        for name, cls in members:
            yield f"passes/{name}.md", "".join(details(name, cls))
    yield "passes.md", page(linked=True) + toctree(listed)


if __name__ == "__main__":
    sys.exit(written_or_checked(PAGE, page, pages))
