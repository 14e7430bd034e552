"""The words of `R` that name what TVM's builder does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxpy.errors import MisuseError
from relaxpy.ir.relax import nodes as rx
from relaxpy.script.parser import forms


def emit_match_cast(value: object, struct_info: object) -> forms.MatchCastForm:
    """`value` checked at run time against an info and bound; the same as `R.match_cast`."""
    return forms.MatchCastForm(value, struct_info)


def emit_var_binding(binding: rx.VarBinding) -> forms.EmitForm:
    """The value of a binding that Python made, bound to the name on the left."""
    if not isinstance(binding, rx.VarBinding):
        raise MisuseError(f"expected a VarBinding, found {binding!r:.60}", about=binding)
    return forms.EmitForm(binding.value, binding.var.struct_info)


def emit_te(func: Callable[..., Any], *args: object, **kwargs: object) -> forms.TeForm:
    """A call of a kernel that computes the tensor expressions which `func` gives for `args`.

    The kernel is entered into the module, by `primfunc_name_hint` or the name of `func`.
    """
    if not callable(func):
        raise MisuseError(f"emit_te takes a function, found {func!r:.60}", about=func)
    return forms.TeForm(func, args, kwargs)
