"""The only function that changes an expression."""

from __future__ import annotations

from relaxpy.errors import MisuseError
from relaxpy.ir.relax.nodes import Expr, StructInfo, as_struct_info


def update_struct_info(expr: Expr, struct_info: StructInfo) -> None:
    """Set the struct info of `expr`, which was built by hand and is not used yet.

    Other code relies on expressions not to change. To change the struct info of an expression that
    has one, build another expression by `with_struct_info`.

    Errors:
        MisuseError (also TypeError, ValueError): it has another struct info, or cannot have any.
    """
    if not isinstance(expr, Expr) or hasattr(expr, "with_fields"):
        raise MisuseError(f"a {type(expr).__name__} takes no struct info", about=expr)
    sinfo = as_struct_info(struct_info)
    if expr.struct_info is not None and expr.struct_info != sinfo:
        raise MisuseError(
            f"the expression is known to be {expr.struct_info} already",
            hint="build another one: expr.with_struct_info(...)",
            about=expr,
        )
    object.__setattr__(expr, "struct_info", sinfo)
    if hasattr(expr, "_nodes"):
        object.__delattr__(expr, "_nodes")  # which were those of its fields before
