"""Copies of kernels that share no variable with the original."""

from __future__ import annotations

from relaxpy.errors import MisuseError
from relaxpy.ir.core.traverse import rename
from relaxpy.ir.tir.prim_func import PrimFunc, defined_variables
from relaxpy.support.entry import user_facing


@user_facing
def renew_defs(func: PrimFunc) -> PrimFunc:
    """A copy with new variables and buffers instead of those that a kernel defines.

    Variables that the kernel only uses stay.

    Errors:
        MisuseError (also TypeError): `func` is not a PrimFunc.
    """
    if not isinstance(func, PrimFunc):
        raise MisuseError(f"expected a PrimFunc, found {type(func).__name__}", about=func)
    return rename(func, {var: var.renamed(var.name) for var in defined_variables(func)})
