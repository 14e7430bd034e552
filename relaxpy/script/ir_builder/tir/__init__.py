"""`T` for an IRBuilder: directives that are applied to the kernel being built.

The names are those of `relaxpy.script.tir`. A directive that returns a record there opens a frame
or adds a statement here.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

from relaxpy.errors import BuilderStateError, MisuseError, UnknownAttributeError
from relaxpy.ir.relax.nodes.base_classes import check_name
from relaxpy.ir.relax.nodes.expr import set_name
from relaxpy.ir.tir.buffer import Buffer as _Buffer
from relaxpy.ir.tir.expr import Var
from relaxpy.script import tir as _namespace
from relaxpy.script.ir_builder.base import IRBuilder, check_option, handler
from relaxpy.script.ir_builder.frames import PrimFuncFrame
from relaxpy.script.ir_builder.tir import frame as frame
from relaxpy.script.language import records
from relaxpy.script.language.kernel_builder import result_type, typed_var
from relaxpy.script.language.records import directive
from relaxpy.script.language.wording import describe
from relaxpy.support.entry import user_facing

_ADDED = ("arg", "buffer", "func_name", "func_ret")
_PARSED = {"inline", "macro"}
__all__ = sorted({*_namespace.__all__, *_ADDED} - _PARSED)

axis = SimpleNamespace(
    **{name: directive(getattr(_namespace.axis, name), handler) for name in _namespace.axis.__all__}
)


def __getattr__(name: str) -> Any:
    if name in _PARSED:
        raise UnknownAttributeError(
            f"T.{name} is for parsed programs only", hint="a Python function does the same"
        )
    member = getattr(_namespace, name)
    if name in __all__ and inspect.isfunction(member):
        member = globals()[name] = directive(member, handler)
    return member


def _function(directive: str) -> PrimFuncFrame:
    frame = IRBuilder.current().innermost(PrimFuncFrame)
    if frame is None:
        raise BuilderStateError(f"{directive} belongs at the top of a kernel, with T.prim_func():")
    return frame


@user_facing
def prim_func(is_private: bool = False) -> PrimFuncFrame:
    """A kernel: `with T.prim_func():`."""
    check_option(is_private, "is_private")
    return PrimFuncFrame(is_private=is_private)


@user_facing
def func_name(name: str) -> None:
    """Name the enclosing kernel.

    Errors:
        BuilderStateError: it has a name already.
    """
    check_name(name, "the name of a function")
    frame = _function("T.func_name")
    if frame.name is not None:
        raise BuilderStateError(f"the kernel already has the name {frame.name!r}", about=name)
    frame.name = name


@user_facing
def arg(name: str, obj: Any) -> Any:
    """Add the next parameter, called `name`: a scalar or handle such as `T.int32()`, or a buffer.

    A variable or buffer that has a name keeps it, since other parameters may refer to it.

    Errors:
        MisuseError: `obj` is none of these.
        BuilderStateError: `obj` is a parameter already.
    """
    check_name(name, "the name of a parameter")
    kernel = _function("T.arg").kernel
    assert kernel is not None
    param: Var | _Buffer | None
    if isinstance(obj, (Var, _Buffer)):
        param = obj
    else:
        param = obj.create(name) if isinstance(obj, records.BufferSpec) else typed_var(name, obj)
    if param is None:
        raise MisuseError(
            f"a parameter is a buffer, a handle or a scalar, found {describe(obj)}", about=obj
        )
    if any(param is known for known in (*kernel.params, *kernel.buffer_map.values())):
        raise BuilderStateError(f"{describe(obj)} is a parameter already", about=obj)
    if not param.name:
        set_name(param, name)
    kernel.parameter(name, param)
    return param


@user_facing
def func_ret(ret_type: Any) -> Any:
    """Declare that the kernel returns a scalar of this datatype.

    Errors:
        BuilderStateError: a result is declared already.
    """
    kernel = _function("T.func_ret").kernel
    assert kernel is not None
    if kernel.ret_type is not None:
        raise BuilderStateError(f"the kernel returns {kernel.ret_type} already", about=ret_type)
    kernel.ret_type = result_type(ret_type)
    return ret_type


@user_facing
def Buffer(*args: Any, **kwargs: Any) -> _Buffer:
    """A new buffer; the arguments are those of T.Buffer in program text."""
    return _namespace.Buffer(*args, **kwargs).create("")


buffer = buffer_decl = Buffer
