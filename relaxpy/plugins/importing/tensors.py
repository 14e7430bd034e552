"""Tensors as converters see them: datatypes, ranks and sizes that are numbers or expressions.

Kernels as loops over buffers, and calls of the packed functions of matrices, are at the end.

Dynamic models compute shapes by operators on small tensors (`Shape`, `Gather`, `Concat`, …).
`Contents` carries such a tensor element by element, so that what it ends in, a `Reshape` for
example, has a shape of symbolic sizes. A tensor that a program needs is made of it on demand.
"""

from __future__ import annotations

import json
import keyword
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import expect
from relaxpy.ir.te.tensor import Number as Number, Tensor, whole as whole
from relaxpy.ir.te.text import written
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import const as number_literal
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing import MATRICES
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.ir.arith.tvm.analyzer import Analyzer

Element: TypeAlias = PrimExpr | int | float | bool
#: The number of elements up to which a tensor is carried element by element.
LIMIT = 1024


@dataclass(frozen=True, eq=False)
class Contents:
    """A tensor whose elements are numbers or expressions, in an array of objects."""

    array: Array
    dtype: str

    @property
    def elements(self) -> list[Element]:
        """The elements in row-major order."""
        return list(self.array.reshape(-1))

    @property
    def is_constant(self) -> bool:
        """True if every element is a number."""
        return not any(isinstance(element, PrimExpr) for element in self.elements)


def objects(elements: Iterable[Element], shape: Sequence[int]) -> Array:
    """An array of objects of this shape."""
    items = list(elements)
    result = np.empty(len(items), object)
    for k, item in enumerate(items):
        result[k] = item
    return result.reshape(tuple(shape))


def new_analyzer() -> Analyzer:
    """An analyzer, for expressions that few models have."""
    from relaxpy.ir.arith.tvm.analyzer import Analyzer

    return Analyzer()


def number(element: Element, analyzer: Analyzer | None = None) -> Element:
    """The element simplified: an int, float or bool where it is known."""
    if not isinstance(element, PrimExpr):
        return element
    simple = (analyzer or new_analyzer()).simplify(element)
    if isinstance(simple, tir.IntImm):
        return bool(simple.value) if str(simple.dtype) == "bool" else int(simple.value)
    if isinstance(simple, tir.FloatImm):
        return float(simple.value)
    return simple


