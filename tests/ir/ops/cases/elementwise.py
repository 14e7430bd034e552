"""Operators on single elements."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from relaxpy.ir import ops as op
from relaxpy.ir.ops.elementwise import BINARY, UNARY
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from tests.ir.ops.cases.case import LARGE, ODD, SPECIAL, Array, Case, case, floats, integers, same

COMPARISONS = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}


def _in(dtype: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in this datatype: where rounding it twice would be seen."""

    def computed(*inputs: Array) -> Any:
        return function(*(x.astype(dtype) for x in inputs))

    return computed


def _unary() -> Iterator[Case]:
    table: dict[str, Callable[[Array], Array]] = {
        **{n: getattr(np, n) for n in ("exp", "log", "log2", "log10", "sqrt", "sin", "cos", "tan")},
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
    domain = dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt"), np.abs)
    domain |= {"acosh": lambda x: 1 + np.abs(x)}
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


def _power(a: Array, b: Array) -> Array:
    if b.dtype.kind in "iu" and (b > 63).any():
        raise OverflowError("powers of integers are defined for exponents below 64")
    return np.power(a, b)


def _binary() -> Iterator[Case]:
    table: dict[str, Callable[[Array, Array], Any]] = {
        **{n: getattr(np, n) for n in ("add", "subtract", "multiply", "maximum", "minimum")},
        **{n: getattr(np, n) for n in ("equal", "not_equal", "less", "less_equal", "greater")},
        **{n: getattr(np, n) for n in ("greater_equal", "logical_and", "logical_or")},
        **{n: getattr(np, n) for n in ("logical_xor", "floor_divide")},
        **{n: getattr(np, n) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")},
        **{n: getattr(np, n) for n in ("left_shift", "right_shift")},
        "divide": lambda a, b: np.trunc(a / b) if a.dtype.kind in "iu" else a / b,
        "power": _power,
        "mod": np.fmod,
        "floor_mod": np.mod,
        "log_add_exp": np.logaddexp,
        "atan2": np.arctan2,
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
        if name not in ("log_add_exp", "atan2"):
            right = np.abs(j) if name in bits | {"power"} else j
            pairs["int"] = (i, right)
        if name in COMPARISONS | {"maximum", "minimum"}:
            pairs["large"] = (LARGE, LARGE[::-1].copy())
        if name in bits | {"add", "multiply", "maximum", "minimum", "logical_and", "equal"}:
            both = np.array([True, True, False, False]), np.array([True, False, True, False])
            pairs["bool"] = both
        for label, inputs in pairs.items():
            yield Case(f"relax.{name}", label, inputs, BINARY[name], function)
    yield Case("relax.add", "number", (a,), lambda x: x + 1, lambda x: x + 1, needs=("dtype",))
    yield Case(
        "relax.subtract",
        "number on the left",
        (a,),
        lambda x: 1.5 - x,
        lambda x: 1.5 - x,
        needs=("dtype",),
    )
    yield Case(
        "relax.divide",
        "by zero",
        (SPECIAL,),
        lambda x: x / 0,
        lambda x: x / 0,
        needs=("dtype",),
        only=("dtype",),  # of integers there is no quotient
    )
    tenths = np.array([1, -1, 1, 0.7, 3e4, np.inf, 5, -5, 1], "float64")
    by = np.array([0.1, 0.1, -0.1, 0.1, 1e-3, 2, np.inf, np.inf, 0])
    for dtype in ("float64", "float32", "float16"):
        pair = tenths.astype(dtype), by.astype(dtype)
        for name, function in (("floor_divide", np.floor_divide), ("floor_mod", np.mod)):
            yield Case(
                f"relax.{name}",
                f"inexact {dtype}",
                pair,
                BINARY[name],
                _in(dtype, function),
                only=("dtype",),
            )
    yield Case("relax.power", "literal", (i,), lambda x: x**3, lambda x: x**3, needs=("dtype",))
    yield Case(
        "relax.add",
        "prim",
        (np.float32(2).reshape(()),),
        lambda x: BINARY["add"](x, rx.PrimValue(tir.FloatImm("float32", 1.0))),
        lambda x: x + 1,
        smooth=False,  # in float64 there is no sum
    )
    yield Case(
        "relax.less",
        "datatypes may differ",
        (a, integers(4)),
        BINARY["less"],
        np.less,
        only=("dtype",),  # of equal widths, the signed operand is converted to unsigned, as in C
    )


def _elementwise() -> Iterator[Case]:
    x, y, z = floats(3, 4), floats(3, 4, seed=2), floats(3, 4, seed=5)
    chosen = np.random.default_rng(4).random((3, 4)) < 0.5
    yield case("clip", "floats", (x,), lambda v: np.clip(v, -1, 0.5), -1.0, 0.5)
    yield same("clip", "ints", (ODD,), np.clip, -2, 4)
    yield Case(
        "relax.clip",
        "wide bounds",
        (np.arange(3, dtype="uint8"),),
        lambda v: op.clip(v, -5, 1000),
        lambda v: np.clip(v.astype("float64"), -5, 1000),
    )
    yield case("ewise_fma", "floats", (x, y, z), lambda a, b, c: a * b + c)
    truths = tuple(np.arange(8) & bit > 0 for bit in (1, 2, 4))
    yield case("ewise_fma", "bool", truths, lambda a, b, c: a * b + c)
    yield case("where", "same", (chosen, x, y), np.where, needs=("dtype",))
    truths = x > y
    for label, one, other in (("Bool second", x, truths), ("Bool first", truths, y)):
        yield case(
            "where",
            label,
            (chosen, one, other),
            lambda c, p, q: np.where(c, p, q.astype(p.dtype)),
            needs=("dtype",),
        )
    yield case("where", "broadcast", (chosen[:, :1], x, y[0]), np.where, needs=("dtype",))
    yield case(
        "where", "scalars", (chosen, x[0, :1], y[0, 0].reshape(())), np.where, needs=("dtype",)
    )
    targets: dict[str, Callable[[Array], Array]] = {
        "int32": np.trunc,
        "float64": lambda v: v,
        "bool": lambda v: v != 0,
        "float16": lambda v: v.astype("float16"),
    }
    for dtype, function in targets.items():
        smooth = dtype != "float16"  # which small differences do not survive
        cast = lambda v, d=dtype: v.astype(d)  # noqa: E731
        yield Case("relax.astype", dtype, (x,), cast, function, smooth=smooth)
    yield Case(
        "relax.astype", "bool to float", (chosen,), lambda v: v.astype("float32"), np.float64
    )


def cases() -> Iterator[Case]:
    yield from _unary()
    yield from _binary()
    yield from _elementwise()
