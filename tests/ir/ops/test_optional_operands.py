"""An operand that a call leaves out keeps its position: later operands stay what they are."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.exec.api.compile import compile
from relaxpy.ir import IRModule, assert_structural_equal, ops as op
from relaxpy.ir.ops.definition.registry import OpDef, register
from relaxpy.ir.ops.definition.rules import by_te
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.serialize import load_json, save_json
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.script import from_source
from tests.ir.ops.scratch import forgotten_operators
from tests.ir.relax.graphs import var
from tests.ir.relax.sinfos import tensor

WEIGHTS = {"a": 10, "b": 100, "c": 1000}
PRESENT = [
    [n for n, kept in zip("abc", flags, strict=True) if kept] for flags in product((0, 1), repeat=3)
]


@pytest.fixture
def forget() -> Iterator[None]:
    with forgotten_operators():
        yield


def _weighted(
    x: Tensor, a: Tensor | None = None, b: Tensor | None = None, c: Tensor | None = None
) -> Tensor:
    x = topi.identity(x)
    for factor, operand in zip(WEIGHTS.values(), (a, b, c), strict=True):
        if operand is not None:
            x = topi.add(x, topi.multiply(operand, factor))
    return x


@pytest.fixture
def weighted(forget: None) -> OpDef:
    """x + 10 * a + 100 * b + 1000 * c; `b` and `c` by name only, an attribute among them."""

    @register("relax.weighted", pure=True, legalize=by_te(_weighted, "weighted"))
    def weighted(
        x: rx.TensorStructInfo,
        a: rx.TensorStructInfo | None = None,
        *,
        b: rx.TensorStructInfo | None = None,
        c: rx.TensorStructInfo | None = None,
    ) -> rx.TensorStructInfo:
        return x

    return weighted


def source(present: list[str], annotation: str) -> str:
    params = ", ".join(f"{name}: {annotation}" for name in ("x", *present))
    named = "".join(f", {name}={name}" for name in present)
    return f"@R.function\ndef main({params}):\n    y = R.weighted(x{named})\n    return y\n"


@pytest.mark.rule("OP-16")
@pytest.mark.parametrize("present", PRESENT)
@pytest.mark.parametrize("annotation", ['R.Tensor((2,), "float32")', "R.Tensor"])
def test_every_subset_of_optional_operands_runs_prints_and_saves(weighted, present, annotation):
    module = IRModule({"main": from_source(source(present, annotation))})
    expected = 1 + sum(WEIGHTS[name] for name in present)
    for same in (module, from_source(module.script()), load_json(save_json(module))):
        assert isinstance(same, IRModule)
        assert_structural_equal(same, module)
        for target in ("numpy", "reference"):
            found = compile(same, target)["main"](*[np.ones(2, "float32")] * (1 + len(present)))
            np.testing.assert_array_equal(found, np.full(2, expected))


def test_the_rule_receives_none_for_an_absent_operand(forget: None) -> None:
    received: list[object] = []

    @register("relax.listening", pure=True)
    def listening(
        x: rx.TensorStructInfo,
        a: rx.TensorStructInfo | None = None,
        b: rx.ShapeStructInfo | None = None,
        *rest: rx.PrimStructInfo,
        scale: int = 1,
    ) -> rx.TensorStructInfo:
        received[:] = [a, b, rest, scale]
        return x

    x = var("x", tensor(2))
    one = rx.PrimValue(1)
    call = listening(x, None, None, one, scale=3)
    assert received == [None, None, (one.struct_info,), 3]
    assert listening.operands(call) == (x, None, None, one)
    listening(x, None, [5])
    assert received == [None, rx.ShapeStructInfo([5]), (), 1]


def test_an_attribute_may_come_before_an_operand(forget: None) -> None:
    @register("relax.shuffled", pure=True)
    def shuffled(axis: int, x: rx.TensorStructInfo) -> rx.TensorStructInfo:
        assert axis == 3
        return x

    @register("relax.gathered", pure=True)
    def gathered(axis: int, *x: rx.TensorStructInfo) -> rx.TensorStructInfo:
        assert axis == 3
        return x[-1]

    assert shuffled(3, var("x", tensor(2))).struct_info == tensor(2)
    func = from_source("""@R.function
def main(x: R.Tensor((2,)), y: R.Tensor((3,))) -> R.Tensor((3,)):
    a = R.shuffled(3, x)
    b = R.gathered(3, a, y)
    return b
""")
    assert isinstance(func, rx.Function)
    assert_structural_equal(from_source(func.script()), func)


def test_an_operand_that_may_be_a_tuple_is_not_left_out_before_another(forget: None) -> None:
    @register("relax.ambiguous", pure=True)
    def ambiguous(
        x: rx.TensorStructInfo,
        pair: rx.TupleStructInfo | None = None,
        y: rx.TensorStructInfo | None = None,
    ) -> rx.TensorStructInfo:
        return x

    x = var("x", tensor(2))
    with pytest.raises(MisuseError, match="pair cannot be omitted before a later operand"):
        ambiguous(x, y=x)
    assert ambiguous(x).args == (x,)


def test_a_variable_that_holds_unit_is_an_absent_operand() -> None:
    unit = var("u", rx.TupleStructInfo(()))
    assert op.memory.view(var("x", tensor(2, 3)), unit, unit, unit).struct_info == tensor(2, 3)
