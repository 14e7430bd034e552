"""The parameters of a kernel as its entry checks them."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from relaxpy.exec.native.calls.entry import Array, Integer, Number, Param
from relaxpy.exec.native.calls.interpreter import DTYPES
from relaxpy.exec.native.llvm.narrow_floats import FLOATS_OF_8_BITS
from relaxpy.exec.native.trees.program import KernelProgram
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import FloatImm, IntImm, PrimExpr, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True, slots=True, eq=False)
class EntrySignature:
    """The parameters of an entry.

    The kernel takes the addresses of the `buffers` and the scalars, in the order of `params`, then
    `constants`: the values that one kernel of a class has for the sizes of the class, and the bits
    of its numbers. Last are the values of the other sizes as i64: each is a variable, or an
    expression that it has to be equal to. The `offsets` are those that buffers declare; arguments
    have none.
    """

    params: tuple[Param, ...]
    buffers: tuple[Buffer, ...]
    offsets: tuple[PrimExpr, ...]
    constants: tuple[int, ...] = ()

    def of_member(self, func: PrimFunc, values: Mapping[Var, PrimExpr]) -> EntrySignature:
        """The signature of `func`, which has these values for the last parameters of a class."""
        params = [
            replace(param, shape=buffer.shape)
            if isinstance(param, Array) and buffer is not None
            else param
            for param, buffer in zip(self.params, func.buffer_map_items, strict=False)
        ]
        constants = [
            struct.unpack("<q", struct.pack("<d", value.value))[0]
            if isinstance(value, FloatImm)
            else value.value
            for value in values.values()
            if isinstance(value, FloatImm | IntImm)
        ]
        return replace(self, params=tuple(params), constants=tuple(constants))


def signature_of(program: KernelProgram) -> EntrySignature:
    """The signature of a kernel.

    Errors:
        RefusedError: a parameter is of a type that entries do not check.
    """
    func = program.plan.func
    params: list[Param] = []
    buffers: list[Buffer] = []
    offsets: list[PrimExpr] = []
    for param in func.params:
        buffer = func.buffer_of(param)
        dtype = str(param.dtype if buffer is None else buffer.dtype)
        if dtype not in DTYPES or (buffer is None and dtype in FLOATS_OF_8_BITS):
            raise RefusedError(f"the datatype {dtype}")
        if buffer is None:
            is_real = param.dtype.is_bool or param.dtype.is_float
            params.append(Number(dtype) if is_real else Integer(param, dtype))
            continue
        written, strides = buffer in program.written, buffer.strides or None
        params.append(Array(dtype, buffer.shape, written, strides))
        buffers.append(buffer)
        if not isinstance(buffer.elem_offset, IntImm) or buffer.elem_offset.value:
            offsets.append(buffer.elem_offset)
    return EntrySignature(tuple(params), tuple(buffers), tuple(offsets))
