"""`R`: the directives of graph functions, and the registered operators by name."""

from __future__ import annotations

import sys as _sys
from typing import TYPE_CHECKING, Any

from relaxpy.entry import user_facing as _user_facing
from relaxpy.ir.core.device import (
    cpu,
    cuda,
    device,
    ext_dev,
    hexagon,
    metal,
    opencl,
    rocm,
    vpi,
    vulkan,
    webgpu,
)
from relaxpy.ir.relax.nodes.distributed import device_mesh
from relaxpy.ir.relax.op.builtin import stop_lift_params
from relaxpy.ir.relax.op.linear_algebra import linear
from relaxpy.script import dist
from relaxpy.script.language import relax_directives as _directives
from relaxpy.script.language.annotations import (
    Callable_ as Callable,
    DTensor,
    Object,
    Prim,
    Shape,
    Tensor,
    Tuple,
)
from relaxpy.script.language.emit import emit_match_cast, emit_te, emit_var_binding
from relaxpy.script.language.legacy import (
    Bool,
    DynTensorType,
    Float,
    FuncType,
    Int,
    ObjectType,
    PackedFuncType,
    PrimType,
    RuntimeDepShape,
    ShapeType,
    TensorType,
    TupleType,
    Void,
    cast,
    match_shape,
)
from relaxpy.script.language.relax_directives import (
    ExternFunc,
    SeqExpr,
    TupleGetItem,
    call_packed,
    const,
    dataflow,
    dtype,
    emit,
    func_attr,
    make_tuple as tuple,
    match_cast,
    output,
    prim_value,
    shape,
    string as str,
)
from relaxpy.script.language.wording import unknown_member as _unknown_member
from relaxpy.script.parser.decorate import (
    FunctionDecorator as _FunctionDecorator,
    RewriterDecorator as _RewriterDecorator,
)
from relaxpy.script.parser.evaluate.macros import MacroDecorator as _MacroDecorator

if TYPE_CHECKING:
    # Written by tools/stubs.py: operators are registered when relaxpy runs.
    from relaxpy.ir.relax.nodes import Function as _Function
    from relaxpy.script.operators import *
    from relaxpy.script.parser.decorate import Decorates as _Decorates

function: _Decorates[_Function] = _FunctionDecorator("relax")
macro = _MacroDecorator("relax")
rewriter = _RewriterDecorator()
ShapeExpr = shape

__all__ = [
    "Bool",
    "Callable",
    "DTensor",
    "DynTensorType",
    "ExternFunc",
    "Float",
    "FuncType",
    "Int",
    "Object",
    "ObjectType",
    "PackedFuncType",
    "Prim",
    "PrimType",
    "RuntimeDepShape",
    "SeqExpr",
    "Shape",
    "ShapeExpr",
    "ShapeType",
    "Tensor",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Void",
    "call_packed",
    "cast",
    "const",
    "cpu",
    "cuda",
    "dataflow",
    "device",
    "device_mesh",
    "dist",
    "dtype",
    "emit",
    "emit_match_cast",
    "emit_te",
    "emit_var_binding",
    "ext_dev",
    "func_attr",
    "function",
    "hexagon",
    "linear",
    "macro",
    "match_cast",
    "match_shape",
    "metal",
    "opencl",
    "output",
    "prim_value",
    "rewriter",
    "rocm",
    "shape",
    "stop_lift_params",
    "str",
    "tuple",
    "vpi",
    "vulkan",
    "webgpu",
]


@_user_facing
def __getattr__(name: Any) -> Any:
    found = None if name[:1] == "_" else _directives.find(f"relax.{name}")
    if found is None:
        raise _unknown_member(_sys.modules[__name__], "R", name)
    return found


def _offers(name: Any) -> bool:
    """Whether there is an operator of this name."""
    return _directives.find(f"relax.{name}") is not None


def _public_names() -> set[str]:  # type: ignore[valid-type]
    """The names of operators."""
    return _directives.public("relax.")


def __dir__() -> list[str]:  # type: ignore[valid-type]
    return sorted({*__all__, *_public_names()})
