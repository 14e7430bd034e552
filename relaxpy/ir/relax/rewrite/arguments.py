"""Arguments in place of parameters: what is not proved of them is checked by match_casts."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from relaxpy.errors import Span, StructInfoError
from relaxpy.ir.core.node import Node
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.normalize import is_leaf
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.relations import (
    Compatibility,
    check_compatibility,
    explain_incompatibility,
    substitute_info,
)
from relaxpy.ir.relax.relations.context import Except
from relaxpy.ir.relax.relations.mapping import map_params
from relaxpy.ir.relax.relations.shape_vars import (
    definable_shape_vars,
    free_shape_vars,
    map_nested,
    map_sizes,
    variables_of,
)
from relaxpy.ir.tir import expr as tir


def in_place_of_parameters(
    pairs: Sequence[tuple[rx.Var, rx.Expr]], body: rx.SeqExpr, span: Span | None = None
) -> tuple[rx.SeqExpr, dict[Node, Node]]:
    """`body` after the checks that a call with these arguments makes, and what replaces what in it.

    The images are those of parameters and of the shape variables that follow from the arguments.

    Errors:
        StructInfoError: an argument does not fit its parameter.
    """
    known = [(p.struct_info, a.struct_info) for p, a in pairs]
    both = [(p, a) for p, a in known if p is not None and a is not None]
    sizes = map_params([p for p, _ in both], [a for _, a in both])
    images: dict[Node, Node] = dict(sizes.items())
    before: list[rx.Binding] = []
    unproved: list[tuple[rx.Var, rx.Expr, rx.StructInfo]] = []
    for param, arg in pairs:
        info = param.struct_info or rx.ObjectStructInfo()
        if _is_proved(param, info, arg, sizes):
            if is_leaf(arg):
                images[param] = arg
            else:
                before.append(rx.VarBinding(param, arg, span))
            continue
        if not is_leaf(arg):
            value = rx.Var(param.name_hint, arg.struct_info)
            before.append(rx.VarBinding(value, arg, span))
            arg = value
        unproved.append((param, arg, info))
    before += _casts(unproved, sizes, span)
    if before:
        body = rx.SeqExpr((rx.BindingBlock(before), *body.blocks), body.body)  # type: ignore[arg-type]
    return body, images


def _is_proved(
    param: rx.Var, info: rx.StructInfo, arg: rx.Expr, sizes: Mapping[tir.Var, tir.PrimExpr]
) -> bool:
    """Whether an argument certainly fits, and tells all sizes that the parameter binds."""
    if isinstance(info, rx.ObjectStructInfo):
        return True
    found = arg.struct_info
    if found is None:
        return False
    expected = substitute_info(info, sizes)
    answer = check_compatibility(found, expected)
    if answer is Compatibility.INCOMPATIBLE:
        raise StructInfoError(
            f"parameter {param.name_hint} is {expected}, the value for it {found}: "
            f"{explain_incompatibility(found, expected)}",
            rule="DER-41",
            about=arg,
        )
    return answer is Compatibility.COMPATIBLE and all(
        v in sizes for v in definable_shape_vars(info)
    )


def _casts(
    unproved: Sequence[tuple[rx.Var, rx.Expr, rx.StructInfo]],
    sizes: Container[tir.Var],
    span: Span | None,
) -> list[rx.Binding]:
    """The casts that check arguments as the signature does, in which the order does not matter.

    A cast binds lone variables only, for what stands right of it (WF-5b). So where an info mentions
    a variable that has no value yet, its lone ones are bound first and the whole is checked last.
    """
    definable = definable_shape_vars(*(info for _, _, info in unproved))
    unbound = {var for var in definable if var not in sizes}
    casts: list[rx.Binding] = []
    last: list[rx.Binding] = []
    for param, arg, info in unproved:
        lone = _lone_part(info, unbound)
        whole = rx.MatchCast(param, arg, info, span)
        if lone is info:
            casts.append(whole)
        else:
            last.append(whole)
            if not unbound.isdisjoint(definable_shape_vars(info)):
                casts.append(rx.MatchCast(None, arg, lone, span))
        unbound.difference_update(definable_shape_vars(info))
    return casts + last


def _lone_part(info: rx.StructInfo, unbound: Container[tir.Var]) -> rx.StructInfo:
    """`info` with new variables for compound sizes that mention unbound ones."""
    if isinstance(info, rx.FuncStructInfo):
        mentions = any(v in unbound for v in free_shape_vars(info, Except(())))
        return rx.ObjectStructInfo() if mentions else info
    if isinstance(info, (rx.TupleStructInfo, DTensorStructInfo)):
        return map_nested(lambda part: _lone_part(part, unbound), info)

    def lone(size: tir.PrimExpr) -> tir.PrimExpr:
        if isinstance(size, tir.Var) or not any(v in unbound for v in variables_of(size)):
            return size
        return tir.Var("size", size.dtype)

    return map_sizes(lone, info)
