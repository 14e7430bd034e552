"""`T`: the directives of kernels.

Functions of expressions build them at once, so that they work in any Python code. Directives that
denote statements return records (`relaxpy.script.language.records`), which the parser applies.
"""

from __future__ import annotations

import sys as _sys
from types import FunctionType as _FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

from relaxpy.ir.te.tensor import ProducerLoad as _ProducerLoad
from relaxpy.ir.tir import (
    expr as _expr,
    intrin as _intrin,
    intrinsics as _records,
    ops as _ops,
    reduce as _reduce,
)
from relaxpy.ir.tir.analysis.index_map import IndexMap as _IndexMap
from relaxpy.ir.tir.buffer import BufferLoad, BufferRegion
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc as _PrimFunc, call_kernel
from relaxpy.script.language import hardware as _calls, tir_directives as _directives
from relaxpy.script.language.hardware import INTRINSICS as _HARDWARE, llvm_lookup_intrinsic_id
from relaxpy.script.language.records import (
    BufferSpec as Buffer,
    HandleName as _HandleName,
    directive as _directive,
    dynamic as _dynamic,
    meta_var as _meta_var,
)
from relaxpy.script.language.wording import unknown_member as _unknown_member
from relaxpy.script.parser.decorate import (
    Decorates as _Decorates,
    PrimFuncDecorator as _PrimFuncDecorator,
)
from relaxpy.script.parser.evaluate.macros import MacroDecorator as _MacroDecorator
from relaxpy.support.entry import found_at as _found_at, user_facing as _user_facing

prim_func: _Decorates[_PrimFunc] = _PrimFuncDecorator("tir")
macro = _MacroDecorator("tir")
_HANDLE = _HandleName()

_NODES = (
    *("Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "Min", "Max"),
    *("EQ", "NE", "LT", "LE", "GT", "GE", "And", "Or", "Not", "Select", "Cast", "Call"),
    *("Ramp", "Broadcast", "Shuffle", "Var", "SizeVar", "IntImm", "FloatImm", "StringImm"),
)
_STATEMENTS = (
    *("serial", "parallel", "vectorized", "unroll", "thread_binding", "grid"),
    *("block", "init", "axis", "reads", "writes", "where", "func_attr", "block_attr"),
    *("match_buffer", "alloc_buffer", "decl_buffer", "allocate", "allocate_const", "attr"),
    *("env_thread", "launch_thread", "realize", "evaluate"),
    *("buffer_store", "index_map"),
)
_INTRINSICS = (
    *_records.UNARY_MATH,
    *_records.BINARY_MATH,
    *("abs", "address_of", "assume", "break_loop", "call_cpacked", "call_packed", "continue_loop"),
    *("if_then_else", "infinity", "isfinite", "isinf", "isnan", "isnullptr", "likely"),
    *("max_value", "min_value", "ret", "undef", "vscale", *_records.BITWISE),
)
_WITH_DTYPE = ("call_extern", "call_intrin", "call_pure_extern", "reinterpret")

_MEMBERS: dict[str, Any] = {
    **{name: getattr(_expr, name) for name in _NODES},
    **{name: _directive(getattr(_directives, name)) for name in _STATEMENTS if name != "axis"},
    "axis": _directives.axis,
    "meta_var": _directive(_meta_var),
    **{name: _calls.ignoring_dtype(_calls.intrinsic(name)) for name in _INTRINSICS},
    **{name: _calls.leading_dtype(getattr(_intrin, name)) for name in _WITH_DTYPE},
    **_directives.datatypes(),
    **_HARDWARE,
    "IndexMap": _IndexMap,
    "ProducerLoad": _ProducerLoad,
    "CommReducer": _reduce.CommReducer,
    "Reduce": _reduce.Reduce,
    "Tensor": Buffer,
    "dynamic": _dynamic,
    "function": prim_func,
    "inline": macro,
    "comm_reducer": _directives.comm_reducer,
    "iter_var": _directives.iter_var,
    "let": _directives.LetName(),
    "bind": _directive(_directives.let_stmt),
    "sblock": _directive(_directives.block),
    "sblock_alloc_buffer": _directive(_directives.alloc_buffer),
    "sblock_attr": _directive(_directives.block_attr),
    "var": _directives.var,
    "Assert": _directive(_directives.assert_),
    "Else": _directive(_directives.else_),
    "If": _directive(_directives.if_),
    "Then": _directive(_directives.then),
    "While": _directive(_directives.while_),
    "Ptr": _HANDLE,
    "buffer_var": _HANDLE,
    "ptr": _HANDLE,
    "buffer": Buffer,
    "buffer_decl": Buffer,
    "target": _directives.target,
    "CallEffectKind": _records.CallEffectKind,
    "Let": _directives.let_expr,
    "LetStmt": _directive(_directives.let_stmt),
    "broadcast": _expr.Broadcast,
    "cast": _ops.cast_to,
    "ceildiv": _ops.ceildiv,
    "div": _ops.div,
    "floordiv": _ops.floordiv,
    "floormod": _ops.floormod,
    "max": _ops.maximum,
    "min": _ops.minimum,
    "power": _calls.ignoring_dtype(_calls.intrinsic("pow")),
    "ramp": _expr.Ramp,
    "truncdiv": _ops.truncdiv,
    "truncmod": _ops.truncmod,
}
for _name, _member in _MEMBERS.items():
    _is_function = isinstance(_member, _FunctionType)
    if _is_function and vars(_sys.modules[_member.__module__]).get(_member.__name__) is not _member:
        _found_at(__name__, _member, _name)
globals().update(_MEMBERS)

if TYPE_CHECKING:

    class handle(Any):  # type: ignore[misc]  # noqa: N801
        """A handle as an annotation; a call returns a new handle."""

    class bool(Any):  # type: ignore[misc]  # noqa: N801
        """A datatype as an annotation of a scalar; a call returns the scalar."""

    int8: TypeAlias = bool
    int16: TypeAlias = bool
    int32: TypeAlias = bool
    int64: TypeAlias = bool
    uint8: TypeAlias = bool
    uint16: TypeAlias = bool
    uint32: TypeAlias = bool
    uint64: TypeAlias = bool
    float16: TypeAlias = bool
    float32: TypeAlias = bool
    float64: TypeAlias = bool
    bfloat16: TypeAlias = bool

    def __getattr__(name: str) -> Any: ...

else:
    handle = _HANDLE

    @_user_facing
    def __getattr__(name):
        datatype = _directives.unlisted_datatype(name)
        if datatype is None:
            raise _unknown_member(_sys.modules[__name__], "T", name)
        return datatype


def _offers(name: str) -> Any:
    """True if `name` is a datatype that is not listed, such as a vector of any number of lanes."""
    return _directives.unlisted_datatype(name) is not None


__all__ = ["Buffer", "BufferLoad", "BufferRegion", "IterVar", "Range", "handle"]
__all__ += ["call_kernel", "llvm_lookup_intrinsic_id", "macro", "prim_func"]
__all__ += sorted(_MEMBERS)
