"""The parameters of a kernel as its entry checks them."""

from __future__ import annotations

from collections.abc import Mapping

from relaxpy.dataclass import dataclass
from relaxpy.exec.native.entry import DTYPES, Array, Integer, Param
from relaxpy.exec.native.frame import RefusedError
from relaxpy.exec.native.tree import Program
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IntImm, PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """The parameters of an entry, and what its names stand for.

    The kernel takes the addresses of the `buffers` and the integers, in the order of `params`, and
    then the values of `sizes` as i64: each is a variable, or an expression that it has to be equal
    to.
    """

    params: tuple[Param, ...]
    buffers: tuple[Buffer, ...]
    sizes: Mapping[str, PrimExpr]


def signature_of(program: Program) -> Signature:
    """The signature of a kernel.

    Errors:
        RefusedError: a parameter is of a type that entries do not check.
    """
    func = program.plan.func
    sizes: dict[str, PrimExpr] = {}
    names: dict[PrimExpr, str] = {}

    def name_of(size: PrimExpr) -> str:
        if size not in names:
            names[size] = f"size{len(names)}"
            sizes[names[size]] = size
        return names[size]

    params: list[Param] = []
    buffers: list[Buffer] = []
    for param in func.params:
        buffer = func.buffer_of(param)
        if buffer is None:
            params.append(Integer(name_of(param)))
            continue
        if str(buffer.dtype) not in DTYPES:
            raise RefusedError(f"the datatype {buffer.dtype}")
        shape = tuple(s.value if isinstance(s, IntImm) else name_of(s) for s in buffer.shape)
        params.append(Array(str(buffer.dtype), shape, buffer in program.written))
        buffers.append(buffer)
    return Signature(tuple(params), tuple(buffers), sizes)
