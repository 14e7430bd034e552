"""Complex numbers, which Relax does not have: their real and imaginary parts as two tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from typing_extensions import override

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr
from relaxpy.plugins.importing.tensors import dtype_of, rank_of, shape_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.registry import COMPLEX, CONVERTERS, Value, converter, found
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Complex:
    """A tensor of complex numbers: two tensors of floats, of one shape and one datatype.

    `pair` has them along its last axis, if they were taken from there.
    """

    re: Expr
    im: Expr
    pair: Expr | None = None

    @override
    def __str__(self) -> str:
        return f"the real and imaginary parts {self.re.struct_info}"


_NAMESPACES = ("aten", "prims")
#: Linear operators: which arguments have complex values. Their converter makes each part.
_BY_PARTS: dict[str, frozenset[int]] = {}
#: Products: which arguments are factors, and which argument is added, if any.
_PRODUCTS: dict[str, tuple[tuple[int, ...], int | None]] = {}


def complex_converter(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the converter of operators for complex numbers, as `converter` does for others."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for namespace in _NAMESPACES:
            converter(*names, namespace=namespace, table=COMPLEX)(function)
        return function

    return register


def is_complex(value: Any) -> bool:
    """True if an argument is a complex tensor or number, or contains one."""
    if isinstance(value, (tuple, list)):
        return any(map(is_complex, value))
    return isinstance(value, (Complex, complex))


def has_complex_result(meta: Any) -> bool:
    """True if PyTorch says that a result, or one of several, is complex."""
    if isinstance(meta, (tuple, list)):
        return any(map(has_complex_result, meta))
    return isinstance(meta, torch.Tensor) and meta.dtype.is_complex


def convert(cx: Context, target: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Any:
    """The result of an operator that has complex operands or results.

    Errors:
        UnsupportedError: there is no converter for complex numbers.
    """
    entry = found(target, COMPLEX)
    is_real = not has_complex_result(cx.node.meta.get("val"))
    if entry is not None:
        pairs = zip(target._schema.arguments, args, strict=False)
        operands: list[Any] = [
            as_complex(cx, x) if _is_number(a, x) and not is_real else x for a, x in pairs
        ]
        return cx.converted(entry, target, operands, kwargs)
    entry, places = found(target, CONVERTERS), found(target, _BY_PARTS)
    factors = found(target, _PRODUCTS)

    def result(values: Sequence[Value]) -> Any:
        assert entry is not None
        return cx.converted(entry, target, values, kwargs)

    if entry is None or (places is None and factors is None):
        raise UnsupportedError("there is no converter for complex numbers")
    if factors is not None:
        return _product(cx, result, args, *factors)
    assert places is not None

    def of_part(k: int) -> Any:
        return result([part(arg, k) if n in places else arg for n, arg in enumerate(args)])

    return of_part(0) if is_real else joined(of_part(0), of_part(1))


def _is_number(argument: Any, value: Any) -> bool:
    """True if a complex number stands for a tensor, as in gradients of multiplications."""
    return isinstance(value, complex) and str(argument.type) == "Tensor"


def joined(re: Any, im: Any) -> Any:
    """Complex results of their parts."""
    if isinstance(re, (tuple, list)):
        return [joined(*pair) for pair in zip(re, im, strict=True)]
    return Complex(re, im)


def as_tensor(cx: Context, value: Any) -> Expr:
    """A value as one tensor; of complex numbers, the one of their pairs."""
    return to_pair(value) if isinstance(value, Complex) else cx.tensor(value)


def part(value: Any, k: int) -> Any:
    """The real part of a value, or, for k = 1, the imaginary one."""
    match value:
        case tuple() | list():
            return [part(item, k) for item in value]
        case Complex(re=re, im=im):
            return im if k else re
        case complex():
            return value.imag if k else value.real
        case None | str():
            return value
        case Expr():
            return R.zeros(tuple(shape_of(value)), dtype_of(value)) if k else value
        case _:
            return 0 if k else value


def _product(
    cx: Context,
    result: Callable[[Sequence[Value]], Any],
    args: Sequence[Any],
    factors: tuple[int, ...],
    added: int | None,
) -> Complex:
    """Expand a multilinear operator: the sum over the parts of its factors, times i if imaginary.

    The operand `added` (a bias) is passed to the first term of each sum.
    """
    values = list(args)
    places: list[tuple[list[Any], int]] = []
    for k in factors:
        if isinstance(values[k], (tuple, list)):
            values[k] = list(values[k])
            places += [(values[k], n) for n in range(len(values[k]))]
        else:
            places.append((values, k))
    whole = [holder[k] for holder, k in places]
    summand = args[added] if added is not None and len(args) > added else None
    sums: list[Expr | None] = [None, None]
    for chosen in itertools.product(*((0, 1) if is_complex(value) else (0,) for value in whole)):
        power = sum(chosen)
        old = sums[power % 2]
        for (holder, k), value, which in zip(places, whole, chosen, strict=True):
            holder[k] = part(value, which)
        if added is not None and summand is not None:
            is_first = old is None and (power == 0 or is_complex(summand))
            values[added] = part(summand, power) if is_first else None
        term = result(values)
        if old is not None:
            term = (R.add if power % 4 < 2 else R.subtract)(old, term)
        sums[power % 2] = cx.emit(term)
    re, im = sums
    assert re is not None
    assert im is not None
    return Complex(re, im)


def from_pair(cx: Context, pair: Expr) -> Complex:
    """The complex numbers of a tensor whose last axis has their two parts."""
    last = rank_of(pair) - 1
    parts = (R.strided_slice(pair, [last], [k], [k + 1]) for k in (0, 1))
    re, im = (cx.emit(R.squeeze(item, [last])) for item in parts)
    return Complex(re, im, pair)


def to_pair(z: Complex) -> Expr:
    """The tensor whose last axis has the two parts of complex numbers."""
    if z.pair is not None:
        return z.pair
    stacked: Expr = R.stack([z.re, z.im], rank_of(z.re))
    return stacked


def as_complex(cx: Context, value: Value | Complex) -> Complex:
    """A tensor or a number as complex numbers of the datatype of the node's result."""
    return Complex(*(cx.tensor(part(value, k), cx.result_dtype()) for k in (0, 1)))