def to_integer(element: Element) -> Element | None:
    """The element as an int64, rounded towards zero; None unless it is a ratio of known integers.

    A float that stands for a size times a ratio (`Cast`, `Mul`, `Floor`, as models that resize by a
    scale compute it) is the integer expression `size * p // q`.
    """
    if isinstance(element, (bool, np.bool_)):
        return int(element)
    if not isinstance(element, PrimExpr):
        value = float(element)
        return int(value) if np.isfinite(value) else None
    ratio = ratio_of(element)
    if ratio is None:
        return None
    above, below = ratio
    return number(above if below == 1 else above // below)


def ratio_of(element: Element) -> tuple[Any, int] | None:
    """The numerator and the denominator of an expression; None unless it is a ratio of integers."""
    if not isinstance(element, PrimExpr):
        exact = Fraction(float(element)).limit_denominator(1 << 16)
        return exact.numerator, exact.denominator
    if "int" in str(element.dtype):
        return element if str(element.dtype) == "int64" else tir.Cast("int64", element), 1
    match element:
        case tir.FloatImm(value=value):
            return ratio_of(value)
        case tir.Cast(value=value):
            return ratio_of(value)
        case tir.Add(a=a, b=b) | tir.Sub(a=a, b=b):
            left, right = ratio_of(a), ratio_of(b)
            if left is None or right is None:
                return None
            sign = 1 if isinstance(element, tir.Add) else -1
            return left[0] * right[1] + sign * right[0] * left[1], left[1] * right[1]
        case tir.Mul(a=a, b=b):
            left, right = ratio_of(a), ratio_of(b)
            if left is None or right is None:
                return None
            return left[0] * right[0], left[1] * right[1]
        case tir.Div(a=a, b=b):
            left, right = ratio_of(a), ratio_of(b)
            if left is None or right is None or not isinstance(right[0], int) or right[0] <= 0:
                return None
            return left[0] * right[1], left[1] * right[0]
        case tir.Call(op=Op(name="tir.floor" | "tir.ceil" as op), args=args):
            inner = ratio_of(args[0])
            if inner is None:
                return None
            above, below = inner
            up = below - 1 if op == "tir.ceil" else 0
            return (above + up) // below if below != 1 else above, 1
        case _:
            return None


Size: TypeAlias = PrimExpr | int


def tensor_info(x: rx.Expr) -> rx.TensorStructInfo:
    """The struct info of a tensor.

    Errors:
        UnsupportedError: the value is something else.
    """
    info = x.struct_info
    if not isinstance(info, rx.TensorStructInfo):
        raise UnsupportedError(f"expected a tensor, found {info}")
    return info


def as_size(size: Element) -> PrimExpr:
    """The size as an expression of int64."""
    return size if isinstance(size, PrimExpr) else number_literal(int(size), "int64")


def tensor_of(sizes: Sequence[Size] | None, dtype: str) -> rx.TensorStructInfo:
    """The struct info of a tensor with these sizes; None: nothing is known of its shape."""
    shape = None if sizes is None else rx.ShapeExpr(tuple(map(as_size, sizes)))
    return rx.TensorStructInfo(shape, DataType(dtype))


def dtype_of(x: rx.Expr) -> str:
    """The datatype of a tensor."""
    return str(tensor_info(x).dtype)


def is_float(x: rx.Expr) -> bool:
    """True if the elements of a tensor are floats."""
    return "float" in dtype_of(x)


def as_dtype(x: rx.Expr, dtype: str) -> rx.Expr:
    """The tensor in a datatype."""
    return x if dtype_of(x) == dtype else R.astype(x, dtype)


def wide_dtype(x: rx.Expr | str) -> str:
    """The datatype in which a tensor of floats, or floats of a datatype, are computed."""
    return "float64" if (x if isinstance(x, str) else dtype_of(x)) == "float64" else "float32"


def rank_of(x: rx.Expr) -> int:
    """The rank of a tensor.

    Errors:
        UnsupportedError: it is not known.
    """
    ndim = tensor_info(x).ndim
    if ndim < 0:
        raise UnsupportedError("the rank of an operand is not known")
    return ndim


def shape_of(x: rx.Expr, rank: int | None = None) -> list[Size]:
    """The sizes of a tensor of this rank, or of any: ints where they are numbers.

    Errors:
        UnsupportedError: its rank is not known, or is another.
    """
    info = tensor_info(x)
    if rank is not None and rank_of(x) != rank:
        raise UnsupportedError(f"expected a tensor of rank {rank}, found rank {rank_of(x)}")
    match info.shape:
        case rx.ShapeExpr(values=values):
            return [int(v.value) if isinstance(v, tir.IntImm) else v for v in values]
        case rx.Expr() as shape if isinstance(shape.struct_info, rx.ShapeStructInfo):
            values_known = shape.struct_info.values
            if values_known is not None:
                return [int(v.value) if isinstance(v, tir.IntImm) else v for v in values_known]
    rank_of(x)
    raise UnsupportedError("the shape of an operand is not known")


def sizes_known(x: rx.Expr) -> list[int]:
    """The sizes of a tensor, which have to be numbers.

    Errors:
        UnsupportedError: one is symbolic.
    """
    sizes = shape_of(x)
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes):
        raise UnsupportedError(f"expected a shape of numbers, found ({', '.join(map(str, sizes))})")
    return known


