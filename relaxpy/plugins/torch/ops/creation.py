"""Tensors of given values and sizes, and of random numbers.

A generator is the one that the caller passes, or that of `torch.manual_seed`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import torch

from relaxpy.exec.runtime.registry import register_func
from relaxpy.ir.core.tensor import as_numpy, as_torch
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import Size, as_size, dtype_of, shape_of, tensor_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.torch.arrays import complex_view, memory_order, real_view
from relaxpy.plugins.torch.complexes import Complex, complex_converter, from_pair, to_pair
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.mutation import is_overload, twin_of
from relaxpy.plugins.torch.registry import Value, converter, is_converted
from relaxpy.plugins.torch.symbols import is_symbolic, sympy_of


def filled(cx: Context, value: Value) -> Expr:
    """A tensor of the result's shape and datatype with one value everywhere."""
    dtype = cx.result_dtype()
    return R.full(tuple(cx.result_shape()), cx.tensor(value, dtype), dtype)


@converter("scalar_tensor", namespace="prims")
@converter("full", "new_full", "full_like", "fill", "scalar_tensor")
def full(cx: Context, *args: Value) -> Expr:
    at = (
        0
        if "scalar_tensor" in str(cx.node.target)
        else 2
        if "new_full" in str(cx.node.target)
        else 1
    )
    return filled(cx, args[at])


@converter(
    *("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "empty_strided"),
    *("empty_permuted", "new_empty_strided", "_efficientzerotensor"),
)
def zeros(cx: Context, *args: Value) -> Expr:
    return _uniform(cx, args[0], R.zeros, R.zeros_like)


@converter("ones", "ones_like", "new_ones")
def ones(cx: Context, *args: Value) -> Expr:
    return _uniform(cx, args[0], R.ones, R.ones_like)


def _uniform(cx: Context, first: Value, new: Any, like: Any) -> Expr:
    """The result of an operator that takes a shape, or a tensor that has it."""
    dtype = cx.result_dtype()
    if "_like." in str(cx.node.target) and isinstance(first, Expr) and dtype_of(first) == dtype:
        return cast("Expr", like(first))
    return cast("Expr", new(tuple(cx.result_shape()), dtype))


@converter("arange", "arange.start", "arange.start_step", wide=True)
def arange(cx: Context, *args: Any) -> Expr:
    numbers = [arg for arg in args if arg is not None]
    start, step = 0, 1
    if len(numbers) == 1:
        (end,) = numbers
    else:
        start, end, *rest = numbers
        step = rest[0] if rest else 1
    dtype = cx.result_dtype()
    if "int" in dtype:
        if not any(isinstance(number, float) for number in numbers):
            return R.arange(start, end, step, dtype)
        # after it has counted them
        start, step = (int(v) if isinstance(v, float) else v for v in (start, step))
    return _ramp(cx, cx.result_shape()[0], start, step)


@converter("iota", namespace="prims")
def iota(cx: Context, count: Size, *, start: Any, step: Any, dtype: Value) -> Expr:
    """`count` numbers from `start` on."""
    return _ramp(cx, count, start, step)


def _ramp(cx: Context, count: Size, start: Any, step: Any) -> Expr:
    dtype = cx.result_dtype()
    places = R.astype(R.arange(0, count, 1, "int64"), dtype)
    scaled = places if _is(step, 1) else places * cx.tensor(step, dtype)
    return scaled if _is(start, 0) else scaled + cx.tensor(start, dtype)


def _is(value: Any, number: int) -> bool:
    return isinstance(value, (int, float)) and value == number


@converter("linspace")
def linspace(cx: Context, start: Any, end: Any, count: Any, *_: Value) -> Expr:
    dtype = cx.result_dtype()
    wide = "float64"
    places = R.astype(R.arange(0, count, 1, "int64"), wide)
    first, last = cx.tensor(start, wide), cx.tensor(end, wide)
    if isinstance(count, int) and count < 2:
        return R.astype(places * const(0.0, wide) + first, dtype)
    steps = cx.tensor(count, wide) - const(1.0, wide)
    step = (last - first) / steps
    below = first + places * step
    above = last - (steps - places) * step
    is_below = places < cx.tensor(count, wide) / const(2.0, wide)
    return R.astype(R.where(is_below, below, above), dtype)


@converter(
    *("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"),
    *("fft_fftfreq", "fft_rfftfreq", "range"),
)
def table(cx: Context, *numbers: Any) -> Any:
    """The elements that PyTorch computes, which depend on numbers only."""
    if not all(isinstance(number, (bool, int, float)) for number in numbers if number is not None):
        raise UnsupportedError("a table whose size depends on inputs")
    given = [number for number in numbers if number is not None]
    return cx.importer.value(cx.node.target(*given, dtype=cx.meta().dtype))


@converter("eye", "eye.m")
def eye(cx: Context, rows: Size, columns: Size | None = None, *, dtype: Value = None) -> Expr:
    return R.eye(rows, rows if columns is None else columns, 0, cx.result_dtype())


@converter("sym_size.int")
def sym_size(cx: Context, x: Expr, axis: int) -> Size:
    size = shape_of(x)[cx.axis(axis, x)]
    for symbol in cx.importer.symbols.unknown(cx.meta()):
        if symbol == sympy_of(cx.meta()):  # a size of which only we have a variable
            cx.importer.symbols.known[symbol] = as_size(size)
    return size


@converter("sym_storage_offset")
def sym_storage_offset(cx: Context, x: Expr) -> Any:
    """Ours has none; where PyTorch does not know its own, ours stands for it."""
    for symbol in cx.importer.symbols.unknown(cx.meta()):
        cx.importer.symbols.known[symbol] = as_size(0)
    return sym_value(cx, x)


@converter("sym_numel", "sym_stride.int", "numel")
def sym_value(cx: Context, x: Expr, *rest: Value) -> Any:
    return cx.importer.symbols.expr(cx.meta())


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
    scaled = x * kept * cx.tensor(scale, cx.result_dtype(0))
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
    signs = cx.emit(R.where(x <= zero, -one, one))
    plan = {"op": "rrelu", "args": [{"tensor": 0}, lower, upper, True], "kwargs": {}}
    info = tensor_of(shape_of(x), dtype_of(x))
    drawn = _call(cx, [rx.StringImm(json.dumps(plan)), rx.ShapeExpr(()), signs], info)
    slopes = cx.emit(R.abs(drawn))
    return x * slopes, slopes
