"""Python's operators on expressions are calls of operators, with numbers and arrays beside them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import MisuseError, StructInfoError
from relaxpy.ir import ops as op
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.script import from_source
from tests.ir.relax.sinfos import prim, shape, tensor, tuple_of

X, Y = rx.Var("x", tensor(2, 3)), rx.Var("y", tensor(3))
SIGNS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("add", lambda a, b: a + b),
    ("subtract", lambda a, b: a - b),
    ("multiply", lambda a, b: a * b),
    ("divide", lambda a, b: a / b),
    ("floor_divide", lambda a, b: a // b),
    ("power", lambda a, b: a**b),
    ("less", lambda a, b: a < b),
    ("less_equal", lambda a, b: a <= b),
    ("greater", lambda a, b: a > b),
    ("greater_equal", lambda a, b: a >= b),
]
MIRRORED = {"less": "greater", "less_equal": "greater_equal"}
MIRRORED |= {b: a for a, b in MIRRORED.items()}


@pytest.mark.parametrize(("name", "apply"), SIGNS)
def test_signs_are_calls(name: str, apply: Callable[[Any, Any], Any]) -> None:
    call = apply(X, Y)
    assert call.op is Op(f"relax.{name}")
    assert call.args == (X, Y)
    assert call.struct_info == tensor(2, 3, dtype="bool" if name in MIRRORED else "float32")
    assert apply(X, 2).args[1].data == np.float32(2)
    left = apply(2, X)
    assert left.op is Op(f"relax.{MIRRORED.get(name, name)}")
    constant = left.args[name in MIRRORED]
    assert isinstance(constant, rx.Constant)


def test_arrays_leave_the_operation_to_the_expression() -> None:
    row = np.ones(3, "float32")
    for call in (row + X, X + row, np.float32(2) + X):
        assert call.op is Op("relax.add")
        assert call.struct_info == tensor(2, 3)


def test_the_other_methods() -> None:
    assert (-X).op is Op("relax.negative")
    assert (X @ rx.Var("w", tensor(3, 4))).struct_info == tensor(2, 4)
    assert (np.ones((5, 2), "float32") @ X).struct_info == tensor(5, 3)
    assert X.astype("int8").struct_info == tensor(2, 3, dtype="int8")


def test_a_plus_sign_is_not_an_operator() -> None:
    with pytest.raises(MisuseError, match=r"^\+ is not defined on Relax expressions") as caught:
        _ = +X
    assert caught.value.diagnostic.hint == "write x"


def test_equality_is_identity_and_expressions_are_keys() -> None:
    assert X == X
    assert X != Y
    assert {X: 1}[X] == 1


def test_a_remainder_must_say_which_one_it_is() -> None:
    for make in (lambda: X % 2, lambda: 2 % X):
        with pytest.raises(MisuseError, match="leaves the sign of the remainder open") as caught:
            make()
        assert isinstance(caught.value, ValueError)
        assert "R.floor_mod" in str(caught.value)


BITS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("and", lambda a, b: a & b),
    ("or", lambda a, b: a | b),
    ("xor", lambda a, b: a ^ b),
]


@pytest.mark.parametrize(("name", "apply"), BITS)
def test_signs_of_bits_are_logical_on_booleans(name: str, apply: Callable[[Any, Any], Any]) -> None:
    k, b = rx.Var("k", tensor(2, dtype="int32")), rx.Var("b", tensor(2, dtype="bool"))
    for call in (apply(k, k), apply(k, 3), apply(3, k), apply(np.ones(2, "int32"), k)):
        assert call.op is Op(f"relax.bitwise_{name}")
        assert call.struct_info == k.struct_info
    for call in (apply(b, b), apply(True, b), apply(b, np.ones(2, "bool"))):
        assert call.op is Op(f"relax.logical_{name}")
        assert call.struct_info == b.struct_info
    unknown = rx.Var("u", tensor(2, dtype=""))
    for left, right in ((X, X), (b, k), (k, unknown), (X, 1)):
        with pytest.raises(MisuseError, match="is for Booleans or for integers, found") as caught:
            apply(left, right)
        assert isinstance(caught.value, TypeError)
        assert f"R.logical_{name}({left.name_hint}, " in str(caught.value)


def test_shifts_and_signs_before_an_operand() -> None:
    k, b = rx.Var("k", tensor(2, dtype="int32")), rx.Var("b", tensor(2, dtype="bool"))
    assert [(k << 2).op, (1 << k).op] == [Op("relax.left_shift")] * 2
    assert [(k >> k).op, (9 >> k).op] == [Op("relax.right_shift")] * 2
    assert [(~k).op, (~b).op] == [Op("relax.bitwise_not"), Op("relax.logical_not")]
    assert abs(k).op is Op("relax.abs")
    with pytest.raises(MisuseError, match="~ is for Booleans or for integers, found float32"):
        _ = ~X
    with pytest.raises(
        MisuseError, match=r"\+ is not defined on Relax expressions\n  hint: write x"
    ):
        _ = +X


def test_signs_of_bits_compute_as_numpy_does() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(-99, 99, (2, 6)).astype("int32")
    p, q = rng.integers(0, 2, (2, 6)).astype("bool")

    main = from_source("""
        @R.function
        def main(
            a: R.Tensor((6,), "int32"),
            b: R.Tensor((6,), "int32"),
            p: R.Tensor((6,), "bool"),
            q: R.Tensor((6,), "bool"),
        ):
            n = abs(a) ^ (b << 2) | ~a & (b >> 1)
            m = ~p & q | (p ^ q) & (a > b)
            return n, m, a & 12
    """)
    module = IRModule({"main": main})
    found = relax.VirtualMachine(relax.build(module, "llvm"), relaxpy.cpu())["main"](a, b, p, q)
    np.testing.assert_array_equal(found[0].numpy(), abs(a) ^ (b << 2) | ~a & (b >> 1))
    np.testing.assert_array_equal(found[1].numpy(), ~p & q | (p ^ q) & (a > b))
    np.testing.assert_array_equal(found[2].numpy(), a & 12)


def test_tuples_are_joined() -> None:
    pair = rx.Var("t", tuple_of(tensor(2), tensor(3)))
    joined = pair + (X,)  # noqa: RUF005
    assert [type(field) for field in joined] == [rx.TupleGetItem, rx.TupleGetItem, rx.Var]
    assert (Y,) + rx.Tuple((X,)) == (Y, X)  # noqa: RUF005


def test_scalars_of_the_program_take_part() -> None:
    n = tir.Var("n", "int64")
    counts = rx.Var("c", tensor(4, dtype="int64"))
    assert (counts + n).struct_info == tensor(4, dtype="int64")
    k = rx.Var("k", prim(dtype="int64"))
    assert (k + 1).struct_info == prim(dtype="int64")
    assert (counts < k).struct_info == tensor(4, dtype="bool")


def test_what_does_not_fit_names_the_operator_and_the_operand() -> None:
    with pytest.raises(StructInfoError, match=r"relax\.add: x2 is a tensor or a scalar") as caught:
        X + rx.Var("s", shape(2))
    assert isinstance(caught.value, TypeError)
    with pytest.raises(MisuseError, match="expected a Relax expression, found object"):
        X + object()  # type: ignore[operator]


def test_arrays_are_operands_of_known_shape() -> None:
    table = np.ones((2, 3), "float32")
    assert op.reshape(table, (-1,)).struct_info == tensor(6)
    assert op.add(table, 1).struct_info == tensor(2, 3)
