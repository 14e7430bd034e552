"""Random arguments of functions, from the struct info and the uses of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, prod, sqrt
from typing import Any, Final

import numpy as np

from relaxpy.errors import MisuseError, close_names, unexpected
from relaxpy.exec.runtime.values import ShapeTuple, Value
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

_LARGEST_SIZE: Final = 5
"""The largest dimension that is drawn."""
_ATTEMPTS: Final = 100
"""The number of attempts to draw dimensions until those computed from them are sizes."""


@user_facing
def random_inputs(
    func: Any, sizes: Mapping[str, int] | None = None, seed: int = 0
) -> tuple[Value, ...]:
    """Random arguments for a Relax function, a function of an executable, or `main` of a module.

    Equal seeds give equal arguments. Floats are normally distributed, integers are from 0 to 9.
    Parameters of a Relax function, or of a module, that are the second operand of a product or a
    convolution are divided by the square root of the number of summands: then results are about as
    large as the first operand. Parameters that are operands of partial functions, such as
    logarithms, quotients and indices, are in the domain. Dimensions, whose names are those of shape
    variables, are as in `sizes` and otherwise drawn from 1 to 5. What is unknown is chosen: a rank
    is 2, a datatype float32.

    Errors:
        MisuseError (also TypeError, ValueError): a parameter takes an object or a function, no
            dimensions were found that make all sizes natural numbers, or `func` or `sizes` is
            something else.
    """
    params = params_of(func)
    for name, size in (sizes or {}).items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise MisuseError(f"dimension {name} is {size!r:.60}, expected a size", about=size)
    known = sorted({name for param in params for name in dimension_names(param)})
    if unknown := set(sizes or {}) - set(known):
        listed = f"the dimensions are {', '.join(known)}" if known else "all dimensions are known"
        raise MisuseError(
            f"no parameter has a dimension {min(unknown)}",
            about=sizes,
            hint=close_names(min(unknown), known) or listed,
        )
    function = _main_of(func)
    summed = summed_dims_of(function) if isinstance(function, rx.Function) else {}
    return random_values(params, sizes or {}, seed, domains_in(func), summed)


def domains_in(func: Any) -> Mapping[rx.Var, Domain]:
    """The domains of the parameters of a Relax function, or of `main` of a module."""
    function = _main_of(func)
    return domains_of(function) if isinstance(function, rx.Function) else {}


def _main_of(func: Any) -> Any:
    """The function `main` of a module that has one; else `func` itself."""
    is_module = isinstance(func, IRModule) and "main" in func.functions_by_name
    return func["main"] if is_module else func


def moved_inside(value: Value, domain: Domain | None, sizes: Mapping[str, int]) -> Value:
    """A value whose elements are in a domain."""
    if domain is None:
        return value
    if type(value) is tuple:
        return tuple(moved_inside(field, domain, sizes) for field in value)
    if not isinstance(value, np.ndarray):
        return value
    known = [dim for dim in domain.below if _is_known(dim, sizes)]
    limits = [_known(dim, sizes) for dim in known]
    return domain.moved_inside(value, [limit for limit in limits if limit is not None])


def params_of(func: Any) -> Sequence[rx.Var]:
    """The parameters of a function. Errors: MisuseError if it is not one."""
    func = _main_of(func)
    if isinstance(func, rx.Function):
        return func.params
    signature = getattr(func, "signature", None)  # that of an entry point
    if signature is None:
        raise unexpected(
            func, "expected a Relax function", hint="pass the function itself, such as mod['main']"
        )
    params: Sequence[rx.Var] = signature.params
    return params


def random_values(
    params: Sequence[rx.Var],
    sizes: Mapping[str, int],
    seed: int,
    domains: Mapping[rx.Var, Domain] | None = None,
    summed: Mapping[rx.Var, Sequence[tir.PrimExpr]] | None = None,
) -> tuple[Value, ...]:
    """Random values of the struct info of parameters with known `summed` dimensions.

    Errors:
        MisuseError: there are none.
    """
    rng = np.random.default_rng(seed)
    sizes = _drawn_sizes(params, sizes, rng)
    values = [
        _scaled(
            _value(param.struct_info, param.name_hint, sizes, rng),
            [_known(dim, sizes) for dim in (summed or {}).get(param, ()) if _is_known(dim, sizes)],
        )
        for param in params
    ]
    inside = (domains or {}).get
    return tuple(
        moved_inside(value, inside(param), sizes)
        for param, value in zip(params, values, strict=True)
    )


def _scaled(value: Value, summed: Sequence[int | None]) -> Value:
    """Floats divided by the square root of the number of them in a sum over some dimensions."""
    if not summed or not isinstance(value, np.ndarray) or value.dtype.kind in "biu":
        return value
    count = prod(size or 1 for size in summed)
    return (value.astype("float64") / sqrt(count)).astype(value.dtype)


def dimension_names(param: rx.Var) -> dict[str, None]:
    """The names of the shape variables in the struct info of a parameter, in order."""
    return dict.fromkeys(var.name for dim in _dimensions(param.struct_info) for var in _vars(dim))


def _vars(dim: tir.PrimExpr) -> list[tir.Var]:
    return list(occurrences(dim, tir.Var))


def _dimensions(sinfo: rx.StructInfo | None) -> list[tir.PrimExpr]:
    match sinfo:
        case rx.TensorStructInfo(shape=rx.ShapeExpr(values=dims)):
            return list(dims)
        case rx.ShapeStructInfo(values=dims) if dims is not None:
            return list(dims)
        case rx.PrimStructInfo(value=tir.PrimExpr() as dim):
            return [dim]
        case rx.TupleStructInfo(fields=fields):
            return [dim for field in fields for dim in _dimensions(field)]
        case _:
            return []


def _drawn_sizes(
    params: Sequence[rx.Var], sizes: Mapping[str, int], rng: np.random.Generator
) -> dict[str, int]:
    """The sizes with one for every other dimension, so that no size is negative."""
    names = dict.fromkeys(name for param in params for name in dimension_names(param))
    drawn = dict(sizes)
    for _ in range(_ATTEMPTS):
        others = {n: int(rng.integers(1, _LARGEST_SIZE + 1)) for n in names if n not in sizes}
        drawn = {**sizes, **others}
        dims = (dim for param in params for dim in _dimensions(param.struct_info))
        if not others or all(_known(dim, drawn) is not None for dim in dims):
            break
    return drawn


def _is_known(dim: tir.PrimExpr, sizes: Mapping[str, int]) -> bool:
    return all(var.name in sizes for var in _vars(dim))


def _known(dim: tir.PrimExpr, sizes: Mapping[str, int]) -> int | None:
    """The value of a dimension, if it is a size."""
    values = {var: tir.IntImm(var.dtype, sizes[var.name]) for var in _vars(dim)}
    value = simplify(substitute(dim, values))
    return value.value if isinstance(value, tir.IntImm) and value.value >= 0 else None


def _value(
    sinfo: rx.StructInfo | None, param: str, sizes: Mapping[str, int], rng: np.random.Generator
) -> Value:
    def size(dim: tir.PrimExpr) -> int:
        found = _known(dim, sizes)
        if found is None:
            chosen = ", ".join(f"{v.name} = {sizes[v.name]}" for v in dict.fromkeys(_vars(dim)))
            raise MisuseError(
                f"the dimension {dim} of parameter {param} is not a size for {chosen}"
            )
        return found

    match sinfo:
        case rx.TensorStructInfo(shape=rx.ShapeExpr(values=dims), dtype=dtype):
            return _array([size(dim) for dim in dims], dtype, param, rng)
        case rx.TensorStructInfo(ndim=ndim, dtype=dtype):
            shape = rng.integers(1, _LARGEST_SIZE + 1, ndim if ndim >= 0 else 2)
            return _array([int(dim) for dim in shape], dtype, param, rng)
        case rx.TupleStructInfo(fields=fields):
            return tuple(_value(field, param, sizes, rng) for field in fields)
        case rx.ShapeStructInfo(values=dims) if dims is not None:
            return ShapeTuple(size(dim) for dim in dims)
        case rx.ShapeStructInfo(ndim=ndim):
            count = ndim if ndim >= 0 else 2
            return ShapeTuple(int(rng.integers(1, _LARGEST_SIZE + 1)) for _ in range(count))
        case rx.PrimStructInfo(dtype=dtype, value=None):
            return _array([], dtype, param, rng).item()
        case rx.PrimStructInfo(value=tir.PrimExpr() as dim):
            return size(dim)
        case _:
            raise MisuseError(f"there are no random values for parameter {param}: {sinfo}")


def _array(shape: list[int], dtype: DataType | None, param: str, rng: np.random.Generator) -> Array:
    dtype = dtype or DataType("float32")
    try:
        if dtype.family in ("int", "uint"):
            return rng.integers(0, 10 if dtype.bits >= 8 else 2, shape).astype(dtype.numpy())
        return rng.standard_normal(shape).astype(dtype.numpy())
    except (MemoryError, ValueError):
        raise MisuseError(
            f"an array of shape {tuple(shape)} for parameter {param} does not fit in memory"
        ) from None


@dataclass(frozen=True, slots=True)
class Domain:
    """Numbers from `low` to `high`, and integers below each dimension in `below`."""

    low: float = -np.inf
    high: float = np.inf
    below: tuple[tir.PrimExpr, ...] = ()

    def __and__(self, other: Domain) -> Domain:
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Domain(low, high, self.below + other.below)

    def moved_inside(self, array: Array, sizes: Sequence[int]) -> Array:
        """The array, with elements out of the domain replaced; `sizes` are those of `below`.

        Elements in the domain stay, except integers, which are taken modulo the sizes.
        """
        if array.dtype.kind in "iu":
            if self.low > 0:
                array = np.maximum(array, np.asarray(ceil(self.low), array.dtype))
            return array % np.asarray(max(1, min(sizes)), array.dtype) if sizes else array
        if array.dtype.kind == "b":
            return array
        wide = array.astype("float64")
        if np.isfinite(self.low) and np.isfinite(self.high):
            middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
            moved = middle + half * np.sin(wide)
        else:
            moved = self.low + np.abs(wide)
        is_inside = (wide >= self.low) & (wide <= self.high)
        return np.where(is_inside, array, moved.astype(array.dtype))


_POSITIVE: Final = Domain(low=0.125)
_UNIT: Final = Domain(-0.96875, 0.96875)
#: Partial operators: those defined only for some values of an operand, by its index.
_OPERANDS: Final = {
    **dict.fromkeys(("log", "sqrt", "rsqrt"), (0, _POSITIVE)),
    **dict.fromkeys(("asin", "acos", "atanh"), (0, _UNIT)),
    "acosh": (0, Domain(low=1.0)),
    "power": (0, _POSITIVE),
    **dict.fromkeys(("divide", "floor_divide", "floor_mod", "mod"), (1, _POSITIVE)),
    "nn.batch_norm": (4, _POSITIVE),
}
#: Operators whose results have elements of the first operand, beside those that view or copy it.
_SAME_VALUES: Final = frozenset(
    {
        *("astype", "broadcast_to", "concat", "dynamic_strided_slice", "flip", "layout_transform"),
        *("repeat", "split", "stack", "strided_slice", "tile"),
    }
)
_CONVOLUTIONS: Final = ("nn.conv1d", "nn.conv2d", "nn.conv3d")


def summed_dims_of(func: rx.Function) -> Mapping[rx.Var, Sequence[tir.PrimExpr]]:
    """The dimensions of parameters that are summed over, of those that are weights."""
    origins: dict[rx.Expr, rx.Var] = {param: param for param in func.params}
    found: dict[rx.Var, Sequence[tir.PrimExpr]] = {}
    for call, var in _calls(func.body):
        op = call.op.name.removeprefix("relax.") if isinstance(call.op, Op) else ""
        if _has_same_values(call, op) and call.args[0] in origins:
            origins[var] = origins[call.args[0]]
        weight = origins.get(call.args[1]) if len(call.args) > 1 else None
        if weight is not None and (dims := _summed(call, op)):
            found[weight] = dims
    return found


def _has_same_values(call: rx.Call, op: str) -> bool:
    is_copy = isinstance(call.op, Op) and call.op.record.result_memory(call).is_of_operand
    return is_copy or op in _SAME_VALUES


def _calls(body: rx.Expr) -> Iterator[tuple[rx.Call, rx.Var]]:
    """The calls that a body, or a branch in it, binds to variables."""
    if not isinstance(body, rx.SeqExpr):
        return
    for binding in (binding for block in body.blocks for binding in block.bindings):
        value = binding.value
        if isinstance(value, rx.If):
            yield from _calls(value.true_branch)
            yield from _calls(value.false_branch)
        elif isinstance(value, rx.Call) and binding.var is not None:
            yield value, binding.var


def _summed(call: rx.Call, op: str) -> Sequence[tir.PrimExpr]:
    """The dimensions of the second operand that a product or a convolution sums over."""
    dims = _dims(call.args[1])
    if op == "matmul":
        return dims[-2:-1] or dims
    if op.removesuffix("_transpose") not in _CONVOLUTIONS:
        return ()
    layout = str(call.attrs["kernel_layout"])
    axes = [axis for axis in layout if axis.isalpha()]
    return [dim for axis, dim in zip(axes, dims, strict=False) if axis.upper() != "O"]


def domains_of(func: rx.Function) -> Mapping[rx.Var, Domain]:
    """The domains of parameters that operators of the function, or of its branches, restrict."""
    found: dict[rx.Var, Domain] = {}
    _sequence(func.body, None, found)
    return {param: found[param] for param in func.params if param in found}


def _sequence(body: rx.Expr, result: Domain | None, found: dict[rx.Var, Domain]) -> None:
    """Add the domains that the bindings of a body need, the last ones first."""
    if not isinstance(body, rx.SeqExpr):
        return
    _require(body.body, result, found)
    for block in reversed(body.blocks):
        for binding in reversed(block.bindings):
            needed = None if binding.var is None else found.get(binding.var)
            value = binding.value
            if isinstance(value, rx.If):
                _sequence(value.false_branch, needed, found)
                _sequence(value.true_branch, needed, found)
            elif isinstance(value, rx.Call) and isinstance(value.op, Op):
                _call(value, value.op.name.removeprefix("relax."), needed, found)
            else:
                _require(value, needed, found)


def _require(value: rx.Expr, domain: Domain | None, found: dict[rx.Var, Domain]) -> None:
    if domain is None:
        return
    if isinstance(value, rx.Var):
        found[value] = found.get(value, Domain()) & domain
    elif isinstance(value, rx.Tuple):
        for each in value.fields:
            _require(each, domain, found)
    elif isinstance(value, rx.TupleGetItem):
        _require(value.tuple_value, domain, found)


def _call(call: rx.Call, op: str, needed: Domain | None, found: dict[rx.Var, Domain]) -> None:
    if _has_same_values(call, op):
        _require(call.args[0], needed, found)
    if op in _OPERANDS:
        index, domain = _OPERANDS[op]
        _require(call.args[index], domain, found)
    for operand, dims in _indices(call, op):
        _require(operand, Domain(below=tuple(dims)), found)


def _indices(call: rx.Call, op: str) -> list[tuple[rx.Expr, Sequence[tir.PrimExpr]]]:
    """The operands that are indices, each with the dimensions that bound it."""
    attrs: Mapping[str, Any] = call.attrs or {}
    if op == "one_hot":
        return [(call.args[0], [tir.IntImm("int64", int(attrs["depth"]))])]
    dims = _dims(call.args[0]) if call.args else []
    if not dims:
        return []
    match op:
        case "take" if attrs.get("axis") is None:
            return [(call.args[1], dims[:1] if len(dims) == 1 else [])]
        case "take" | "gather_elements" | "scatter_elements":
            axis = int(attrs["axis"])
            return [(call.args[1], dims[axis : axis + 1 or None])]
        case "gather_nd":
            return [(call.args[1], dims[int(attrs.get("batch_dims", 0)) :])]
        case "scatter_nd":
            return [(call.args[1], dims)]
        case "index_tensor" | "index_put" if isinstance(call.args[1], rx.Tuple):
            return [(i, [dim]) for i, dim in zip(call.args[1].fields, dims, strict=False)]
        case "nn.nll_loss":
            return [(call.args[1], dims[1:2] or dims[:1])]
        case _:
            return []


def _dims(value: rx.Expr) -> list[tir.PrimExpr]:
    match value.struct_info:
        case rx.TensorStructInfo(shape=rx.ShapeExpr(values=dims)):
            return list(dims)
        case _:
            return []
