"""What each operator is on numbers: calls of it on small inputs, beside what NumPy says in float64.

Nothing here uses relaxpy's kernels: `expected` is the definition of the operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.relax.op.binary import BINARY
from relaxpy.ir.relax.op.statistical import REDUCTIONS
from relaxpy.ir.relax.op.unary import UNARY
from relaxpy.ir.tir import expr as tir

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A call of `operator` on tensors like `inputs`, and its value there."""

    operator: str
    label: str
    inputs: tuple[Array, ...]
    call: Callable[..., rx.Expr]
    expected: Callable[..., Any]
    roundings: int = 8
    """How many roundings of the result's datatype the kernel may be off by."""

    @property
    def name(self) -> str:
        return f"{self.operator.removeprefix('relax.')}-{self.label}"


def floats(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 2).astype(dtype)


def integers(*shape: int, dtype: str = "int32", low: int = -9, high: int = 10) -> Array:
    return np.random.default_rng(1).integers(low, high, shape).astype(dtype)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 0.5, 3.0], "float32")
ODD = np.array([-7, -1, 0, 1, 2, 8], "int64")
LARGE = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], "uint64")
COMPARISONS = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}


def _in(dtype: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in this datatype: where rounding it twice would be seen."""

    def computed(*inputs: Array) -> Any:
        return function(*(x.astype(dtype) for x in inputs))

    return computed


def _unary() -> Iterator[Case]:
    table: dict[str, Callable[[Array], Array]] = {
        **{n: getattr(np, n) for n in ("exp", "log", "sqrt", "sin", "cos", "tan")},
        **{n: getattr(np, n) for n in ("sinh", "cosh", "tanh", "abs", "ceil", "floor", "trunc")},
        **{f"a{n}": getattr(np, f"arc{n}") for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
        "round": np.round,
        "negative": np.negative,
        "square": np.square,
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "erf": np.vectorize(math.erf, otypes=[np.float64]),
        "sign": np.sign,
        "isnan": np.isnan,
        "isinf": np.isinf,
        "isfinite": np.isfinite,
        "logical_not": lambda x: x == 0,
        "bitwise_not": np.invert,
    }
    domain = {"acosh": lambda x: 1 + np.abs(x), "log": np.abs, "sqrt": np.abs, "rsqrt": np.abs}
    domain |= dict.fromkeys(("asin", "acos", "atanh"), lambda x: np.tanh(x) * np.float32(0.9))
    whole = {"abs", "negative", "square", "ceil", "floor", "round", "trunc", "sign"}
    whole |= {"logical_not", "bitwise_not"}
    for name, function in table.items():
        inputs = {}
        if name != "bitwise_not":
            plain = domain.get(name, lambda x: x)(floats(3, 4))
            inputs = {"matrix": plain, "scalar": plain[1, 2], "empty": plain[:0]}
            inputs["special"] = SPECIAL
            inputs["double"] = plain.astype("float64")
        if name in whole:
            inputs |= {"int": ODD, "uint": np.arange(4, dtype="uint8"), "large": LARGE}
        if name in ("logical_not", "bitwise_not"):
            inputs["bool"] = np.array([True, False])
        for label, x in inputs.items():
            yield Case(f"relax.{name}", label, (np.asarray(x),), UNARY[name], function)


def _binary() -> Iterator[Case]:
    table: dict[str, Callable[[Array, Array], Any]] = {
        **{n: getattr(np, n) for n in ("add", "subtract", "multiply", "maximum", "minimum")},
        **{n: getattr(np, n) for n in ("equal", "not_equal", "less", "less_equal", "greater")},
        **{n: getattr(np, n) for n in ("greater_equal", "logical_and", "logical_or")},
        **{n: getattr(np, n) for n in ("logical_xor", "floor_divide", "power")},
        **{n: getattr(np, n) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")},
        **{n: getattr(np, n) for n in ("left_shift", "right_shift")},
        "divide": lambda a, b: np.trunc(a / b) if a.dtype.kind in "iu" else a / b,
        "mod": np.fmod,
        "floor_mod": np.mod,
        "log_add_exp": np.logaddexp,
    }
    bits = {"bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"}
    a, b = floats(3, 4), floats(3, 4, seed=3)
    i, j = integers(2, 3), np.array([[1, 2, 3], [-3, 5, 2]], "int32")
    for name, function in table.items():
        pairs: dict[str, tuple[Array, Array]] = {}
        if name not in bits:
            x = np.abs(a) if name == "power" else a
            pairs = {
                "same": (x, b),
                "row": (x, b[0]),
                "outer": (x[:, :1], b[:1]),
                "scalar": (x, b[0, 0].reshape(())),
                "empty": (x[:0], b[0]),
            }
            if name != "power":
                pairs["special"] = (SPECIAL, SPECIAL[::-1].copy())
        if name != "log_add_exp":
            right = np.abs(j) if name in bits | {"power"} else j
            pairs["int"] = (i, right)
        if name in COMPARISONS | {"maximum", "minimum"}:
            pairs["large"] = (LARGE, LARGE[::-1].copy())
        if name in bits | {"add", "multiply", "maximum", "minimum", "logical_and", "equal"}:
            both = np.array([True, True, False, False]), np.array([True, False, True, False])
            pairs["bool"] = both
        for label, inputs in pairs.items():
            yield Case(f"relax.{name}", label, inputs, BINARY[name], function)
    yield Case("relax.add", "number", (a,), lambda x: x + 1, lambda x: x + 1)
    yield Case("relax.subtract", "number on the left", (a,), lambda x: 1.5 - x, lambda x: 1.5 - x)
    yield Case("relax.divide", "by zero", (SPECIAL,), lambda x: x / 0, lambda x: x / 0)
    tenths = np.array([1, -1, 1, 0.7, 3e4, np.inf, 5, -5, 1], "float64")
    by = np.array([0.1, 0.1, -0.1, 0.1, 1e-3, 2, np.inf, np.inf, 0])
    for dtype in ("float64", "float32", "float16"):
        pair = tenths.astype(dtype), by.astype(dtype)
        for name, function in (("floor_divide", np.floor_divide), ("floor_mod", np.mod)):
            yield Case(
                f"relax.{name}", f"inexact {dtype}", pair, BINARY[name], _in(dtype, function)
            )
    yield Case("relax.power", "literal", (i,), lambda x: x**3, lambda x: x**3)
    yield Case(
        "relax.add",
        "prim",
        (np.float32(2).reshape(()),),
        lambda x: BINARY["add"](x, rx.PrimValue(tir.FloatImm("float32", 1.0))),
        lambda x: x + 1,
    )
    yield Case(
        "relax.less",
        "datatypes may differ",
        (a, integers(4)),
        BINARY["less"],
        np.less,
    )


def _whole_variance(x: Array) -> Any:
    return np.trunc(np.mean((x - np.trunc(np.mean(x))) ** 2))


def _reductions() -> Iterator[Case]:
    table: dict[str, Callable[..., Any]] = {
        **{n: getattr(np, n) for n in ("sum", "mean", "max", "min", "prod", "std")},
        "variance": np.var,
    }
    x = floats(2, 3, 4)
    for name, function in table.items():
        make = REDUCTIONS[name]
        for axis in (None, 0, (1,), (-1, 0), (0, 1, 2)):
            for keep in (False, True):

                def call(v: rx.Expr, axis: Any = axis, keep: bool = keep, make: Any = make) -> Any:
                    return make(v, axis, keep)

                def expected(
                    v: Array, axis: Any = axis, keep: bool = keep, function: Any = function
                ) -> Any:
                    return function(v, axis=axis, keepdims=keep)

                label = f"axis {axis}{' kept' if keep else ''}"
                yield Case(f"relax.{name}", label, (x,), call, expected, roundings=64)
        for label, special in (("nan", SPECIAL), ("-inf", np.full((2,), -np.inf, "float32"))):
            if label == "nan" or name in ("sum", "max", "min", "prod"):
                yield Case(f"relax.{name}", label, (special,), make, function)
        whole: dict[str, Callable[..., Any]] = {
            "mean": lambda v: np.trunc(np.mean(v)),
            "variance": _whole_variance,
            "std": lambda v: np.trunc(np.sqrt(_whole_variance(v))),
        }
        wholly = whole.get(name, function)
        yield Case(f"relax.{name}", "int", (integers(2, 3),), make, wholly)
        if name in ("sum", "prod"):

            def inner(v: rx.Expr, make: Any = make) -> Any:
                return make(v, 1)

            def inner_value(v: Array, function: Any = function) -> Any:
                return function(v, axis=1)

            yield Case(f"relax.{name}", "empty axis", (x[:, :0],), inner, inner_value)
        yield Case(f"relax.{name}", "scalar", (x[0, 0, 0].reshape(()),), make, function)
    for name, function in (("any", np.any), ("all", np.all)):
        truths = np.array([[True, False], [True, True]])
        relax_name = "sum" if name == "any" else "prod"

        def rowwise(v: rx.Expr, relax_name: str = relax_name) -> rx.Expr:
            return REDUCTIONS[relax_name](v, 1)

        def truth(v: Array, function: Any = function) -> Any:
            return function(v, axis=1)

        yield Case(f"relax.{relax_name}", "bool", (truths,), rowwise, truth)
    for name in ("argmax", "argmin"):
        make, function = getattr(op, name), getattr(np, name)
        tied = np.array([[1, 3, 3], [2, 0, 0]], "float32")
        for label, axis in (("all", None), ("rows", 1), ("columns", -2)):
            yield Case(
                f"relax.{name}",
                label,
                (tied,),
                lambda v, axis=axis, make=make: make(v, axis),
                lambda v, axis=axis, function=function: function(v, axis=axis),
            )
        yield Case(f"relax.{name}", "nan", (SPECIAL[3:5].repeat(2),), make, function)
        yield Case(f"relax.{name}", "first nan", (SPECIAL[::-1].copy(),), make, function)
        lowest = np.full((3,), -np.inf if name == "argmax" else np.inf, "float32")
        yield Case(f"relax.{name}", "infinities", (lowest,), make, function)
        least = np.full((3,), -(2**31) if name == "argmax" else 2**31 - 1, "int32")
        yield Case(f"relax.{name}", "int", (least,), make, function)
        yield Case(
            f"relax.{name}",
            "of nothing",
            (tied[:, :0],),
            lambda v, make=make: make(v, 1),
            lambda v: np.full(len(v), -1),
        )
        kept: Any = lambda v, make=make: make(v, 1, True)  # noqa: E731
        yield Case(
            f"relax.{name}",
            "kept",
            (tied,),
            kept,
            lambda v, function=function: function(v, axis=1, keepdims=True),
        )


def _elementwise() -> Iterator[Case]:
    x, y, z = floats(3, 4), floats(3, 4, seed=2), floats(3, 4, seed=5)
    chosen = np.random.default_rng(4).random((3, 4)) < 0.5
    yield Case(
        "relax.clip", "floats", (x,), lambda v: op.clip(v, -1.0, 0.5), lambda v: np.clip(v, -1, 0.5)
    )
    yield Case(
        "relax.clip", "ints", (ODD,), lambda v: op.clip(v, -2, 4), lambda v: np.clip(v, -2, 4)
    )
    yield Case(
        "relax.clip",
        "wide bounds",
        (np.arange(3, dtype="uint8"),),
        lambda v: op.clip(v, -5, 1000),
        lambda v: v,
    )
    yield Case("relax.ewise_fma", "floats", (x, y, z), op.ewise_fma, lambda a, b, c: a * b + c)
    yield Case("relax.where", "same", (chosen, x, y), op.where, np.where)
    truths = x > y
    for label, one, other in (("Bool second", x, truths), ("Bool first", truths, y)):
        yield Case(
            "relax.where",
            label,
            (chosen, one, other),
            op.where,
            lambda c, p, q: np.where(c, p, q.astype(p.dtype)),
        )
    yield Case("relax.where", "broadcast", (chosen[:, :1], x, y[0]), op.where, np.where)
    yield Case(
        "relax.where", "scalars", (chosen, x[0, :1], y[0, 0].reshape(())), op.where, np.where
    )
    targets: dict[str, Callable[[Array], Array]] = {
        "int32": np.trunc,
        "float64": lambda v: v,
        "bool": lambda v: v != 0,
        "float16": lambda v: v.astype("float16"),
    }
    for dtype, function in targets.items():
        yield Case("relax.astype", dtype, (x,), lambda v, d=dtype: v.astype(d), function)
    yield Case(
        "relax.astype", "bool to float", (chosen,), lambda v: v.astype("float32"), np.float64
    )


def _creation() -> Iterator[Case]:
    x = integers(2, 3)
    nothing: tuple[Array, ...] = ()
    yield Case(
        "relax.zeros",
        "shape",
        nothing,
        lambda: op.zeros((2, 3), "float32"),
        lambda: np.zeros((2, 3)),
    )
    yield Case(
        "relax.ones", "empty", nothing, lambda: op.ones((0, 3), "int64"), lambda: np.ones((0, 3))
    )
    yield Case("relax.zeros_like", "dtype", (x,), lambda v: op.zeros_like(v, "bool"), np.zeros_like)
    yield Case("relax.ones_like", "dtype", (x,), op.ones_like, np.ones_like)
    yield Case(
        "relax.full", "number", nothing, lambda: op.full((2,), 2.5), lambda: np.full((2,), 2.5)
    )
    yield Case(
        "relax.full",
        "tensor",
        (np.float32(3.5).reshape(()),),
        lambda v: op.full((2, 2), v, "int32"),
        lambda v: np.full((2, 2), 3),
    )
    yield Case(
        "relax.full_like",
        "number",
        (x,),
        lambda v: op.full_like(v, 7),
        lambda v: np.full_like(v, 7),
    )
    ranges: tuple[tuple[Any, ...], ...] = (
        (5,),
        (2, 9, 3),
        (9, 2, -2),
        (0, 1, 0.25),
        (3, 3),
        (4, 1),
    )
    for bounds in ranges:
        yield Case(
            "relax.arange",
            str(bounds),
            nothing,
            lambda b=bounds: op.arange(*b),
            lambda b=bounds: np.arange(*b),
        )


def _manipulation() -> Iterator[Case]:
    x = floats(2, 3, 4)
    matrix = floats(3, 4)
    single = floats(1, 3, 1)
    yield Case(
        "relax.broadcast_to",
        "rows",
        (matrix,),
        lambda v: op.broadcast_to(v, (2, 3, 4)),
        lambda v: np.broadcast_to(v, (2, 3, 4)),
    )
    yield Case(
        "relax.broadcast_to",
        "ones",
        (single,),
        lambda v: op.broadcast_to(v, (2, 3, 2)),
        lambda v: np.broadcast_to(v, (2, 3, 2)),
    )
    for shape in ((6, 4), (-1, 4), (0, -1), (24,), (1, 2, 3, 4, 1)):
        yield Case(
            "relax.reshape",
            str(shape),
            (x,),
            lambda v, s=shape: op.reshape(v, s),
            lambda v, s=shape: v.reshape((2, 12) if s == (0, -1) else s),
        )
    yield Case(
        "relax.reshape",
        "scalar",
        (x[:1, :1, 0],),
        lambda v: op.reshape(v, ()),
        lambda v: v.reshape(()),
    )
    yield Case(
        "relax.reshape",
        "empty",
        (x[:0],),
        lambda v: op.reshape(v, rx.ShapeExpr((0, 5))),
        lambda v: v.reshape((0, 5)),
    )
    yield Case("relax.flatten", "cube", (x,), op.flatten, np.ravel)
    yield Case("relax.flatten", "scalar", (x[0, 0, 0].reshape(()),), op.flatten, np.ravel)
    for axis in (0, -1, [0, 2], [-1, 1]):
        yield Case(
            "relax.expand_dims",
            str(axis),
            (matrix,),
            lambda v, a=axis: op.expand_dims(v, a),
            lambda v, a=axis: np.expand_dims(v, a),
        )
    for axis in (0, -1, [0, 2]):
        yield Case(
            "relax.squeeze",
            str(axis),
            (single,),
            lambda v, a=axis: op.squeeze(v, a),
            lambda v, a=axis: np.squeeze(v, tuple(a) if isinstance(a, list) else a),
        )
    yield Case("relax.squeeze", "all", (single,), op.squeeze, np.squeeze)
    for axes in (None, (1, 2, 0), (0, -1, 1), (0, 1, 2)):
        yield Case(
            "relax.permute_dims",
            str(axes),
            (x,),
            lambda v, a=axes: op.permute_dims(v, a),
            lambda v, a=axes: np.transpose(v, a),
        )
    other = floats(2, 5, 4, seed=7)
    yield Case(
        "relax.concat",
        "middle",
        (x, other, x),
        lambda *v: op.concat(v, 1),
        lambda *v: np.concatenate(v, 1),
    )
    yield Case(
        "relax.concat",
        "empty part",
        (x, x[:0]),
        lambda *v: op.concat(v, 0),
        lambda *v: np.concatenate(v, 0),
    )
    yield Case("relax.concat", "one", (x,), lambda *v: op.concat(v, -1), lambda *v: v[0])
    yield Case(
        "relax.concat",
        "flat",
        (x[0, 0], x[1, 1]),
        lambda *v: op.concat(v, None),
        lambda *v: np.concatenate(v),
    )
    for axis in (0, 1, -1):
        yield Case(
            "relax.stack",
            str(axis),
            (matrix, -matrix),
            lambda *v, a=axis: op.stack(v, a),
            lambda *v, a=axis: np.stack(v, a),
        )
    long = floats(2, 10)
    for cuts in ([3, 7], [0, 4], [4, 2], [12]):
        yield Case(
            "relax.split",
            str(cuts),
            (long,),
            lambda v, c=cuts: op.split(v, c, 1),
            lambda v, c=cuts: tuple(v[:, b:e] for b, e in zip([0, *c], [*c, 10], strict=True)),
        )
    yield Case(
        "relax.split",
        "a cut in front of the axis",
        (long,),
        lambda v: op.split(v, [-3, 4], 1),
        lambda v: (v[:, :0], v[:, :4], v[:, 4:]),
    )
    for parts, bounds in ((5, (0, 2, 4, 6, 8, 10)), (3, (0, 4, 8, 10)), (4, (0, 3, 6, 9, 10))):
        yield Case(
            "relax.split",
            f"{parts} parts",
            (long,),
            lambda v, p=parts: op.split(v, p, -1),
            lambda v, b=bounds: tuple(v[:, i:j] for i, j in pairwise(b)),
        )
    yield Case(
        "relax.split",
        "more parts than elements",
        (long[:, :5],),
        lambda v: op.split(v, 4, 1),
        lambda v: (v[:, :2], v[:, 2:4], v[:, 4:], v[:, :0]),
    )
    yield Case("relax.split", "one part", (long,), lambda v: op.split(v, 1, 1), lambda v: v)


def _indexing() -> Iterator[Case]:
    x = floats(3, 4)
    places = np.array([[2, 0], [1, 1]], "int64")
    yield Case("relax.take", "rows", (x, places), lambda v, i: op.take(v, i, 0), lambda v, i: v[i])
    yield Case(
        "relax.take",
        "last axis",
        (x, places.astype("int32")),
        lambda v, i: op.take(v, i, -1),
        lambda v, i: v[:, i],
    )
    yield Case("relax.take", "no axis", (x[0], places), op.take, lambda v, i: v[i])
    yield Case("relax.take", "prim", (x,), lambda v: op.take(v, 2, 0), lambda v: v[2])
    yield Case(
        "relax.take",
        "scalar",
        (x, places[0, 0].reshape(())),
        lambda v, i: op.take(v, i, 1),
        lambda v, i: v[:, i],
    )
    outside = np.array([-5, -1, 1, 3, 7], "int64")
    for mode in ("clip", "wrap"):
        yield Case(
            "relax.take",
            mode,
            (x, outside),
            lambda v, i, m=mode: op.take(v, i, 0, m),
            lambda v, i, m=mode: np.take(v, i, 0, mode=m),
        )
    yield Case(
        "relax.take",
        "nothing of nothing",
        (x[:0], places[:0]),
        lambda v, i: op.take(v, i, 0, "wrap"),
        lambda v, i: np.zeros((0, 2, 4)),
    )
    for label, (begin, end, step) in {
        "plain": (1, 3, 1),
        "strided": (0, 9, 3),
        "negative": (-5, -1, 2),
        "backwards": (8, 1, -3),
        "all backwards": (-1, -20, -1),
        "beyond": (4, 99, 1),
        "nothing": (5, 2, 1),
    }.items():
        yield Case(
            "relax.strided_slice",
            label,
            (floats(2, 10),),
            lambda v, b=begin, e=end, s=step: op.strided_slice(v, [1], [b], [e], [s]),
            lambda v, b=begin, e=end, s=step: v[:, b:e:s],
        )
    yield Case(
        "relax.strided_slice",
        "two axes",
        (floats(4, 6),),
        lambda v: op.strided_slice(v, [0, -1], [1, 2], [3, 6]),
        lambda v: v[1:3, 2:6],
    )
    yield Case(
        "relax.strided_slice",
        "inside",
        (floats(4, 6),),
        lambda v: op.strided_slice(v, [0], [1], [3], assume_inbound=True),
        lambda v: v[1:3],
    )


def _matmul() -> Iterator[Case]:
    shapes = (
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (3, 4, 5)),
        ((2, 3, 4), (4,)),
        ((0, 4), (4, 2)),
        ((2, 0), (0, 3)),
    )
    for a, b in shapes:
        yield Case(
            "relax.matmul",
            f"{a} {b}",
            (floats(*a), floats(*b, seed=2)),
            lambda v, w: v @ w,
            np.matmul,
            roundings=32,
        )
    narrow = floats(2, 3, dtype="float16"), floats(3, 2, dtype="float16", seed=2)
    yield Case(
        "relax.matmul", "out_dtype", narrow, lambda v, w: op.matmul(v, w, "float32"), np.matmul
    )
    truths = np.array([[True, False], [True, True]])
    yield Case("relax.matmul", "bool", (truths, truths), op.matmul, np.matmul)
    yield Case("relax.matmul", "bool and float", (truths, floats(2, 3)), op.matmul, np.matmul)
    yield Case("relax.matmul", "ints", (integers(2, 3), integers(3, 2)), op.matmul, np.matmul)


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x)  # type: ignore[no-any-return]


def _softmax(x: Array, axis: int) -> Array:
    power = np.exp(x - x.max(axis=axis, keepdims=True))
    return power / power.sum(axis=axis, keepdims=True)  # type: ignore[no-any-return]


def _layer_norm(x: Array, gamma: Array, beta: Array, axes: tuple[int, ...]) -> Array:
    mean, spread = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(spread + 1e-5) * gamma + beta  # type: ignore[no-any-return]


def _networks() -> Iterator[Case]:
    x = floats(3, 4)
    yield Case("relax.nn.relu", "floats", (x,), op.nn.relu, lambda v: np.maximum(v, 0))
    yield Case("relax.nn.relu", "special", (SPECIAL,), op.nn.relu, lambda v: np.maximum(v, 0))
    yield Case("relax.nn.relu", "ints", (ODD,), op.nn.relu, lambda v: np.maximum(v, 0))
    yield Case(
        "relax.nn.leakyrelu",
        "floats",
        (x,),
        lambda v: op.nn.leakyrelu(v, 0.1),
        lambda v: np.where(v > 0, v, v * 0.1),
    )
    yield Case(
        "relax.nn.gelu",
        "floats",
        (x,),
        op.nn.gelu,
        lambda v: v * (1 + _erf(v / math.sqrt(2))) / 2,
        roundings=32,
    )
    inner = lambda v: math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)  # noqa: E731
    yield Case(
        "relax.nn.gelu_tanh",
        "floats",
        (x,),
        op.nn.gelu_tanh,
        lambda v: v * (1 + np.tanh(inner(v))) / 2,
        roundings=64,
    )
    yield Case("relax.nn.silu", "floats", (x,), op.nn.silu, lambda v: v / (1 + np.exp(-v)))
    for axis in (-1, 0):
        yield Case(
            "relax.nn.softmax",
            str(axis),
            (x * 40,),
            lambda v, a=axis: op.nn.softmax(v, a),
            lambda v, a=axis: _softmax(v, a),
            roundings=64,
        )
        yield Case(
            "relax.nn.log_softmax",
            str(axis),
            (x * 40,),
            lambda v, a=axis: op.nn.log_softmax(v, a),
            lambda v, a=axis: np.log(np.maximum(_softmax(v, a), 1e-300)),
            roundings=64,
        )
    gamma, beta = floats(4, seed=8), floats(4, seed=9)
    yield Case(
        "relax.nn.layer_norm",
        "last",
        (x, gamma, beta),
        lambda *v: op.nn.layer_norm(*v, axes=-1),
        lambda v, g, b: _layer_norm(v, g, b, (-1,)),
        roundings=64,
    )
    yield Case(
        "relax.nn.layer_norm",
        "far from zero",
        (x + 1000, gamma, beta),
        lambda *v: op.nn.layer_norm(*v, axes=[1]),
        lambda v, g, b: _layer_norm(v, g, b, (1,)),
        roundings=2000,
    )
    yield Case(
        "relax.nn.layer_norm",
        "two axes",
        (floats(2, 3, 4), floats(3, 4, seed=8), floats(3, 4)),
        lambda *v: op.nn.layer_norm(*v, axes=[1, 2]),
        lambda v, g, b: _layer_norm(v, g, b, (1, 2)),
        roundings=64,
    )
    yield Case(
        "relax.nn.layer_norm",
        "axes not in order",
        (floats(2, 3, 4), floats(4, 2, seed=8), floats(4, 2)),
        lambda *v: op.nn.layer_norm(*v, axes=[2, 0]),
        lambda v, g, b: _layer_norm(v, g.T[:, None], b.T[:, None], (0, 2)),
        roundings=64,
    )
    yield Case(
        "relax.nn.rms_norm",
        "axes not in order",
        (floats(2, 3, 4), floats(4, 2, 3, seed=8)),
        lambda *v: op.nn.rms_norm(*v, axes=[-1, 0, 1]),
        lambda v, w: v / np.sqrt((v * v).mean() + 1e-5) * w.transpose(1, 2, 0),
        roundings=32,
    )
    yield Case(
        "relax.nn.layer_norm",
        "plain",
        (x, gamma, beta),
        lambda *v: op.nn.layer_norm(*v, axes=[-1], center=False, scale=False),
        lambda v, g, b: _layer_norm(v, np.float64(1), np.float64(0), (-1,)),
        roundings=64,
    )
    yield Case(
        "relax.nn.rms_norm",
        "last",
        (x, gamma),
        op.nn.rms_norm,
        lambda v, w: v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-5) * w,
        roundings=32,
    )


CASES = [
    *_unary(),
    *_binary(),
    *_reductions(),
    *_elementwise(),
    *_creation(),
    *_manipulation(),
    *_indexing(),
    *_matmul(),
    *_networks(),
]
