"""`R`: the directives of graph functions, and the registered operators by name."""

from __future__ import annotations

import sys as _sys
from types import SimpleNamespace as _SimpleNamespace
from typing import TYPE_CHECKING, Any as _Any

from relaxpy.ir.core.device import (
    cpu as cpu,
    cuda as cuda,
    device as device,
    ext_dev as ext_dev,
    hexagon as hexagon,
    metal as metal,
    opencl as opencl,
    rocm as rocm,
    vpi as vpi,
    vulkan as vulkan,
    webgpu as webgpu,
)
from relaxpy.ir.global_info import DummyGlobalInfo as _DummyGlobalInfo, VDevice as _VDevice
from relaxpy.ir.ops.builtin import stop_lift_params as stop_lift_params
from relaxpy.ir.ops.call import call_tir_packed as call_tir_packed
from relaxpy.ir.ops.linear_algebra import linear as linear
from relaxpy.ir.relax.nodes.distributed import device_mesh as device_mesh
from relaxpy.script import dist as dist
from relaxpy.script.language import relax_directives as _directives
from relaxpy.script.language.annotations import (
    Annotation as _Annotation,
    Callable_ as _Callable,
    DTensor as DTensor,
    Object as Object,
    Prim as Prim,
    Shape as Shape,
    Tensor as Tensor,
    Tuple as Tuple,
)
from relaxpy.script.language.legacy import (
    Bool as Bool,
    DynTensorType as DynTensorType,
    Float as Float,
    FuncType as FuncType,
    Int as Int,
    ObjectType as ObjectType,
    PackedFuncType as PackedFuncType,
    PrimType as PrimType,
    RuntimeDepShape as RuntimeDepShape,
    ShapeType as ShapeType,
    TensorType as TensorType,
    TupleType as TupleType,
    Void as Void,
    cast as cast,
    match_shape as match_shape,
)
from relaxpy.script.language.relax_directives import (
    Else as Else,
    ExternFunc as ExternFunc,
    If as If,
    SeqExpr as SeqExpr,
    Then as Then,
    TupleGetItem as TupleGetItem,
    arg as arg,
    call_packed as call_packed,
    const as const,
    dataflow as dataflow,
    dtype as dtype,
    emit as emit,
    emit_match_cast as emit_match_cast,
    emit_te as emit_te,
    emit_var_binding as emit_var_binding,
    func_attr as func_attr,
    func_name as func_name,
    func_ret_struct_info as func_ret_struct_info,
    func_ret_value as func_ret_value,
    make_tuple as _make_tuple,
    match_cast as match_cast,
    output as output,
    prim_value as prim_value,
    shape as shape,
    string as _string,
)
from relaxpy.script.parser.decorate import (
    RelaxDecorator as _RelaxDecorator,
    RewriterDecorator as _RewriterDecorator,
)
from relaxpy.script.parser.evaluate.macros import MacroDecorator as _MacroDecorator
from relaxpy.support.entry import user_facing as _user_facing

if TYPE_CHECKING:
    # Written by tools/stubs.py: operators are registered when relaxpy runs.
    from relaxpy.ir.relax.nodes import Function as _Function
    from relaxpy.script.operators import *
    from relaxpy.script.parser.decorate import Decorates as _Decorates

function: _Decorates[_Function] = _RelaxDecorator("relax")
macro = _MacroDecorator("relax")
rewriter = _RewriterDecorator()
ShapeExpr = shape
vdevice = _VDevice
dummy_global_info = _DummyGlobalInfo
distributed = dist
Callable = _Callable
tuple = _make_tuple
str = _string

Any = Object
"""The name of R.Object in TVM after v0.22."""

__all__ = sorted(
    {name for name in globals() if name[0].isalpha()} - {"TYPE_CHECKING", "annotations"}
)

#: Where users of TVM find the classes of R.Tensor(...) and its siblings; texts cannot name them.
entry = _SimpleNamespace(
    StructInfoProxy=_Annotation,
    **{
        f"{kind.__name__.strip('_')}Proxy": kind
        for kind in (Object, Prim, Shape, Tensor, Tuple, _Callable, DTensor)
    },
)


@_user_facing
def __getattr__(name: _Any) -> _Any:
    return getattr(_operators, name)


_operators = _directives.OpSpace("relax.", _sys.modules[__name__])
_offers, _public_names = _operators._offers, _operators._public_names


def __dir__() -> list[str]:  # type: ignore[valid-type]
    return sorted({*__all__, *_public_names()})
