"""The parameters of a kernel as its entry checks them."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from relaxpy.exec.native.calls.entry import Array, Integer, Number, Param
from relaxpy.exec.native.calls.interpreter import DTYPES
from relaxpy.exec.native.trees.program import KernelProgram
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import FloatImm, IntImm, PrimExpr, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True, slots=True, eq=False)
class EntrySignature:
    """The parameters of an entry, and the meaning of its names.

    The kernel takes the addresses of the `buffers` and the scalars, in the order of `params`, then
    `constants`: the values that one kernel of a class has for the sizes of the class, and the bits
    of its numbers. Last are the values of `sizes` as i64: each is a variable, or an expression that
    it has to be equal to. The `offsets` are those that buffers declare; arguments have none.
    """

    params: tuple[Param, ...]
    buffers: tuple[Buffer, ...]
    sizes: Mapping[str, PrimExpr]
    offsets: tuple[PrimExpr, ...]
    constants: tuple[int, ...] = ()

    def of_member(self, func: PrimFunc, values: Mapping[Var, PrimExpr]) -> EntrySignature:
        """The signature of `func`, which has these values for the last parameters of a class."""
        params, sizes = list[Param](), dict(self.sizes)
        for param, buffer in zip(self.params, func.buffer_map_items, strict=False):
            if isinstance(param, Array) and buffer is not None:
                named = [*zip(param.shape, buffer.shape, strict=True)]
                sizes |= {name: size for name, size in named if isinstance(name, str)}
                shape = (size.value if isinstance(size, IntImm) else n for n, size in named)
                param = replace(param, shape=tuple(shape))
            params.append(param)
        constants = [
            struct.unpack("<q", struct.pack("<d", value.value))[0]
            if isinstance(value, FloatImm)
            else value.value
            for value in values.values()
            if isinstance(value, FloatImm | IntImm)
        ]
        return replace(self, params=tuple(params), sizes=sizes, constants=tuple(constants))


def signature_of(program: KernelProgram) -> EntrySignature:
    """The signature of a kernel.

    Errors:
        RefusedError: a parameter is of a type that entries do not check.
    """
    func = program.plan.func
    names: dict[PrimExpr, str] = {}
    params: list[Param] = []
    buffers: list[Buffer] = []
    offsets: list[PrimExpr] = []
    for param in func.params:
        buffer = func.buffer_of(param)
        if buffer is None:
            params.append(_scalar(param, names))
            continue
        if str(buffer.dtype) not in DTYPES:
            raise RefusedError(f"the datatype {buffer.dtype}")
        shape, strides = (
            tuple(size_of(size, names) for size in sizes)
            for sizes in (buffer.shape, buffer.strides)
        )
        params.append(Array(str(buffer.dtype), shape, buffer in program.written, strides or None))
        buffers.append(buffer)
        if not isinstance(buffer.elem_offset, IntImm) or buffer.elem_offset.value:
            offsets.append(buffer.elem_offset)
    sizes = {name: size for size, name in names.items()}
    return EntrySignature(tuple(params), tuple(buffers), sizes, tuple(offsets))


def name_of(size: PrimExpr, names: dict[PrimExpr, str]) -> str:
    """The name of a size among those of parameters, to which it is added if it is new."""
    return names.setdefault(size, f"size{len(names)}")


def size_of(size: PrimExpr, names: dict[PrimExpr, str]) -> int | str:
    """The value of a literal, or the name of another size."""
    return size.value if isinstance(size, IntImm) else name_of(size, names)


def _scalar(param: Var, names: dict[PrimExpr, str]) -> Param:
    dtype = param.dtype
    if str(dtype) not in DTYPES:
        raise RefusedError(f"the datatype {dtype}")
    if dtype.is_bool or dtype.is_float:
        return Number(str(dtype))
    return Integer(name_of(param, names), str(dtype))
