"""`R.dist`: the operators and directives of distributed tensors."""

from __future__ import annotations

import sys as _sys
from typing import Any

from relaxpy.errors import MisuseError as _MisuseError
from relaxpy.ir.relax.nodes import Constant as _Constant, const as _const
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo as _DTensorStructInfo, device_mesh
from relaxpy.ir.relax.op.call import call_tir
from relaxpy.script.language import relax_directives as _directives
from relaxpy.script.language.annotations import DTensor, resolve as _resolve
from relaxpy.script.language.wording import unknown_member as _unknown_member
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


@_user_facing
def __getattr__(name: Any) -> Any:
    operator = None if name[:1] == "_" else _directives.find(f"relax.dist.{name}")
    if operator is None:
        raise _unknown_member(_sys.modules[__name__], "R.dist", name)
    return operator


def _offers(name: str) -> bool:
    """True if there is an operator of this name."""
    return _directives.find(f"relax.dist.{name}") is not None


def _public_names() -> set[str]:
    """The names of operators."""
    return _directives.public("relax.dist.")


def __dir__() -> list[str]:
    return sorted({*__all__, *_public_names()})
