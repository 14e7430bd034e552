"""Random graph functions of calls of operators, which the reference evaluator is the oracle of.

Operators decide themselves which calls are possible: one whose struct info is refused is drawn
again. What is varied, each by itself:

- operators: on elements, with one operand or two, the same twice; products of matrices, with
  another `out_dtype`; reductions, running sums, orders and normalisations along any axes, negative,
  permuted and not the last; tensors moved, joined, cut and repeated;
- calls that change nothing: conversions to the same datatype, to the same shape, slices of
  everything, one part, `wrap_param`; their results as operands of calls that overwrite them, and as
  results of the function;
- dimensions: numbers, 0 and 1 among them, variables and sums of these from repeated slices and
  concatenations of symbolic axes; ranks 0 to 4; one of 70,000 elements in a few programs;
- what is known: shapes, ranks only, or nothing, of parameters and of casts;
- effects of functions outside of the program that overwrite their operand, and of kernels;
- shapes that elements decide, with variables that the function binds or without;
- datatypes: floats of 64 to 4 bits, integers and Booleans of all kinds, in one program or several;
- values: small ones of both signs, and the ends of the ranges of datatypes with infinities and NaN;
- results: any values, parameters among them, twice the same, and tuples in tuples; in dataflow
  blocks and outside of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from relaxpy import IRModule, register_func, relax, tir
from relaxpy.errors import RelaxpyError
from relaxpy.script import from_source, relax as R
from relaxpy.testing import random_inputs

FLOATS = ("float64", "float32", "float16", "bfloat16")
SMALL = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")
INTS = ("int8", "uint8", "int16", "int32", "int64", "uint32")
UNARY = (
    *("abs", "negative", "exp", "tanh", "sigmoid", "sqrt", "square", "sign", "floor", "round"),
    *("nn.relu", "nn.silu", "nn.gelu", "sin", "log", "isnan", "rsqrt", "bitwise_not", "erf"),
    *("zeros_like", "ones_like", "logical_not", "isfinite", "ceil", "trunc", "cos", "atan"),
)
BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "equal", "less", "power"),
    *("floor_divide", "floor_mod", "mod", "bitwise_and", "logical_or", "greater_equal"),
)
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "variance", "std")
OVERWRITE = """
@T.prim_func(private=True)
def overwrite(a: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    for i, j in T.grid(n, m):
        with T.block("A"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = A[vi, vj] * T.float32(2) + T.float32(1)
"""


def _increment(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array itself, of which each element is one more than before."""
    array += array.dtype.type(1)
    return array


register_func("tests.fuzz.increment", _increment, override=True)


class ImpossibleError(Exception):
    """No call of this kind can be made of the values so far."""


Call = Callable[["Writer"], "relax.Expr | None"]


class Writer:
    """Draws one module."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.builder = relax.BlockBuilder()
        self.sizes = [tir.Var(name, "int64") for name in "nm"[: rng.randint(0, 2)]]
        self.dtypes = rng.choices((*FLOATS, *FLOATS, *INTS, *SMALL, "bool"), k=rng.randint(1, 3))
        self.known: list[relax.Var] = []
        self.large = rng.random() < 0.003
        self.found = 0

    def size(self) -> Any:
        return self.rng.choice((*self.sizes, *self.sizes, *self.sizes, 1, 2, 3, 4, 0))

    def new_size(self) -> tir.Var:
        """A variable that the function binds itself."""
        self.found += 1
        return tir.Var(f"k{self.found}", "int64")

    def parameter(self, k: int) -> relax.Var:
        rank = self.rng.choice((0, 1, 2, 2, 2, 3, 3, 4))
        dtype = self.rng.choice(self.dtypes)
        if k and self.rng.random() < 0.15:
            return relax.Var(f"x{k}", R.Tensor(ndim=rank, dtype=dtype))
        shape = [self.size() for _ in range(rank)]
        if self.large and k == 0:
            shape = [70_000] if self.rng.random() < 0.5 else [7, 10_000]
        return relax.Var(f"x{k}", R.Tensor(shape, dtype))

    def pick(self, accept: Callable[[relax.Var], bool] = lambda v: True) -> relax.Var:
        found = [v for v in self.known[-6:] + self.known if accept(v)]
        if not found:
            raise ImpossibleError
        return self.rng.choice(found)

    def partner(self, x: relax.Var) -> relax.Var:
        """Perhaps another variable of the same datatype and rank, mostly of the same shape."""
        info, same = x.struct_info, self.rng.random() < 0.7

        def alike(v: relax.Var) -> bool:
            other = v.struct_info
            if same and str(info) != str(other):
                return False
            return (other.dtype, other.ndim) == (info.dtype, info.ndim)

        return self.pick(alike)

    def rank(self, x: relax.Var) -> int:
        return max(x.struct_info.ndim, 0)

    def axis(self, x: relax.Var) -> int:
        if not self.rank(x):
            raise ImpossibleError
        return self.rng.randrange(-self.rank(x), self.rank(x))

    def axes(self, x: relax.Var) -> list[int]:
        """Some different axes in any order, counted from either end."""
        rank = self.rank(x)
        chosen = self.rng.sample(range(rank), self.rng.randint(min(1, rank), rank))
        return [axis - rank * self.rng.randint(0, 1) for axis in chosen]

    def dims(self, x: relax.Var) -> Sequence[Any]:
        shape = x.struct_info.shape
        if not isinstance(shape, relax.ShapeExpr):
            raise ImpossibleError
        return list(shape.values)

    def emit(self, steps: int) -> None:
        """Bind the results of calls that have struct info."""
        for _ in range(steps):
            for _ in range(20):
                try:
                    value = self.rng.choice(CHEAP if self.large else CALLS)(self)
                    if value is None:
                        continue
                    var = self.builder.emit(value)
                except (RelaxpyError, ImpossibleError):  # this call is not possible
                    continue
                self.keep(var)
                break

    def keep(self, var: relax.Var) -> None:
        """Use a variable, or the fields of a tuple, from now on."""
        info = var.struct_info
        if isinstance(info, relax.TensorStructInfo):
            if len(str(info)) < 160 and info.ndim <= 5:
                self.known.append(var)
        elif isinstance(info, relax.TupleStructInfo):
            for k in range(len(info.fields)):
                self.keep(self.builder.emit(relax.TupleGetItem(var, k)))

    def result(self) -> relax.Expr:
        values = [self.pick() for _ in range(self.rng.randint(1, 5))]
        if len(values) == 1:
            return values[0]
        nested = relax.Tuple(values[:2])
        return relax.Tuple([nested, *values[2:]] if self.rng.random() < 0.2 else values)


def _operator(name: str) -> Callable[..., relax.Expr]:
    found: Any = R
    for part in name.split("."):
        found = getattr(found, part)
    operator: Callable[..., relax.Expr] = found
    return operator


def unary(w: Writer) -> relax.Expr:
    return _operator(w.rng.choice(UNARY))(w.pick())


def binary(w: Writer) -> relax.Expr:
    x = w.pick()
    return _operator(w.rng.choice(BINARY))(x, x if w.rng.random() < 0.1 else w.partner(x))


def constant(w: Writer) -> relax.Expr:
    x = w.pick()
    value = R.const(w.rng.choice((0, 1, 2, 3)), x.struct_info.dtype)
    operands = (x, value) if w.rng.random() < 0.7 else (value, x)
    return _operator(w.rng.choice(BINARY))(*operands)


def where(w: Writer) -> relax.Expr:
    x = w.pick()
    return R.where(w.pick(lambda v: v.struct_info.dtype == "bool"), x, w.partner(x))


def convert(w: Writer) -> relax.Expr:
    x = w.pick()
    others = (*w.dtypes, w.rng.choice((*FLOATS, *INTS, *SMALL)), "float32")
    return R.astype(x, w.rng.choice(others))


def unchanged(w: Writer) -> relax.Expr | None:
    """A call whose result is its operand, or equal to it."""
    x = w.pick()
    dims, rank = w.dims(x), w.rank(x)
    dtype = x.struct_info.dtype
    match w.rng.randrange(16):
        case 0:
            return R.astype(x, dtype)
        case 1:
            return R.wrap_param(x, dtype)
        case 2:
            return R.reshape(x, dims)
        case 3:
            return R.broadcast_to(x, dims)
        case 4:
            return R.permute_dims(x, list(range(rank)))
        case 5:
            return R.tile(x, [1] * rank)
        case 6 if rank:
            return R.repeat(x, 1, w.axis(x))
        case 7 if rank:
            return R.strided_slice(x, [0], [0], [dims[0]], assume_inbound=True)
        case 8:
            return R.concat([x], w.axis(x))
        case 9:
            return R.squeeze(R.expand_dims(x, 0), [0])
        case 10:
            return R.nn.pad(x, [0] * (2 * rank))
        case 11:
            return R.sum(x, axis=[])
        case 12:
            return R.roll(x, 0, w.axis(x))
        case 13:
            return R.collapse_sum_like(x, x)
        case 14:
            return R.split(x, 1, w.axis(x))
        case _:
            return R.reshape(x, R.shape_of(x))


def reduce(w: Writer) -> relax.Expr:
    x = w.pick()
    axes: Any = w.axes(x)
    axes = w.rng.choice((axes, axes, axes[0] if axes else None, None))
    return _operator(w.rng.choice(REDUCTIONS))(x, axes, w.rng.random() < 0.5)


def along(w: Writer) -> relax.Expr:
    """Something along one axis."""
    x = w.pick(lambda v: v.struct_info.ndim > 0)
    axis, dtype = w.axis(x), x.struct_info.dtype
    wide = w.rng.choice((None, dtype, "int64" if "int" in str(dtype) else "float32"))
    match w.rng.randrange(9):
        case 0:
            return R.nn.softmax(x, axis)
        case 1:
            return R.nn.log_softmax(x, axis)
        case 2:
            return R.cumsum(x, axis, wide)
        case 3:
            return R.cumprod(x, axis, wide, w.rng.random() < 0.5)
        case 4:
            return R.sort(x, axis, w.rng.random() < 0.5)
        case 5:
            return R.argsort(x, axis, w.rng.random() < 0.5, "int32")
        case 6:
            return R.argmax(x, axis, w.rng.random() < 0.5)
        case 7:
            return R.flip(x, axis)
        case _:
            return R.roll(x, w.rng.randint(-2, 3), axis)


def normalise(w: Writer) -> relax.Expr:
    """A normalisation over any axes, with weights that differ."""
    x = w.pick(lambda v: v.struct_info.ndim > 1 and "float" in str(v.struct_info.dtype))
    dims, dtype = w.dims(x), str(x.struct_info.dtype)

    def weight(shape: list[Any], start: int) -> relax.Expr:
        count: Any = 1
        for size in shape:
            count = count * size
        numbers = w.builder.emit(R.arange(start, start + count, 1, "int64"))
        return w.builder.emit(R.astype(R.reshape(numbers, shape), dtype))

    match w.rng.randrange(4):
        case 0:
            axes = w.axes(x)
            shape = [dims[axis] for axis in axes]
            return R.nn.layer_norm(x, weight(shape, 1), weight(shape, 0), axes)
        case 1:
            axes = w.axes(x)
            return R.nn.rms_norm(x, weight([dims[axis] for axis in axes], 1), axes)
        case 2:
            channel, *rest = w.rng.sample(range(len(dims)), w.rng.randint(1, len(dims)))
            shape = [dims[channel]]
            groups = w.rng.choice((1, 1, 2))
            return R.nn.group_norm(x, weight(shape, 1), weight(shape, 0), groups, channel, rest)
        case _:
            axis = w.axis(x)
            values = [weight([dims[axis]], k) for k in (1, 0, 1, 1)]
            return R.nn.batch_norm(x, *values, axis=axis, training=False)


def product(w: Writer) -> relax.Expr:
    x = w.pick(lambda v: v.struct_info.ndim > 0)
    y: relax.Expr = w.partner(x)
    if w.rng.random() < 0.6:
        y = R.permute_dims(x if w.rng.random() < 0.5 else y)
    wide = w.rng.choice((None, None, "float32", "int32", "float64", "float16"))
    if w.rng.random() < 0.1:
        return R.linear(x, y, None, wide)
    return R.matmul(x, y, wide)


def convolve(w: Writer) -> relax.Expr:
    x = w.pick(lambda v: v.struct_info.ndim == 3)
    dims, dtype = w.dims(x), x.struct_info.dtype
    weight = R.full([2, dims[1], w.rng.randint(1, 3)], R.const(1, dtype), dtype)
    wide = w.rng.choice((None, "float32", "int32", "float16"))
    return R.nn.conv1d(x, weight, padding=w.rng.randint(0, 2), out_dtype=wide)


def move(w: Writer) -> relax.Expr:
    x = w.pick()
    dims, rank = w.dims(x), w.rank(x)
    match w.rng.randrange(9):
        case 0:
            return R.permute_dims(
                x, [a - rank * w.rng.randint(0, 1) for a in w.rng.sample(range(rank), rank)]
            )
        case 1:
            return R.expand_dims(x, w.rng.choice((0, -1, [0, -1], rank)))
        case 2:
            return R.flatten(x)
        case 3:
            return R.reshape(x, [-1, *w.rng.sample(dims, min(1, rank))])
        case 4:
            return R.tile(x, [w.rng.randint(1, 2) for _ in range(rank)])
        case 5:
            return R.repeat(x, 2, w.axis(x))
        case 6:
            return R.broadcast_to(x, [w.size(), *dims])
        case 7:
            return R.take(x, R.const([0], "int64"), w.axis(x))
        case _:
            return R.nn.pad(x, [w.rng.randint(0, 1) for _ in range(2 * rank)])


def join(w: Writer) -> relax.Expr:
    x = w.pick()
    parts = [x, *(w.partner(x) for _ in range(w.rng.randint(1, 2)))]
    if w.rng.random() < 0.2:
        return R.stack(parts, w.axis(x))
    return R.concat(parts, w.axis(x))


def cut(w: Writer) -> relax.Expr:
    x = w.pick(lambda v: v.struct_info.ndim > 0)
    axes = w.axes(x)
    dims = w.dims(x)
    match w.rng.randrange(3):
        case 0:
            return R.split(x, w.rng.choice((1, 2, 3, [1], [1, 2])), w.axis(x))
        case 1:
            begin = [w.rng.choice((0, 0, 1, -2)) for _ in axes]
            end = [w.rng.choice((dims[a], dims[a], -1, 2, *w.sizes)) for a in axes]
            step = [w.rng.choice((1, 1, 2)) for _ in axes]
            return R.strided_slice(x, axes, begin, end, step)
        case _:
            end = [dims[a] for a in axes]
            return R.strided_slice(x, axes, [0] * len(axes), end, assume_inbound=True)


def shaped(w: Writer) -> relax.Expr:
    """A tensor of the shape of another, which each call computes again."""
    x = w.pick()
    shape = w.builder.emit(R.shape_of(x))
    match w.rng.randrange(4):
        case 0:
            return R.zeros(shape, x.struct_info.dtype)
        case 1:
            return R.broadcast_to(w.partner(x), shape)
        case 2:
            return R.reshape(w.partner(x), shape)
        case _:
            return R.collapse_sum_to(w.partner(x), shape)


def cast(w: Writer) -> relax.Expr:
    """The same tensor, of which less is known, or as much again."""
    x = w.pick()
    info = x.struct_info
    weaker = R.Tensor(ndim=info.ndim, dtype=info.dtype)
    vague = w.builder.match_cast(x, w.rng.choice((weaker, R.Tensor(dtype=info.dtype))))
    if w.rng.random() < 0.6:
        return w.builder.match_cast(vague, info)
    return vague


def overwrite(w: Writer) -> relax.Expr | None:
    """A kernel that writes into a tensor, which a call that changes nothing may have returned."""
    x = w.pick(lambda v: v.struct_info.dtype == "float32" and v.struct_info.ndim == 2)
    owned = w.builder.emit(_operator(w.rng.choice(("negative", "abs", "nn.relu")))(x))
    if w.rng.random() < 0.5:
        owned = w.builder.emit(
            w.rng.choice(
                (
                    lambda: R.astype(owned, "float32"),
                    lambda: R.reshape(owned, w.dims(x)),
                    lambda: relax.TupleGetItem(relax.Tuple([x, owned]), 1),
                )
            )()
        )
    var = w.builder.add_func(from_source(OVERWRITE), "overwrite")
    return R.call_tir_inplace(var, (owned,), [0], x.struct_info)


def packed(w: Writer) -> relax.Expr:
    """A function outside of the program that overwrites a new tensor, perhaps several times."""
    x = w.pick(lambda v: v.struct_info.dtype in ("float32", "float64", "int32", "int64"))
    owned = w.builder.emit(_operator(w.rng.choice(("negative", "abs", "square")))(x))
    info = owned.struct_info
    for _ in range(w.rng.randint(0, 2)):
        owned = w.builder.emit(
            R.call_inplace_packed(
                "tests.fuzz.increment", owned, inplace_indices=[0], sinfo_args=[info]
            )
        )
    return R.call_inplace_packed(
        "tests.fuzz.increment", owned, inplace_indices=[0], sinfo_args=[info]
    )


def selected(w: Writer) -> relax.Expr | None:
    """A tensor whose elements decide its shape, perhaps with a variable for its dimension."""
    x = w.pick()
    if w.rng.random() < 0.4:
        rank = w.rank(x)
        found = w.builder.emit(R.nonzero(x))
        if w.rng.random() < 0.5:
            return found
        return w.builder.match_cast(found, R.Tensor([rank, w.new_size()], "int64"))
    found = w.builder.emit(R.unique(x, sorted=True))
    if w.rng.random() < 0.5:
        return found
    return w.builder.match_cast(found, R.Tensor([w.new_size()], x.struct_info.dtype))


CALLS: list[Call] = [
    *(
        unary,
        unary,
        unary,
        unary,
        binary,
        binary,
        binary,
        binary,
        constant,
        constant,
        where,
        convert,
        convert,
        unchanged,
    ),
    *(unchanged, reduce, reduce, along, along, normalise, normalise, product, product, convolve),
    *(move, move, move, join, join, join, cut, cut, cut, cast, overwrite, shaped, shaped),
    *(packed, selected),
]

CHEAP: list[Call] = [unary, unary, constant, convert, unchanged, reduce, reduce, cut]
"""Calls on tensors of 70,000 elements, which the reference evaluates one by one."""


def write(seed: object) -> IRModule:
    """The module of this seed."""
    rng = random.Random(f"calls {seed}")
    w = Writer(rng)
    binders = [relax.Var(f"s{k}", R.Tensor([v], "int8")) for k, v in enumerate(w.sizes)]
    params = [*(w.parameter(k) for k in range(rng.randint(1, 4))), *binders]
    w.known = list(params[: len(params) - len(binders)])
    steps = 2 if w.large else rng.randint(3, 14)
    with w.builder.function("main", params):
        if rng.random() < 0.5:
            with w.builder.dataflow():
                w.emit(steps)
                result = w.builder.emit_output(w.result())
        else:
            w.emit(steps)
            result = w.result()
        w.builder.emit_func_output(result)
    return w.builder.finalize()


def arguments(mod: IRModule, seed: int, *, extreme: bool) -> tuple[Any, ...]:
    """Arguments of `main`; extreme ones are at the ends of the ranges of their datatypes."""
    rng = np.random.default_rng(seed)
    sizes = {name: int(rng.choice((0, 1, 2, 3, 3, 5))) for name in "nm"}
    drawn = random_inputs(mod["main"], _sizes(mod, sizes), seed)
    infos = (param.struct_info for param in mod["main"].params)
    pairs = zip(drawn, infos, strict=True)  # tensors of unknown shapes have the same ones
    args = tuple(a if info.shape else np.resize(a, (2,) * a.ndim) for a, info in pairs)
    return tuple(_extreme(a, rng) for a in args) if extreme else args


def _sizes(mod: IRModule, sizes: dict[str, int]) -> dict[str, int]:
    variables = {v.name for v in relax.analysis.defined_symbolic_vars(mod["main"])}
    return {name: size for name, size in sizes.items() if name in variables}


def _extreme(array: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    kind = array.dtype
    if kind == np.bool_:
        return array
    if kind.kind in "iu":
        ends: list[float] = [np.iinfo(kind).min, np.iinfo(kind).max, 0, 1]
    else:
        info = ml_dtypes.finfo(kind)
        ends = [float(info.max), float(info.min), float(info.tiny), float(info.smallest_subnormal)]
        ends += [np.inf, -np.inf, np.nan, -0.0, 1.0]
    values = np.array(ends).astype(kind) if kind.kind not in "iu" else np.array(ends, kind)
    chosen = rng.random(array.shape) < 0.3
    drawn = values[rng.integers(0, len(values), array.shape)]
    return np.where(chosen, drawn, array)
