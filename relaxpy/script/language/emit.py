"""The directives of `R` that correspond to methods of TVM's BlockBuilder."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from relaxpy.errors import check_type, unexpected
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir.expr import CALLED_BY_TEXT
from relaxpy.script.language import records
from relaxpy.script.language.eager import directive


@directive
def emit_match_cast(value: object, struct_info: object) -> records.MatchCastForm:
    """Check `value` against a struct info at run time and bind it; the same as `R.match_cast`."""
    return records.MatchCastForm(value, struct_info)


@directive
def emit_var_binding(binding: rx.VarBinding) -> records.EmitForm:
    """Bind the value of a VarBinding object to the name on the left."""
    check_type(binding, rx.VarBinding, "expected a VarBinding")
    return records.EmitForm(binding.value, binding.var.struct_info)


@directive
def emit_te(func: Callable[..., Any], *args: object, **kwargs: object) -> records.TeForm:
    """Call a kernel that computes the tensor expressions that `func` returns for `args`.

    The kernel is added to the module, under `primfunc_name_hint` or the name of `func`.
    """
    if not callable(func):
        raise unexpected(func, "emit_te takes a function")
    return records.TeForm(func, args, kwargs)


def kernel_call(form: records.TeForm, builder: BlockBuilder, names: Container[str]) -> rx.Call:
    """Add the kernel of `form` to the module, under a name not in `names`; return its call.

    Errors:
        MisuseError: the function returns no tensor expressions for its arguments.
    """
    kwargs = dict(form.kwargs)
    hint = kwargs.pop("primfunc_name_hint", None) or kwargs.pop("function_name_hint", None)
    hint = hint or getattr(form.function, "__name__", "te")
    attrs: Any = kwargs.pop("primfunc_attrs", None) or kwargs.pop("function_attrs", None)
    name = free = str(hint).strip("<>")
    count = 0
    taken = {var.name_hint for var in builder.get()} if free in names else ()
    while free in names or (count and free in taken):
        count += 1
        free = f"{name}{count}"
    token = CALLED_BY_TEXT.set(False)  # dimensions of tensor expressions are compared structurally
    try:
        return builder.call_te(
            form.function, *form.args, primfunc_name_hint=free, primfunc_attrs=attrs, **kwargs
        )
    finally:
        CALLED_BY_TEXT.reset(token)
