"""Relations of static types, which are those of struct info without shapes."""

from __future__ import annotations

from relaxpy.errors import StructInfoTypeError
from relaxpy.ir.relax.nodes.static_type import TypeKind, erase_struct_info, wrap_type
from relaxpy.ir.relax.relations.compatibility import is_base_of, struct_info_glb, struct_info_lca
from relaxpy.support.entry import user_facing


@user_facing
def is_subtype(sub: TypeKind, base: TypeKind) -> bool:
    """Return whether `sub <: base`.

    Rule:
        TYP-7, TYP-8, TYP-9, TYP-10, TYP-11, TYP-12.
    Errors:
        MisuseError (also TypeError): an operand is not a type.
    """
    return is_base_of(wrap_type(base), wrap_type(sub))


@user_facing
def find_lub(a: TypeKind, b: TypeKind) -> TypeKind:
    """The least upper bound.

    Rule:
        TYP-13, TYP-14.
    Errors:
        MisuseError (also TypeError): an operand is not a type.
    """
    return erase_struct_info(struct_info_lca(wrap_type(a), wrap_type(b)))


@user_facing
def find_glb(a: TypeKind, b: TypeKind) -> TypeKind | None:
    """The greatest lower bound, or None if there is none.

    Rule:
        TYP-15, TYP-16.
    Errors:
        MisuseError (also TypeError): an operand is not a type.
    """
    bound = struct_info_glb(wrap_type(a), wrap_type(b))
    return None if bound is None else erase_struct_info(bound)


def require_subtype(actual: TypeKind, expected: TypeKind) -> None:
    """Check that a value of type `actual` can be used as an `expected`.

    Rule:
        TYP-17, TYP-18.
    Errors:
        StructInfoTypeError: it cannot; the hint is a cast if `actual` is the wider type.
    """
    if is_subtype(actual, expected):
        return
    hint = None
    if is_subtype(expected, actual):
        hint = f"check it at run time: R.match_cast(value, {expected})"
    raise StructInfoTypeError(f"{actual} is not {expected}", rule="TYP-18", hint=hint)
