"""The rows in every datatype and shape class, from any memory, with all that may be unknown.

`make test` draws from this table with the seed, a row of a third of the operators; `make
test-all` compares all rows in all datatypes (`--whole-table`).
"""

import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from relaxpy.errors import RelaxpyError
from relaxpy.exec.api.compile import compile
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import memory_of
from tests.fuzz.seed import SEED
from tests.ir.ops import variants
from tests.ir.ops.cases import CASES, Array, Case
from tests.ir.ops.comparison import Definition, check, define, is_float
from tests.rows import third

ROWS: dict[str, list[Case]] = {}
for _case in CASES:
    ROWS.setdefault(_case.operator, []).append(_case)
#: In how many ways a row of the whole table is compiled; the other ways are those of the next rows.
WAYS = 2
#: All ways to compile a row.
ALL_WAYS = [*product(variants.KNOWLEDGE, variants.TARGETS)]


@dataclass(frozen=True)
class Example:
    """Inputs, whether the operator takes their shapes, and what it is there, if that is defined."""

    inputs: variants.Inputs
    taken: bool
    definition: Definition | None


def examples(case: Case) -> list[Example]:
    own = variants.Inputs(case.inputs, "as in the row")
    as_written = Example(own, variants.is_taken(case, own.arrays), defined(case, own.arrays))
    return [
        as_written,
        *(replace(as_written, inputs=inputs) for inputs in variants.arranged(case)),
        *(
            replace(as_written, inputs=inputs, definition=defined(case, inputs.arrays))
            for inputs in variants.special(case)
        ),
        *(
            Example(inputs, variants.is_taken(case, inputs.arrays), defined(case, inputs.arrays))
            for inputs in variants.resized(case)
        ),
    ]


def defined(case: Case, arrays: tuple[np.ndarray, ...]) -> Definition | None:  # type: ignore[type-arg]
    """The definition, or None where there is none: at an index out of bounds, or of no numbers.

    What overflows as float64 does, or is not finite there, has no meaning in integers.
    """
    whole = not any(map(is_float, arrays))
    try:
        with (
            np.errstate(all="ignore", divide="raise" if whole else "ignore"),
            warnings.catch_warnings(action="ignore"),
        ):
            definition = define(case.expected, arrays)
    except (ArithmeticError, IndexError, StopIteration, TypeError, ValueError):
        return None
    reals = [v for v in definition.values if v.dtype.kind == "f"]
    if whole and any(not np.all(np.abs(v.astype("float64")) < 2**24) for v in reals):
        return None
    return definition


def problems(case: Case, given: list[Example], knowledge: str, target: str) -> Iterator[str]:
    """What a compiled call gets wrong. One program serves all shapes that it need not know."""
    groups: dict[object, list[Example]] = {}
    for example in given:
        key = example.inputs.shapes if knowledge == "static" else None
        arrays = example.inputs.arrays
        is_literal = all(arrays[k].shape[a] == case.inputs[k].shape[a] for k, a in case.literal)
        if knowledge != "symbolic" or (is_literal and example.inputs.keeps_ones(case.inputs)):
            groups.setdefault(key, []).append(example)
    for group in groups.values():
        if not group[0].taken:
            continue
        mod = variants.module(case, group[0].inputs.arrays, knowledge)
        try:
            main = compile(mod, target)["main"]
        except RelaxpyError as refusal:
            if group[0].definition is not None:
                yield f"{group[0].inputs.label}: {refusal}"
            continue
        for example in group:
            before = [x.tobytes() for x in example.inputs.arrays]
            try:
                with np.errstate(all="ignore"):
                    found = main(*example.inputs.arrays)
                if returns_new(mod) and shares(found, example.inputs.arrays):
                    yield f"{example.inputs.label}: the result lies in the memory of an operand"
                # Sizes that only a rule of struct info refuses may go unnoticed at run time.
                if example.definition is not None and example.taken:
                    check(found, example.definition, case.roundings)
            except RelaxpyError as refusal:
                if example.definition is not None and example.taken:
                    yield f"{example.inputs.label}: {refusal}"
            except AssertionError as difference:
                yield f"{example.inputs.label}: {difference}"
            if before != [x.tobytes() for x in example.inputs.arrays]:
                yield f"{example.inputs.label}: an operand was changed"


def returns_new(mod: IRModule) -> bool:
    """Whether the result of all calls in `main` is declared to be new memory."""
    calls = [node for node in walk(mod["main"]) if isinstance(node, rx.Call)]
    return all(memory is None or memory.is_new for memory in map(memory_of, calls))


def shares(found: Any, operands: tuple[Array, ...]) -> bool:
    """Whether a result, or a field of it, lies in the memory of an operand."""
    fields = found if isinstance(found, tuple) else (found,)
    return any(np.shares_memory(a, b) for a in fields for b in operands)


def compare(case: Case, dtype: str, ways: list[tuple[str, str]]) -> list[str]:
    given = examples(case)
    return [
        f"{case.name} in {dtype}, {knowledge}, {target}: {problem}"
        for knowledge, target in ways
        for problem in problems(case, given, knowledge, target)
    ]


def possible(case: Case) -> list[tuple[str, str]]:
    return [way for way in ALL_WAYS if variants.is_possible(case, way[0])]


def drawn(operator: str) -> Iterator[tuple[Case, str, list[tuple[str, str]]]]:
    """Rows of an operator in datatypes that it takes, with ways to compile them."""
    draw = random.Random(f"{SEED} {operator}")
    pairs = [(row, dtype) for row in ROWS[operator] for dtype in variants.dtypes(row)]
    for row, dtype in draw.sample(pairs, len(pairs)):
        case = variants.in_dtype(row, dtype)
        if variants.is_taken(case, case.inputs):
            yield case, dtype, draw.sample(possible(case), min(1, len(possible(case))))
            return


def whole(row: Case) -> Iterator[tuple[Case, str, list[tuple[str, str]]]]:
    """A row in all datatypes; operators of few rows in all ways, others with each row in some."""
    rows = ROWS[row.operator]
    for k, dtype in enumerate(variants.dtypes(row)):
        case = variants.in_dtype(row, dtype)
        if variants.is_taken(case, case.inputs):
            first = WAYS * (rows.index(row) + k)
            ways = [ALL_WAYS[n % len(ALL_WAYS)] for n in range(first, first + WAYS)]
            few = len(rows) * WAYS < len(ALL_WAYS)
            yield case, dtype, [way for way in possible(case) if few or way in ways]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.config.getoption("--whole-table"):
        metafunc.parametrize("row", CASES, ids=lambda row: row.name)
    else:
        firsts = third(rows[0] for rows in ROWS.values())
        metafunc.parametrize("row", firsts, ids=lambda r: r.operator)


@pytest.mark.timeout(3000)  # the longest row of the whole table, on a busy machine
def test_rows_are_right_in_other_datatypes_shapes_and_memory(row, request) -> None:
    everything = request.config.getoption("--whole-table")
    found = [
        problem
        for case, dtype, ways in (whole(row) if everything else drawn(row.operator))
        for problem in compare(case, dtype, ways)
    ]
    assert not found, "\n".join([f"RELAXPY_FUZZ_SEED={SEED}", *found])
