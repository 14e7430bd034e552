"""Numbers and sizes for functions that build tensor expressions, and tensors of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.arith import prove
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.te.tensor import Tensor, extern
from relaxpy.ir.te.topi import shapes
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore
from relaxpy.support.entry import user_facing

__all__ = [
    "ceil_div",
    "const_matrix",
    "const_vector",
    "equal_const_int",
    "get_const_float",
    "get_const_int",
    "get_const_tuple",
    "get_shape",
    "prod",
    "ravel_index",
    "simplify",
    "unravel_index",
]

#: A number of Python or an expression.
Size: TypeAlias = Any


@user_facing
def get_const_int(expr: ExprLike) -> int:
    """The integer that an expression is.

    Errors:
        MisuseError (also ValueError): it is not constant.
    """
    value = simplify(expr)
    if isinstance(value, tir.IntImm):
        return value.value
    if isinstance(value, int):
        return value
    raise MisuseError(f"expected a constant integer, found {expr}", about=expr)


@user_facing
def get_const_float(expr: ExprLike) -> float:
    """The float that an expression is.

    Errors:
        MisuseError (also ValueError): it is not constant.
    """
    value = simplify(expr)
    if isinstance(value, tir.FloatImm):
        return float(value.value)
    if isinstance(value, float):
        return value
    raise MisuseError(f"expected a constant float, found {expr}", about=expr)


@user_facing
def get_const_tuple(in_tuple: Sequence[ExprLike]) -> tuple[int | PrimExpr, ...]:
    """The members as integers, where they are constant.

    Errors:
        MisuseError (also ValueError): a member is not an integer.
    """
    members: list[int | PrimExpr] = []
    for member in in_tuple:
        value = simplify(member)
        is_open = isinstance(value, PrimExpr) and not isinstance(value, (tir.IntImm, tir.FloatImm))
        members.append(value if is_open else get_const_int(member))  # type: ignore[arg-type]
    return tuple(members)


def equal_const_int(expr: ExprLike, value: int) -> bool:
    """True if an expression is this integer."""
    simplified = simplify(expr)
    if isinstance(simplified, tir.IntImm):
        return simplified.value == value
    return isinstance(simplified, int) and simplified == value


@user_facing
def simplify(expr: ExprLike) -> ExprLike:
    """The simplified expression; Python's numbers stay unchanged."""
    return prove.simplify(expr) if isinstance(expr, PrimExpr) else expr


@user_facing
def prod(x: Sequence[Size]) -> Size:
    """The product of sizes; 1 of none."""
    if not x:
        return ops.const(1, "int32")
    total = x[0]
    for size in x[1:]:
        total = total * size
    return total


@user_facing
def ceil_div(a: ExprLike, b: ExprLike) -> PrimExpr:
    """a / b rounded up."""
    return ops.ceildiv(a, b)


@user_facing
def ravel_index(indices: Sequence[Size], shape: Sequence[Size]) -> Size:
    """The row-major position of an index in a shape."""
    position: Size = 0
    for k, (index, size) in enumerate(zip(indices, shape, strict=True)):
        position = index if k == 0 else position * size + index
    return position


@user_facing
def unravel_index(idx: Size, shape: Sequence[Size]) -> list[Size]:
    """The index at a row-major position in a shape."""
    index: list[Size] = []
    for size in reversed(shape):
        index.append(idx % size)
        idx = idx // size
    return index[::-1]


@user_facing
def get_shape(
    src_shape: Sequence[ExprLike], src_layout: str, dst_layout: str
) -> tuple[ExprLike, ...]:
    """The sizes of the same axes in the order of another layout.

    Errors:
        MisuseError: the layouts have other axes.
    """
    if sorted(src_layout) != sorted(dst_layout) or len(src_layout) != len(src_shape):
        raise MisuseError(
            f"layouts order the axes of one shape, found {src_layout!r}, {dst_layout!r} for "
            f"{shapes.shape_text(shapes.as_sizes(src_shape))}"
        )
    return tuple(src_shape[src_layout.index(axis)] for axis in dst_layout)


@user_facing
def const_vector(vector: npt.ArrayLike, name: str = "const_vector") -> Tensor:
    """A vector of numbers as a tensor.

    Errors:
        MisuseError: it has another rank.
    """
    return _constant(vector, 1, name)


@user_facing
def const_matrix(matrix: npt.ArrayLike, name: str = "const_matrix") -> Tensor:
    """A matrix of numbers as a tensor.

    Errors:
        MisuseError: it has another rank.
    """
    return _constant(matrix, 2, name)


def _constant(numbers: npt.ArrayLike, ndim: int, name: str) -> Tensor:
    array = np.asarray(numbers)
    if array.ndim != ndim:
        raise MisuseError(f"{name} takes an array of rank {ndim}, found rank {array.ndim}")
    dtype = str(array.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        value: PrimExpr = ops.const(0, dtype)
        for position in np.ndindex(*array.shape):
            equalities = [
                ops.compare(tir.EQ, i, ops.const(k, i.dtype))
                for i, k in zip(index, position, strict=True)
            ]
            value = intrin.if_then_else(
                ops.all_of(*equalities), ops.const(array[position].item(), dtype), value
            )
        return value

    return computed(shapes.as_sizes(array.shape), element, name)


@user_facing
def extern_primfunc(input_tensors: Sequence[Tensor], primfunc: PrimFunc, **kwargs: Any) -> Any:
    """The tensors that `primfunc` writes, where it reads `input_tensors`.

    These are the values of the buffers that it reads, in the order of its parameters. A result is
    a buffer that it only writes, or, if it reads all that it writes, the last of these, which is
    then not among the inputs. `kwargs` are options of `extern`.

    Errors:
        MisuseError (also TypeError): a parameter is not a buffer, nothing is read or written, or
            the tensors are not as many as the inputs, or have other shapes.
    """
    check_type(primfunc, PrimFunc, "expected a PrimFunc")
    buffers = [primfunc.buffer_of(param) for param in primfunc.params]
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    for node in walk(primfunc.body):
        if isinstance(node, (BufferLoad, BufferStore)):
            (reads if isinstance(node, BufferLoad) else writes).add(node.buffer)
    ins = [buffer for buffer in buffers if buffer is not None and buffer in reads]
    outs = [buffer for buffer in buffers if buffer is not None and buffer in writes - reads]
    changed = [buffer for buffer in ins if buffer in writes]
    if not outs and changed:
        outs = [changed[-1]]
        ins.remove(changed[-1])
    if None in buffers or not outs or not ins:
        raise MisuseError("the kernel of an extern reads and writes buffers, which it takes")
    if [len(t.shape) for t in input_tensors] != [b.ndim for b in ins] or any(
        not bool(a == b)
        for tensor, buffer in zip(input_tensors, ins, strict=True)
        for a, b in zip(tensor.shape, buffer.shape, strict=True)
    ):
        expected = ", ".join(f"{b.name} {b.shape}" for b in ins)
        raise MisuseError(f"the inputs are the tensors for {expected}", about=input_tensors)
    return extern(
        [buffer.shape for buffer in outs],
        input_tensors,
        lambda ins, outs: primfunc.body,
        in_buffers=ins,
        out_buffers=outs,
        dtype=[str(buffer.dtype) for buffer in outs],
        **kwargs,
    )
