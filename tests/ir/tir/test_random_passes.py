"""Passes over kernels on random kernels: each stores the same values before and after."""

import re

import pytest

import relaxpy
from relaxpy.errors import TransformError
from relaxpy.ir.module import IRModule
from relaxpy.script import from_source
from relaxpy.tir import transform
from relaxpy.transform import Pass
from tests.fuzz.kernels.compare import Finished, _expected, _found
from tests.fuzz.kernels.generate import generate
from tests.fuzz.kernels.oracle import Oracle
from tests.fuzz.seed import COUNT


def _with_conditions(text: str) -> str:
    """The same program, whose loops have a condition that holds around all that they do."""
    lines: list[str] = []
    loops: list[int] = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        while loops and indent <= loops[-1]:
            loops.pop()
        deeper = "    " * len(loops)
        lines.append(deeper + line)
        extent = re.fullmatch(r" *for \w+ in range\(([^,]*)\):", line)
        if extent:
            lines.append(f"{deeper}{' ' * (indent + 4)}if ({extent[1]}) > 0:")
            loops.append(indent)
    return "\n".join(lines) + "\n"


@pytest.mark.rule("OPT-1")
@pytest.mark.parametrize(
    "step",
    [
        transform.Simplify(),
        transform.RemoveNoOp(),
        transform.ForceNarrowIndexToInt32(),
        transform.LowerInitBlock(),
        transform.ConvertBlocksToOpaque(),
        transform.UnrollLoop(),
        transform.HoistIfThenElse(),
    ],
)
def test_random_kernels_store_the_same_values(step: Pass) -> None:
    compared = 0
    for number in range(10 * COUNT):
        if number >= COUNT and compared > 1:
            break
        program = generate(f"pass/{number}")
        text = program.text
        if isinstance(step, transform.UnrollLoop):
            text = text.replace("in range(", "in T.unroll(")
        if isinstance(step, transform.HoistIfThenElse):
            text = _with_conditions(text)
        func = from_source(text)
        try:
            after = step(IRModule({"f": func}))["f"]
        except TransformError:  # of elements of 64 bits, and blocks bound to elements
            continue
        if after is func or program.may_crash:
            continue
        oracle = Oracle(program.text)
        function = relaxpy.compile(after, target="reference")[func.attrs["global_symbol"]]
        for call in program.calls:
            expected = _expected(oracle, call)
            if isinstance(expected, Finished):
                compared += 1
                assert _found("reference", function, call, expected) is None, program.text
    assert compared > 1
