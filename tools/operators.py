"""Write docs/operators.md, a table of every operator, and the pages of the site about them.

Everything comes from the registry; an example is the first row of the operator's tests, printed.
`make format` writes the table, which a test compares with the registry; `make docs` has a page for
each family and each operator, and `--pages FOLDER` writes them.
"""

from __future__ import annotations

import inspect
import sys
import tomllib
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import relaxpy.exec.runtime.operators  # noqa: F401  (registers the implementations)
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.op_record import OpRecord
from relaxpy.ir.ops.definition.gradients import no_gradient
from relaxpy.ir.ops.definition.registry import OpDef, registered_ops
from relaxpy.ir.relax import nodes as rx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docstrings import entries, escaped, sections, sentence, toctree, written_or_checked  # noqa: E402

from tests.ir.ops.cases import CASES, Case  # noqa: E402

PAGE = ROOT / "docs" / "operators.md"
EXAMPLES = ROOT / "tools" / "operator_examples.toml"
HEAD = """# Operators

All operators of Relax, by family in the order of use, written by tools/operators.py from the
registry. `help(R.add)` shows the documentation of one; the site that `make docs` builds has a page
for each, with an example. [How to add an operator](how-to/add-an-operator.md) explains the columns.

- **computed by**: a kernel, which is generated for the call; an implementation on NumPy arrays at
  run time; or the function that is called.
- **gradient**: yes; 0 if the result is piecewise constant or has no floats; no if there is none.
- **mixed precision**: whether a call is computed in the narrower datatype always, if its operands
  follow it, or never.

"""
COLUMNS = """| operator | result | computed by | gradient | mixed precision |
| --- | --- | --- | --- | --- |
"""
HEADINGS = {
    "elementwise": "Elementwise",
    "reduction": "Reductions",
    "linear_algebra": "Products",
    "nn.activation": "Activations",
    "nn.convolution": "Convolutions",
    "nn.pooling": "Pooling",
    "nn.normalization": "Normalisation",
    "nn.dot_product_attention": "Attention",
    "nn.losses": "Losses",
    "nn.padding": "Padding",
    "creation": "Creation",
    "manipulate": "Rearrangement",
    "indexing": "Indexing",
    "scatter": "Scattering",
    "repetition": "Repetition",
    "sorting": "Sorting",
    "decision_trees": "Trees",
    "python_syntax": "Syntax",
    "image": "Images",
    "regions": "Regions",
    "vision": "Boxes",
    "quantization": "Quantisation",
    "misc": "Miscellaneous",
    "call": "Calls",
    "packed": "Functions",
    "grad": "Gradients",
    "ccl": "Collectives",
    "distributed": "Sharding",
    "": "",  # families that are not listed
    "layouts": "Layouts",
    "memory": "Memory",
    "vm": "Machine",
    "builtin": "Lowered",
}
"""The headings of the families of operators, in the order of use, lowered ones last."""
POLICIES = {0: "always", 1: "follow", 2: "never"}