def _register() -> None:
    for space in _NAMESPACES:
        for names, places in _LINEAR.items():
            keys = (f"{space}.{name}" for name in names.split())
            _BY_PARTS.update(dict.fromkeys(keys, frozenset(places)))
        _PRODUCTS.update({f"{space}.{name}": factors for name, factors in _FACTORS.items()})


_LINEAR: Mapping[str, Sequence[int]] = {
    # movement
    "view reshape _unsafe_view flatten.using_ints unflatten.int view_copy _reshape_alias": [0],
    "_reshape_copy view_as reshape_as ravel permute permute_copy transpose.int": [0],
    "transpose_copy.int swapaxes swapdims t t_copy numpy_T mT unsqueeze unsqueeze_copy": [0],
    "squeeze squeeze.dim squeeze.dims squeeze_copy expand expand_copy expand_as": [0],
    "broadcast_to repeat flip fliplr flipud roll slice.Tensor": [0],
    "slice_copy.Tensor narrow narrow_copy select.int select_copy.int cat concat": [0],
    "concatenate stack split.Tensor split.sizes split_with_sizes chunk": [0],
    "tensor_split.sections split_copy.Tensor split_with_sizes_copy unsafe_chunk": [0],
    "unsafe_split.Tensor unbind.int unbind_copy.int diagonal diagonal_copy as_strided": [0],
    "as_strided_copy unfold unfold_copy reflection_pad1d reflection_pad2d reflection_pad3d": [0],
    "replication_pad1d replication_pad2d replication_pad3d tril triu pixel_shuffle": [0],
    "meshgrid meshgrid.indexing constant_pad_nd": [0, 2],
    "pad": [0, 3],
    "tensor_split.indices resize": [0],
    # by indices
    "embedding gather index.Tensor _unsafe_index.Tensor index_select index_select_copy take": [0],
    "index_put _unsafe_index_put put": [0, 2],
    "index_add index_copy scatter.src scatter.value scatter_add": [0, 3],
    "slice_scatter select_scatter diagonal_scatter as_strided_scatter": [0, 1],
    "masked_fill masked_scatter pad_sequence": [0, 2],
    "where": [1, 2],
    # sums, copies and constants
    "add sub rsub copy fill": [0, 1],
    "sum sum.dim_IntList mean mean.dim cumsum neg positive clone alias detach": [0],
    "lift_fresh lift_fresh_copy contiguous resolve_conj resolve_neg detach_": [0],
    "copy_strided": [0],
    "full full_like": [1],
    "new_full": [2],
    "scalar_tensor": [0],
    "linspace": [0, 1],
    "zeros zeros_like new_zeros empty empty_like new_empty empty_strided empty_permuted": [],
    "new_empty_strided _efficientzerotensor": [],
}
_FACTORS: Mapping[str, tuple[tuple[int, ...], int | None]] = {
    **dict.fromkeys(("mul", "multiply", "mm", "bmm", "mv", "dot", "matmul"), ((0, 1), None)),
    **dict.fromkeys(("linalg_matmul", "outer", "ger"), ((0, 1), None)),
    "einsum": ((1,), None),
    **dict.fromkeys(("linear", "convolution", "conv1d", "conv2d", "conv3d"), ((0, 1), 2)),
    **{f"conv{n}d.padding": ((0, 1), 2) for n in (1, 2, 3)},
}
_register()
