"""Operators beside PyTorch: values, gradients and second derivatives.

`torch_functions.TABLE` has the function of PyTorch for each operator, or why there is none; the
calls, with all their options, are the rows in `cases`. Where PyTorch is not installed, only the
table is checked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from relaxpy.exec.compile import compile
from relaxpy.ir.relax.op.definition.gradients import no_gradient
from relaxpy.ir.relax.op.definition.registry import registered_ops
from tests.fuzz.seed import SEED
from tests.ir.relax.op.cases import CASES, Case
from tests.ir.relax.op.comparison import check, define, epsilon, is_float
from tests.ir.relax.op.torch_functions import TABLE, NoCounterpartError, torch
from tests.ir.relax.op.torch_functions.random_rows import FAMILIES
from tests.ir.relax.op.torch_functions.rows import Derivatives, definition, in_floats
from tests.ir.relax.op.variants import is_taken, module

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")

_AS_TVM = "at 0, or where operands are equal, the gradient is that of TVM"
_NAN = "what NaN and infinities give is another convention"
_CANCELS = "nearly all digits cancel"
#: Rows that PyTorch refuses, or defines in another way.
OTHER_VALUES = {
    "add-prim": "its scalar is of float32, and counterparts are called in float64",
    "arange-(4, 1)": "a range of no numbers is an error",
    "clip-wide bounds": "bounds are numbers of the datatype",
    "split-a cut in front of the axis": "a negative cut counts from the end",
    "split-one part": "one part is a tuple",
    "nn.conv2d-no channels": "sums of no channels have no channels",
    "nn.conv2d-no window": "a window that does not fit is an error",
    "image.resize2d-no elements": "an image without elements is an error",
}
#: Rows whose gradients differ from PyTorch's, and why.
OTHER_GRADIENTS = {
    **OTHER_VALUES,
    **dict.fromkeys(("nn.relu-special", "maximum-special", "minimum-special"), _AS_TVM),
    **dict.fromkeys(("abs-special", "rsqrt-special", "sign-special", "prod-nan"), _NAN),
    **dict.fromkeys(("log_add_exp-special", "nn.selu-special", "floor_mod-special"), _NAN),
    "nn.layer_norm-far from zero": _CANCELS,
}


@pytest.mark.parametrize("name", sorted(n for n in registered_ops() if n.startswith("relax.")))
def test_a_differentiable_operator_has_a_counterpart_or_a_reason(name: str) -> None:
    has_gradient = registered_ops()[name].record.gradient is not None
    assert has_gradient == (name.removeprefix("relax.") in TABLE)


WITH_COUNTERPART = sorted(
    n for n, function in TABLE.items() if torch is not None and not isinstance(function, str)
)
ROWS: dict[str, list[Case]] = {name: [] for name in WITH_COUNTERPART}
for _case in CASES:
    if (_name := _case.operator.removeprefix("relax.")) in ROWS:
        ROWS[_name].append(_case)


def _rule(name: str) -> object:
    return registered_ops()[f"relax.{name}"].record.gradient


DIFFERENTIABLE = [
    name
    for name in WITH_COUNTERPART
    if _rule(name) is not no_gradient
    and any(x.dtype.kind == "f" for case in ROWS[name] for x in case.inputs)
]


def compared(
    config: pytest.Config, name: str, rows: list[Case], compare: Callable[[Case], None]
) -> Iterator[str]:
    """What differs in a row that is drawn, or in all rows; rows without a counterpart are left."""
    order = random.Random(f"{SEED} {name}").sample(rows, len(rows))
    done = 0
    for case in order:
        try:
            compare(case)
            done += 1
        except (NoCounterpartError, NotImplementedError):  # the latter for datatypes
            continue
        except (IndexError, RuntimeError):  # PyTorch refuses many tensors without elements
            if all(x.size and 0 not in x.shape for x in case.inputs):
                raise
            continue
        except AssertionError as difference:
            done += 1
            yield f"{case.name}: {difference}"
        if not config.getoption("--whole-table"):
            break
    if not done:
        yield "no row has a counterpart"


def assert_alike(
    request: pytest.FixtureRequest, name: str, rows: list[Case], compare: Callable[[Case], None]
) -> None:
    with np.errstate(all="ignore"):
        found = list(compared(request.config, name, rows, compare))
    assert not found, "\n".join([f"RELAXPY_FUZZ_SEED={SEED}", *found])


@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", ["native", "numpy"])
@pytest.mark.parametrize("name", WITH_COUNTERPART)
def test_values(name: str, target: str, request: pytest.FixtureRequest) -> None:
    def compare(case: Case) -> None:
        expected = define(definition(case), case.inputs)
        found = compile(module(case, case.inputs, "static"), target)["main"](*case.inputs)
        check(found, expected, case.roundings)

    rows = [case for case in ROWS[name] if case.name not in OTHER_VALUES]
    assert_alike(request, name, rows, compare)


def compare_derivatives(case: Case, order: int, *, symbolic: bool) -> None:
    derivatives = Derivatives(case)
    expected = derivatives.by_torch(order)
    program = derivatives.program(order, symbolic=symbolic)
    operands = (*case.inputs, *derivatives.weights, *derivatives.moves)
    _, found = compile(program, "reference" if symbolic else "numpy")["main_adjoint"](*operands)
    bound = 1000 * max(epsilon(x.dtype) for x in (*found, *derivatives.weights) if is_float(x))
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours.shape == theirs.shape
        largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=1)
        close = np.isclose(ours, theirs, rtol=bound, atol=bound * largest, equal_nan=True)
        assert close.all(), (
            f"derivative {number}: {ours[~close][:4]} instead of {theirs[~close][:4]}"
        )


@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives(name: str, dtype: str, order: int, request: pytest.FixtureRequest) -> None:
    rows = [
        case
        for case in ROWS[name]
        if case.name not in OTHER_GRADIENTS
        and any(x.dtype.kind == "f" for x in case.inputs)
        and is_taken(case, in_floats(case, dtype).inputs)
    ]

    def compare(case: Case) -> None:
        symbolic = dtype == "float64" and "numbers" not in case.needs
        compare_derivatives(in_floats(case, dtype), order, symbolic=symbolic)

    assert_alike(request, name, rows, compare)


@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES if torch is not None else [])
def test_random_options(family: str, request: pytest.FixtureRequest) -> None:
    count = 20 if request.config.getoption("--whole-table") else 1
    for number in range(count):
        case = FAMILIES[family](random.Random(f"{SEED} {family} {number}"))
        with np.errstate(all="ignore"):
            expected = define(definition(case), case.inputs)
            target = ("native", "numpy")[number % 2]
            found = compile(module(case, case.inputs, "static"), target)["main"](*case.inputs)
            check(found, expected, 16)
            if registered_ops()[case.operator].record.gradient is not no_gradient:
                compare_derivatives(in_floats(case, "float64"), 1 + number % 2, symbolic=True)