def length_known(vector: rx.Expr) -> int:
    """The number of elements of a vector of sizes or axes, which has to be known.

    Errors:
        UnsupportedError: it is symbolic, no tensor has this rank, or this is not a vector.
    """
    sizes = shape_of(vector)
    if len(sizes) != 1:
        raise UnsupportedError(f"expected a vector, found a tensor of rank {len(sizes)}")
    [count] = sizes
    if not isinstance(count, int):
        raise UnsupportedError(
            f"the length of a vector of sizes or axes is not known, found {count}: "
            "a shape of the input that it depends on says how many there are"
        )
    if count > LIMIT:
        raise UnsupportedError(f"a vector of {count} sizes or axes, expected at most {LIMIT}")
    return count


def require_count(name: str, values: Sequence[Any], count: int) -> None:
    """Check how many numbers there are.

    Errors:
        UnsupportedError: it is another number.
    """
    if len(values) != count:
        raise UnsupportedError(f"{name} has {len(values)} numbers, expected {count}")


def are_equal(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """True if two shapes are known to be equal."""
    return len(a) == len(b) and all(map(prove_equal, map(as_size, a), map(as_size, b)))


def is_size(size: Size, value: int) -> bool:
    """True if a size is known to be a number."""
    return isinstance(size, int) and size == value


def product(sizes: Sequence[Size]) -> Size:
    """The product of sizes, simplified."""
    total: Any = math.prod(size for size in sizes if isinstance(size, int))
    for size in sizes:
        if not isinstance(size, int):
            total = size * total
    result = number(total)
    return result if isinstance(result, PrimExpr) else int(result)


def reshaped(x: rx.Expr, sizes: Sequence[Element]) -> rx.Expr:
    """`x` in another shape, in which a size of 0 is a size of 0."""
    result: rx.Expr = R.reshape(x, rx.ShapeExpr(tuple(map(as_size, sizes))))
    return result


def normal_axis(axis: int, rank: int) -> int:
    """The axis counted from the front.

    Errors:
        UnsupportedError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise UnsupportedError(f"axis {axis} is not one of a tensor of rank {rank}")
    return axis % rank


def normal_axes(axes: Sequence[int] | None, rank: int) -> list[int]:
    """The axes counted from the front; None: all.

    Errors:
        UnsupportedError: there is no such axis, or it occurs twice.
    """
    normal = list(range(rank)) if axes is None else [normal_axis(axis, rank) for axis in axes]
    if len(set(normal)) < len(normal):
        raise UnsupportedError(f"an axis occurs twice in {list(axes or ())}")
    return normal


def scalar(value: float, x: rx.Expr) -> rx.Constant:
    """A constant of rank 0 in the datatype of `x`."""
    return rx.const(value, dtype_of(x))


def literal(array: Array) -> rx.Constant:
    """A constant of the array's own datatype."""
    data = np.asarray(array)
    return rx.const(data, data.dtype.name)


def truncated(a: rx.Expr, b: rx.Expr) -> rx.Expr:
    """The quotient of tensors of integers, rounded towards zero."""
    below: rx.Expr = a // b
    if dtype_of(a).startswith("uint"):
        return below
    inexact = R.not_equal(below * b, a)
    negative = R.logical_xor(a < 0, b < 0)
    quotient: rx.Expr = below + R.astype(R.logical_and(inexact, negative), dtype_of(a))
    return quotient


class Place(Protocol):
    """The interface that shared conversions need from an importer's context."""

    def emit(self, expr: rx.Expr, name: str = "") -> rx.Var:
        """Bind an expression."""

    def te(self, function: Callable[..., Any], *args: Any, name: str = "") -> rx.Expr:
        """A call of the kernel that `function` makes of tensor expressions."""


_NOT_IN_NAMES = re.compile(r"\W+", re.ASCII)


def identifier(name: str, prefix: str = "v") -> str:
    """`name` as an identifier of Python: other characters become underscores."""
    text = _NOT_IN_NAMES.sub("_", name).strip("_") or prefix
    if text[0].isdigit() or keyword.iskeyword(text):
        text = f"{prefix}_{text}"
    return text


class Names:
    """Distinct names: each name that is requested again has a number."""

    def __init__(self, make: Callable[[str], str]) -> None:
        self._make = make
        self._taken: set[str] = set()

    def new(self, name: str) -> str:
        """A name that was not given out before, made of `name`."""
        base = made = self._make(name)
        count = 0
        while made in self._taken:
            count += 1
            made = f"{base}_{count}"
        self._taken.add(made)
        return made


_MOST_AXES = 64
_MOST_BYTES = (1 << 63) - 1


def has_arrays(shape: Sequence[object], dtype: np.dtype[Any]) -> bool:
    """True if NumPy can represent an array of a shape, even an empty one, given the memory."""
    if len(shape) > _MOST_AXES:
        return False
    sizes = [size for size in shape if type(size) is int and size >= 0]
    whole = math.prod(max(size, 1) for size in sizes) * max(dtype.itemsize, 1)
    return len(sizes) == len(shape) and whole <= _MOST_BYTES


@user_facing
def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[Any]]]:
    """The module without the attribute `params` of functions, and the arrays in it by function.

    Errors:
        MisuseError (also ValueError): an attribute `params` is not a list of arrays.
    """
    expect(mod, IRModule)
    result, params = mod.clone(), {}
    for name, func in mod.functions_by_name.items():
        if "params" not in func.attrs:
            continue
        values: Any = func.attrs["params"]
        arrays = list(values) if isinstance(values, (list, tuple)) else [None]
        if not all(isinstance(array, np.ndarray) for array in arrays):
            raise MisuseError(
                f"the attribute params of {name} is a list of arrays, found {values!r:.60}",
                about=mod,
            )
        params[name] = arrays
        result[name] = func.without_attr("params")
    return result, params


