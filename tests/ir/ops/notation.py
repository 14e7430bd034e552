"""Calls of operators on operands of which the struct infos are known, as lines of text.

`concat((f32(2, n), f32[2]), 1)` is the call of `relax.concat` on two variables: a tensor of shape
(2, n), and one of rank 2. `f32[...]` has an unknown rank, `void` an unknown datatype, `f32.by(s2)`
a variable as its shape, `on("cpu", f32(3))` a device; `tup(...)` is one operand, a tuple.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from relaxpy.errors import StructInfoError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.relax import op
from tests.ir.relax.sinfos import FIRST, N_BY_4, K, M, N, Object, S, T, func, packed, tuple_of


@dataclass(frozen=True)
class Tensors:
    """Struct infos of tensors of one datatype."""

    dtype: DataType

    def __call__(self, *shape: object) -> rx.TensorStructInfo:
        return rx.TensorStructInfo(shape, self.dtype)  # type: ignore[arg-type]

    def __getitem__(self, ndim: Any) -> rx.TensorStructInfo:
        return rx.TensorStructInfo(None, self.dtype, ndim=-1 if ndim is ... else ndim)

    def by(self, shape: rx.Var, ndim: int | None = None) -> rx.TensorStructInfo:
        return rx.TensorStructInfo(shape, self.dtype, ndim=ndim)


class Shapes:
    """Struct infos of shapes."""

    def __call__(self, *members: object) -> rx.ShapeStructInfo:
        return rx.ShapeStructInfo(members)  # type: ignore[arg-type]

    def __getitem__(self, ndim: Any) -> rx.ShapeStructInfo:
        return rx.ShapeStructInfo(None, -1 if ndim is ... else ndim)


def prim(value: Any) -> rx.PrimStructInfo:
    """A scalar of a datatype, or of a value of int64."""
    return rx.PrimStructInfo(value) if isinstance(value, str) else rx.PrimStructInfo("int64", value)


def on(vdevice: str, sinfo: rx.TensorStructInfo) -> rx.TensorStructInfo:
    return rx.TensorStructInfo(sinfo.shape, sinfo.dtype, vdevice)


def shape_var(*sizes: object) -> rx.Var:
    """A variable of these dimensions."""
    return rx.Var("s", rx.ShapeStructInfo(sizes))  # type: ignore[arg-type]


def blocks(i: Any, j: Any) -> tuple[Any, Any, Any]:
    """A map to blocks of four columns."""
    return i, j // 4, j % 4


@dataclass(frozen=True)
class Declared:
    """A struct info that is itself an argument."""

    sinfo: rx.StructInfo


DTYPES = {"b": "bool", "void": "", "bf16": "bfloat16", "f8": "float8_e5m2"} | {
    f"{letter}{bits}": f"{name}{bits}"
    for letter, name in (("i", "int"), ("u", "uint"), ("f", "float"))
    for bits in (4, 8, 16, 32, 64)
    if letter != "f" or bits > 8
}
NAMES: dict[str, object] = {
    "n": N,
    "m": M,
    "k": K,
    **{name: tir.Var(name, "int64") for name in "chw"},
    **{name: Tensors(DataType(dtype)) for name, dtype in DTYPES.items()},
    **{f"s{k}": rx.Var("s", rx.ShapeStructInfo(ndim=k)) for k in (2, 4)},
    "s": S,
    "t": T,
    "n_by_4": N_BY_4,
    "listed": rx.Var("listed", rx.ShapeStructInfo((2, 3))),
    "shape": Shapes(),
    "prim": prim,
    "tup": tuple_of,
    "obj": Object,
    "on": on,
    "func": func,
    "at": rx.PrimValue,
    "fn": rx.GlobalVar,
    "sinfo": Declared,
    "inf": float("inf"),
    "nan": float("nan"),
    "packed": packed,
    "FIRST": FIRST,
    "EMPTY": rx.EMPTY_DERIVE,
    "DEFAULT": rx.DEFAULT_DERIVE,
    "by": shape_var,
    "two": shape_var(2, N),
    "blocks": blocks,
    "blocks_by_int32": IndexMap.from_func(blocks, index_dtype="int32"),
    "mirrored": IndexMap.from_func(lambda i: 3 - i, inverse_index_map=lambda i: 3 - i),
    "reversed": lambda *i: i[::-1],
    "FloatImm": tir.FloatImm,
    "T": SimpleNamespace(min=ops.minimum, max=ops.maximum),
}


class Space:
    """The operators, or those of a namespace, on variables in place of struct infos."""

    def __init__(self, found: Any, count: Iterator[int]) -> None:
        self.found, self.count = found, count

    def __getattr__(self, name: str) -> Space:
        return Space(getattr(self.found, name), self.count)

    def __call__(self, *args: object, **kwargs: object) -> object:
        placed = [self.variables(a) for a in args]
        return self.found(*placed, **{k: self.variables(v) for k, v in kwargs.items()})

    def variables(self, value: Any) -> Any:
        if isinstance(value, Declared):
            return value.sinfo
        if isinstance(value, rx.StructInfo):
            return rx.Var(f"x{next(self.count)}", value)
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.variables, value))
        return value


class Names(dict[str, object]):
    """The names of one text: those of the notation, and the operators."""

    def __init__(self, names: dict[str, object]) -> None:
        super().__init__(names)
        self.count = itertools.count()

    def __missing__(self, name: str) -> Space:
        return Space(getattr(op, name), self.count)


def evaluate(text: str, **names: object) -> Any:
    """The value of a text in this notation, and more names: a call, or a struct info."""
    return eval(text, {}, Names(NAMES | names))


@dataclass(frozen=True)
class Row:
    """A call and the struct info of its result, or the error of a call beside one that has none."""

    call: str
    result: str = ""
    twin: str = ""
    message: str = ""
    hint: str | None = None

    def __str__(self) -> str:
        return self.call


def rows(text: str) -> list[Row]:
    """The rows of a table; lines that begin with a space continue the one before.

    `call => result`, `call !! message !! hint`, or `call / axis=9 !! message`: the call is valid,
    but not with the other argument. `x0=...` changes the first operand. Messages begin after the
    name of the operator, or later after "..."; a hint may end in "...".
    """
    found = []
    for line in re.sub(r"\n +", " ", text).strip().splitlines():
        if line[:1] in ("", "#"):
            continue
        call, *told = line.split(" !! ")
        if not told:
            found.append(Row(*call.split(" => ")))
            continue
        twin, _, other = call.partition(" / ")
        hint = told[1] if len(told) > 1 else None
        wrong, right = (changed(twin, other), twin) if other else (call, "")
        found.append(Row(wrong, twin=right, message=told[0], hint=hint))
    return found


def changed(call: str, arguments: str) -> str:
    """The call with other arguments."""
    tree, other = (ast.parse(text, mode="eval").body for text in (call, f"dict({arguments})"))
    assert isinstance(tree, ast.Call)
    assert isinstance(other, ast.Call)
    for keyword in other.keywords:
        if re.fullmatch(r"x\d", keyword.arg or ""):
            tree.args[int((keyword.arg or "")[1:])] = keyword.value
        else:
            tree.keywords = [k for k in tree.keywords if k.arg != keyword.arg] + [keyword]
    return ast.unparse(tree)


def check_known(row: Row, **names: object) -> None:
    """The struct info of a result is that of its row."""
    call, expected = evaluate(f"({row.call}, {row.result})", **names)
    assert call.struct_info == expected


def check_refused(row: Row, **names: object) -> None:
    """A call is refused with the message and the hint of its row, as a TypeError for datatypes."""
    if row.twin:
        assert evaluate(row.twin, **names).struct_info is not None
    with pytest.raises(StructInfoError) as caught:
        evaluate(row.call, **names)
    found = caught.value.diagnostic
    name = f"relax.{row.call.partition('(')[0]}: "
    assert found.message.startswith(name)
    if re.search(r"is u?int\d+, found|holds (floats|integers)|one datatype", found.message):
        assert isinstance(caught.value, TypeError)
    if row.message.startswith("..."):
        assert row.message.removeprefix("...") in found.message
    else:
        assert found.message.removeprefix(name).startswith(row.message)
    assert found.rule in ("DER-36", "SI-15", "OP-9")
    assert bool(found.hint) == bool(row.hint)
    assert (found.hint or "").startswith((row.hint or "").removesuffix("..."))
