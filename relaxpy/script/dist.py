"""`R.dist`: the operators and directives of distributed tensors."""

from __future__ import annotations

import sys as _sys
from typing import Any

from relaxpy.entry import user_facing as _user_facing
from relaxpy.errors import MisuseError as _MisuseError
from relaxpy.ir.relax.nodes import Constant as _Constant, const as _const
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo as _DTensorStructInfo, device_mesh
from relaxpy.ir.relax.op.call import call_tir
from relaxpy.script.language import relax_directives as _directives
from relaxpy.script.language.annotations import DTensor, resolve as _resolve
from relaxpy.script.language.wording import unknown_member as _unknown_member

__all__ = ["DTensor", "call_tir", "const", "device_mesh"]


@_user_facing
def const(value: object, struct_info: object) -> _Constant:
    """A distributed tensor literal, described by `R.DTensor(...)`.

    Errors:
        MisuseError (also TypeError, ValueError): it is no such info, or one of another tensor.
    """
    info = _resolve(struct_info)
    if not isinstance(info, _DTensorStructInfo):
        raise _MisuseError(f"R.dist.const takes an R.DTensor, found {info}", about=struct_info)
    if not isinstance(value, _Constant):
        value = _const(value, info.dtype)
    return _Constant(value.data, info)


@_user_facing
def __getattr__(name: Any) -> Any:
    found = None if name[:1] == "_" else _directives.find(f"relax.dist.{name}")
    if found is None:
        raise _unknown_member(_sys.modules[__name__], "R.dist", name)
    return found


def _offers(name: str) -> bool:
    """Whether there is an operator of this name."""
    return _directives.find(f"relax.dist.{name}") is not None


def _public_names() -> set[str]:
    """The names of operators."""
    return _directives.public("relax.dist.")


def __dir__() -> list[str]:
    return sorted({*__all__, *_public_names()})