def kernel(
    cx: Place,
    name: str,
    outputs: Mapping[str, tuple[Sequence[Size], str]],
    inputs: Mapping[str, rx.Expr | None],
    text: Callable[..., None],
    **options: object,
) -> list[rx.Expr]:
    """The results of a text of statements, of these shapes and datatypes.

    The parameters of `text` are its buffers, and the options. An input that is None has no buffer.
    """
    sized = {name: (tuple(map(as_size, shape)), dtype) for name, (shape, dtype) in outputs.items()}
    operands = {name: operand for name, operand in inputs.items() if operand is not None}

    def compute(*tensors: Tensor) -> Any:
        results = written(name, sized, dict(zip(operands, tensors, strict=True)), text, **options)
        return results[0] if len(results) == 1 else results

    result = cx.te(compute, *operands.values(), name=name)
    if len(outputs) == 1:
        return [result]
    return [cx.emit(rx.TupleGetItem(result, k)) for k in range(len(outputs))]


#: The number of a result, its shape, its datatype (that of its parts), and whether it is complex.
Result = tuple[int, Sequence[Size], str, bool]


def call(
    name: str,
    tensors: Sequence[rx.Expr],
    results: Sequence[Result],
    *,
    pairs: Sequence[int] = (),
    names: Sequence[str] = (),
    **options: Any,
) -> rx.Expr:
    """The results that are used, or the only one.

    `pairs` are the operands that are complex, `names` the names of the last operands.
    """
    kinds = [(k, dtype, is_complex) for k, _, dtype, is_complex in results]
    text = json.dumps({**options, "complex": pairs, "names": names, "results": kinds})
    infos = [
        tensor_of([*sizes, *([2] if is_complex else [])], dtype)
        for _, sizes, dtype, is_complex in results
    ]
    info = infos[0] if len(infos) == 1 else rx.TupleStructInfo(tuple(infos))
    found: rx.Expr = R.call_pure_packed(
        MATRICES + name, rx.StringImm(text), *tensors, sinfo_args=[info]
    )
    return found
