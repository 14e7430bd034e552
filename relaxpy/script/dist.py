"""`R.dist`: the operators and directives of distributed tensors."""

from __future__ import annotations

import sys as _sys
from typing import Any

from relaxpy.errors import MisuseError as _MisuseError
from relaxpy.ir.ops.call import call_tir
from relaxpy.ir.relax.nodes import Constant as _Constant, const as _const
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo as _DTensorStructInfo, device_mesh
from relaxpy.script.language import relax_directives as _directives
from relaxpy.script.language.annotations import DTensor, resolve as _resolve
from relaxpy.support.entry import user_facing as _user_facing

__all__ = ["DTensor", "call_tir", "const", "device_mesh"]


@_user_facing
def const(value: object, struct_info: object) -> _Constant:
    """A distributed tensor literal, described by `R.DTensor(...)`.

    Errors:
        MisuseError (also TypeError, ValueError): the struct info is of another kind, or does not
            describe the value.
    """
    sinfo = _resolve(struct_info)
    if not isinstance(sinfo, _DTensorStructInfo):
        raise _MisuseError(f"R.dist.const takes an R.DTensor, found {sinfo}", about=struct_info)
    if not isinstance(value, _Constant):
        value = _const(value, sinfo.dtype)
    return _Constant(value.data, sinfo)


def __getattr__(name: str) -> Any:
    return _operator(name)


@_user_facing
def _operator(name: str) -> Any:
    return getattr(_operators, name)


_operators = _directives.OpSpace("relax.dist.", _sys.modules[__name__])
_offers, _public_names = _operators._offers, _operators._public_names


def __dir__() -> list[str]:
    return sorted({*__all__, *_public_names()})