class Default:
    """The default of a parameter, as signatures show it."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        if isinstance(self.value, str):
            return f'"{self.value}"'
        return repr(self.value)


def name_in_text(operator: OpDef) -> str:
    """The name of an operator in programs."""
    return operator.name.replace("relax.", "R.", 1)


def signature(operator: OpDef) -> str:
    """The signature of an operator as users call it, without annotations."""
    empty = inspect.Parameter.empty
    plain = [
        p.replace(annotation=empty, default=p.default if p.default is empty else Default(p.default))
        for p in inspect.signature(operator).parameters.values()
        if p.name != "span"
    ]
    return f"{name_in_text(operator)}{inspect.Signature(plain)}"


def computed_by(record: OpRecord) -> str:
    """Name what computes the result of a call."""
    if record.calls is not None:
        return record.calls.value.partition(",")[0]
    if record.legalize is not None:
        return "kernel"
    return "run time" if record.runtime is not None else "none"


def gradient(record: OpRecord) -> str:
    """The entry for the gradient of an operator."""
    if record.gradient is None:
        return "no"
    return "0" if record.gradient is no_gradient else "yes"


def example(operator: OpDef, cases: Sequence[Case], written: Sequence[str]) -> str | None:
    """A program that calls the operator, from one of its tests or from those `written`."""
    for case in cases:
        text = program(operator, case)
        if "metadata" not in text:
            return text
    call = f"{name_in_text(operator)}("
    return next((text.strip() for text in written if call in text), None)


def program(operator: OpDef, case: Case) -> str:
    """A test as a function, whose parameters are named after the operands."""
    names = [f"x{k}" if len(case.inputs) > 1 else "x" for k in range(len(case.inputs))]
    params = variables(case, names)
    call = case.call(*params)
    if isinstance(call, rx.Call) and call.op is operator.op:
        for arg, operand in zip(call.args, operator.signature.operands, strict=False):
            if arg in params and not operand.variadic:
                names[params.index(arg)] = operand.name  # type: ignore[arg-type]
    params = variables(case, names)
    call = case.call(*params)
    func = rx.Function(params, call, ret_struct_info=call.struct_info)
    text = func.with_attr("global_symbol", "main").script()
    return text[text.index("@R.function") :].rstrip()


def variables(case: Case, names: Sequence[str]) -> list[rx.Var]:
    """Parameters with the shapes and datatypes of the inputs of a test."""
    return [
        rx.Var(name, rx.TensorStructInfo(array.shape, DataType(array.dtype)))  # type: ignore[arg-type]
        for name, array in zip(names, case.inputs, strict=True)
    ]


def precision(record: OpRecord) -> str:
    """The entry for the mixed precision of an operator."""
    return POLICIES[record.precision_policy] if record.precision_policy is not None else ""


def row(operator: OpDef, folder: str | None) -> str:
    """The row of an operator in a table, with a link to its page in `folder`."""
    record, name = operator.record, name_in_text(operator)
    cells = [
        f"`{name}`" if folder is None else f"[{name}]({folder}{name}.md)",
        escaped(sentence(record.doc)),
        computed_by(record),
        gradient(record),
        precision(record),
    ]
    return f"| {' | '.join(cells)} |\n"


def details(operator: OpDef, program: str | None) -> Iterator[str]:
    """The documentation of an operator, with an example."""
    record = operator.record
    yield f"# {name_in_text(operator)}\n\n`{signature(operator)}`\n\n"
    parsed = sections(record.doc)
    yield f"{escaped(parsed.pop(''))}\n"
    facts = [
        f"computed by: {computed_by(record)}",
        f"gradient: {gradient(record)}",
        *([f"mixed precision: {policy}"] if (policy := precision(record)) else []),
        *(["impure"] if not record.pure else []),
        *(["commutative"] if record.commutative else []),
        *([f"`{record.sign}` in Python"] if record.sign else []),
        *(["its shape depends on elements of operands"] if record.data_dependent else []),
    ]
    listed = "; ".join(facts)
    yield f"\n{listed[0].upper()}{listed[1:]}.\n"
    for name, text in parsed.items():
        yield f"\n**{name}**\n\n"
        if name == "Rule":
            yield f"{escaped(text)}\n"
            continue
        for entry in entries(text):
            head, _, rest = entry.partition("  " if name == "Shapes" else ": ")
            label = f"`{head}`" if name == "Shapes" else escaped(head)
            yield f"- {label}: {escaped(rest.strip())}\n" if rest else f"- {escaped(entry)}\n"
    if program is not None:
        yield f"\n```python\n{program}\n```\n"


def family(module: str) -> str:
    """The name of a family of operators."""
    return module.removeprefix("relaxpy.ir.ops.")


def position(module: str) -> int:
    """The position of a family among the others."""
    return [*HEADINGS].index(family(module) if family(module) in HEADINGS else "")


def introduction(module: str) -> str:
    """The heading of a family of operators, and the first line of its module's docstring."""
    name = family(module)
    heading = HEADINGS.get(name) or name.rpartition(".")[2].capitalize().replace("_", " ")
    return (
        f"# {heading}\n\n{(sys.modules[module].__doc__ or module).strip().partition(chr(10))[0]}\n"
    )


def families() -> list[tuple[str, list[OpDef]]]:
    """The modules of operators in the order of `HEADINGS`, each with its operators."""
    ops = [op for op in registered_ops().values() if op.record.is_of_relaxpy]
    ops.sort(key=lambda op: (position(op.__module__), op.__module__, op.name))
    return [(m, list(members)) for m, members in groupby(ops, key=lambda op: op.__module__)]


def page(*, linked: bool = False) -> str:
    """The text of the page of all operators."""
    out = [HEAD]
    for module, members in families():
        rows = "".join(row(operator, "operators/" if linked else None) for operator in members)
        out.append(f"#{introduction(module)}\n{COLUMNS}{rows}\n")
    out[-1] = out[-1][:-1]
    return "".join(out)


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of each page of the site about operators."""
    cases: dict[str, list[Case]] = {}
    for case in CASES:
        cases.setdefault(case.operator, []).append(case)
    written = tomllib.loads(EXAMPLES.read_text(encoding="utf-8"))["programs"]
    listed = []
    for module, members in families():
        listed.append(f"operators/{family(module)}.md")
        rows = "".join(row(operator, "") for operator in members)
        names = [f"{name_in_text(operator)}.md" for operator in members]
        yield listed[-1], f"{introduction(module)}\n{COLUMNS}{rows}{toctree(names)}"
        for operator, name in zip(members, names, strict=True):
            program = example(operator, cases.get(operator.name, []), written)
            yield f"operators/{name}", "".join(details(operator, program))
    yield "operators.md", page(linked=True) + toctree(listed)


if __name__ == "__main__":
    sys.exit(written_or_checked(PAGE, page, pages))
