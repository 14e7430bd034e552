"""Random numbers: of a generator that the caller passes, or that of `torch.manual_seed`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

from relaxpy.exec.runtime.registry import register_func
from relaxpy.ir.core.tensor import as_numpy, as_torch
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import as_size, dtype_of, shape_of, tensor_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.torch.arrays import complex_view, memory_order, real_view
from relaxpy.plugins.torch.complexes import Complex, complex_converter, from_pair, to_pair
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.mutation import is_overload, twin_of
from relaxpy.plugins.torch.registry import Value, converter, is_converted
from relaxpy.plugins.torch.symbols import is_symbolic

PACKED = "relaxpy.torch.draw"
#: The operators that draw; a program may call only these at run time.
_OPERATORS = (
    *("rand", "rand_like", "randn", "randn_like", "randint", "randint.low", "randint_like"),
    *("randint_like.low_dtype", "randperm", "bernoulli", "bernoulli.p", "multinomial"),
    *("normal_functional", "normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor"),
    *("normal.float_float", "uniform", "exponential", "log_normal", "geometric", "cauchy"),
    *("rand.generator", "randn.generator", "randint.generator", "randint.low_generator"),
    "randperm.generator",
    *("native_dropout", "rrelu", "poisson", "binomial", "_standard_gamma", "_sample_dirichlet"),
)


def draws(node: Any) -> bool:
    """True if a node draws random numbers."""
    if not is_overload(node.target) or node.target.namespace != "aten":
        return False
    target = twin_of(node.target) or node.target
    given = zip(target._schema.arguments, node.args, strict=False)
    args = {**{argument.name: value for argument, value in given}, **node.kwargs}
    train = args.get("train", args.get("training"))
    if train is not None and torch.Tag.nondeterministic_seeded in target.tags:
        return bool(train) and args.get("dropout") != 0
    opaque = torch.Tag.nondeterministic_seeded in target.tags and not is_converted(target)
    return _name(target) in _OPERATORS or opaque or bool(args.get("dropout_p"))


def _name(target: Any) -> str:
    packet, _, overload = target.name().partition("::")[2].partition(".")
    return f"{packet}.{overload}" if overload and overload != "default" else str(packet)


def draw(spec: str, shape: Any, *tensors: Any) -> Any:
    """The numbers that an operator draws.

    `spec` is JSON with the name of the operator, its arguments, and its keyword arguments; in them,
    `{"size": k}` stands for an element of `shape`, `{"tensor": k}` for one of `tensors` (its
    `"order"` lists the axes in the order of PyTorch's memory, in which numbers are drawn),
    `{"complex": k}` for that whose last axis has the parts of complex numbers, and
    `{"generator": k}` for that which is a generator.

    Errors:
        ValueError: it names an operator that draws nothing.
        TypeError: a generator is expected and the argument is not one.
    """
    plan = json.loads(spec)
    packet, _, overload = plan["op"].partition(".")
    if plan["op"] not in _OPERATORS:
        raise ValueError(f"{plan['op']} is not an operator that draws random numbers")

    def value(item: Any) -> Any:
        match item:
            case {"size": int(k)}:
                return int(shape[k])
            case {"tensor": int(k), "order": list(order)}:
                ordered = as_torch(tensors[k].copy()).permute(order).contiguous()
                return ordered.permute([order.index(axis) for axis in range(len(order))])
            case {"tensor": int(k)}:
                return as_torch(tensors[k].copy())
            case {"complex": int(k)}:
                return complex_view(as_torch(tensors[k].copy()))
            case {"generator": int(k)}:
                found = tensors[k]
                if found is not None and not isinstance(found, torch.Generator):
                    raise TypeError(f"expected a torch.Generator, found {type(found).__name__}")
                return found
            case {"dtype": str(name)}:
                return getattr(torch, name)
            case list():
                return list(map(value, item))
            case _:
                return item

    function = getattr(getattr(torch.ops.aten, packet), overload or "default")
    named = {name: value(item) for name, item in plan["kwargs"].items()}
    result = function(*map(value, plan["args"]), **named)
    return as_numpy(real_view(result))


register_func(PACKED, draw, override=True)


def _drawn(cx: Context, *unused: Value) -> Any:
    """A call of `draw` with the arguments of the node."""
    if isinstance(cx.meta(), (tuple, list)):
        raise UnsupportedError("it draws several tensors")
    sizes: list[PrimExpr] = []
    tensors: list[rx.Expr] = []

    def plain(item: Any) -> Any:
        if isinstance(item, torch.fx.Node):
            found = plain(cx.values(item))
            order = memory_order(item.meta.get("val"))
            return found if order is None else {**found, "order": order}
        if isinstance(item, PrimExpr):
            sizes.append(item)
            return {"size": len(sizes) - 1}
        if isinstance(item, rx.Expr):
            tensors.append(item)
            is_tensor = isinstance(item.struct_info, rx.TensorStructInfo)
            return {"tensor" if is_tensor else "generator": len(tensors) - 1}
        if isinstance(item, Complex):
            tensors.append(to_pair(item))
            return {"complex": len(tensors) - 1}
        if isinstance(item, torch.dtype):
            return {"dtype": str(item).removeprefix("torch.")}
        if isinstance(item, (tuple, list)):
            return list(map(plain, item))
        if item is None or isinstance(item, (bool, int, float, str)):
            return item
        if is_symbolic(item):
            return plain(cx.values(item))
        raise UnsupportedError(f"its argument {item} is not known when the program runs")

    skipped = {"layout", "device", "pin_memory", "memory_format"}
    named = {k: plain(v) for k, v in cx.node.kwargs.items() if k not in skipped}
    target = twin_of(cx.node.target) or cx.node.target
    plan = {"op": _name(target), "args": plain(cx.node.args), "kwargs": named}
    shape = rx.ShapeExpr(tuple(map(as_size, sizes)))
    text = rx.StringImm(json.dumps(plan))
    dtype = cx.meta().dtype
    pair = [2] if dtype.is_complex else []
    result = _call(
        cx, [text, shape, *tensors], tensor_of([*cx.result_shape(), *pair], cx.result_dtype())
    )
    return from_pair(cx, result) if pair else result


def _call(cx: Context, args: Sequence[rx.Expr], info: rx.TensorStructInfo) -> rx.Expr:
    call = rx.Call(rx.ExternFunc(PACKED), tuple(args), sinfo_args=(rx.ObjectStructInfo(),))
    cast = cx.builder.match_cast(cx.emit(call), info, cx.name)
    assert cast is not None
    return cast


for _operator in _OPERATORS:
    if _operator not in ("native_dropout", "rrelu"):
        name, _, overload = _operator.partition(".")
        converter(f"{name}.{overload or 'default'}")(_drawn)
        complex_converter(f"{name}.{overload or 'default'}")(_drawn)


@converter("native_dropout")
def native_dropout(
    cx: Context, x: rx.Expr, p: float, train: bool | None
) -> tuple[rx.Expr, rx.Expr]:
    sizes = tuple(shape_of(x))
    if train is False or p == 0:
        return x, R.ones(sizes, "bool")
    # Unlike `bernoulli.p`, dropout draws in the order of memory.
    order = memory_order(cx.operand_meta(0)) or [*range(len(sizes))]
    is_other = order != sorted(order)
    plan = {"op": "bernoulli.p", "args": [{"tensor": 0}, 1 - p], "kwargs": {}}
    text = rx.StringImm(json.dumps(plan))
    info = tensor_of([sizes[axis] for axis in order], cx.result_dtype(0))
    ordered = cx.emit(R.permute_dims(x, order)) if is_other else x
    kept = _call(cx, [text, rx.ShapeExpr(()), ordered], info)
    if is_other:
        kept = R.permute_dims(kept, [order.index(axis) for axis in range(len(order))])
    scale = 0.0 if p == 1 else 1 / (1 - p)
    scaled = R.multiply(R.multiply(x, kept), cx.tensor(scale, cx.result_dtype(0)))
    return scaled, R.astype(kept, "bool")


@converter("rrelu")
def rrelu(cx: Context, x: rx.Expr, lower: float, upper: float, training: bool) -> rx.Expr:
    if not training:
        return R.nn.leakyrelu(x, (lower + upper) / 2)
    return _by_slopes(cx, x, lower, upper)[0]


@converter("rrelu_with_noise_functional")
def rrelu_with_noise(
    cx: Context, x: rx.Expr, noise: rx.Expr, lower: float, upper: float, training: bool
) -> tuple[rx.Expr, rx.Expr]:
    if not training:
        return R.nn.leakyrelu(x, (lower + upper) / 2), noise
    return _by_slopes(cx, x, lower, upper)


def _by_slopes(cx: Context, x: rx.Expr, lower: float, upper: float) -> tuple[rx.Expr, rx.Expr]:
    """x times slopes, which are drawn where it is not positive; and the slopes."""
    zero, one = (cx.tensor(number, dtype_of(x)) for number in (0.0, 1.0))
    signs = cx.emit(R.where(R.less_equal(x, zero), R.negative(one), one))
    plan = {"op": "rrelu", "args": [{"tensor": 0}, lower, upper, True], "kwargs": {}}
    info = tensor_of(shape_of(x), dtype_of(x))
    drawn = _call(cx, [rx.StringImm(json.dumps(plan)), rx.ShapeExpr(()), signs], info)
    slopes = cx.emit(R.abs(drawn))
    return R.multiply(x, slopes), slopes
