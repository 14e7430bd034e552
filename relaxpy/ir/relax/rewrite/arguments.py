"""Arguments instead of parameters, with a match_cast for each that is not proved to fit."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from relaxpy.errors import Span, StructInfoError
from relaxpy.ir.core.node import Node
from relaxpy.ir.relax import nodes as rx, relations
from relaxpy.ir.relax.block_builder.normalize import is_leaf
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.relations import shape_vars
from relaxpy.ir.relax.relations.context import Except
from relaxpy.ir.relax.relations.mapping import map_params
from relaxpy.ir.tir import expr as tir


def in_place_of_parameters(
    pairs: Sequence[tuple[rx.Var, rx.Expr]], body: rx.SeqExpr, span: Span | None = None
) -> tuple[rx.SeqExpr, dict[Node, Node]]:
    """`body` after the checks that a call with these arguments makes, and images of variables.

    The images are those of parameters and of the shape variables that the arguments determine.

    Errors:
        StructInfoError: an argument does not fit its parameter.
    """
    sizes = shape_var_images(pairs)
    images: dict[Node, Node] = dict(sizes.items())
    before: list[rx.Binding] = []
    unproved: list[tuple[rx.Var, rx.Expr, rx.StructInfo]] = []
    for param, arg in pairs:
        sinfo = _require_compatible(param, arg, sizes)
        if fits(param, arg, sizes):
            if is_leaf(arg):
                images[param] = arg
            else:
                before.append(rx.VarBinding(param, arg, span))
            continue
        if not is_leaf(arg):
            value = rx.Var(param.name_hint, arg.struct_info)
            before.append(rx.VarBinding(value, arg, span))
            arg = value
        unproved.append((param, arg, sinfo))
    before += _casts(unproved, sizes, span)
    if before:
        body = rx.SeqExpr((rx.BindingBlock(before), *body.blocks), body.body)  # type: ignore[arg-type]
    return body, images


def shape_var_images(pairs: Sequence[tuple[rx.Var, rx.Expr]]) -> Mapping[tir.Var, tir.PrimExpr]:
    """The values of the shape variables of parameters, as far as the arguments determine them."""
    sinfos = [(p.struct_info, a.struct_info) for p, a in pairs]
    known = [(p, a) for p, a in sinfos if p is not None and a is not None]
    return map_params([p for p, _ in known], [a for _, a in known])


def fit_parameters(params: Sequence[rx.Var], args: Sequence[rx.Expr]) -> bool:
    """Return whether a call with these arguments makes no check that may fail."""
    pairs = list(zip(params, args, strict=True))
    sizes = shape_var_images(pairs)
    return all(fits(param, arg, sizes) for param, arg in pairs)


def fits(param: rx.Var, arg: rx.Expr, sizes: Mapping[tir.Var, tir.PrimExpr]) -> bool:
    """Return whether an argument certainly fits and determines all that the parameter defines."""
    sinfo, actual = param.struct_info, arg.struct_info
    if sinfo is None or isinstance(sinfo, rx.ObjectStructInfo):
        return True
    if actual is None or not all(var in sizes for var in shape_vars.definable_shape_vars(sinfo)):
        return False
    expected = relations.substitute_info(sinfo, sizes)
    compatible = relations.Compatibility.COMPATIBLE
    return relations.check_compatibility(actual, expected) is compatible


def _require_compatible(
    param: rx.Var, arg: rx.Expr, sizes: Mapping[tir.Var, tir.PrimExpr]
) -> rx.StructInfo:
    """The struct info of a parameter. Errors: StructInfoError if an argument cannot fit it."""
    sinfo, actual = param.struct_info or rx.ObjectStructInfo(), arg.struct_info
    expected = relations.substitute_info(sinfo, sizes)
    incompatible = relations.Compatibility.INCOMPATIBLE
    if actual is not None and relations.check_compatibility(actual, expected) is incompatible:
        raise StructInfoError(
            f"parameter {param.name_hint} is {expected}, the value for it {actual}: "
            f"{relations.explain_incompatibility(actual, expected)}",
            rule="DER-41",
            about=arg,
        )
    return sinfo


def _casts(
    unproved: Sequence[tuple[rx.Var, rx.Expr, rx.StructInfo]],
    sizes: Container[tir.Var],
    span: Span | None,
) -> list[rx.Binding]:
    """The casts that check arguments as a signature does, in which the order does not matter.

    A cast defines only variables that are whole dimensions (WF-5b). If another dimension mentions a
    variable without a value, the former are defined first and the whole is checked last.
    """
    definable = shape_vars.definable_shape_vars(*(sinfo for _, _, sinfo in unproved))
    unbound = {var for var in definable if var not in sizes}
    casts: list[rx.Binding] = []
    last: list[rx.Binding] = []
    for param, arg, sinfo in unproved:
        defining = _without_compounds(sinfo, unbound)
        whole = rx.MatchCast(param, arg, sinfo, span)
        if defining is sinfo:
            casts.append(whole)
        else:
            last.append(whole)
            if not unbound.isdisjoint(shape_vars.definable_shape_vars(sinfo)):
                casts.append(rx.MatchCast(None, arg, defining, span))
        unbound.difference_update(shape_vars.definable_shape_vars(sinfo))
    return casts + last


def _without_compounds(sinfo: rx.StructInfo, unbound: Container[tir.Var]) -> rx.StructInfo:
    """`sinfo` with new variables for compound dimensions that mention unbound variables."""
    if isinstance(sinfo, rx.FuncStructInfo):
        mentions = any(v in unbound for v in shape_vars.free_shape_vars(sinfo, Except(())))
        return rx.ObjectStructInfo() if mentions else sinfo
    if isinstance(sinfo, (rx.TupleStructInfo, DTensorStructInfo)):
        return shape_vars.map_nested(lambda field: _without_compounds(field, unbound), sinfo)

    def simple(dim: tir.PrimExpr) -> tir.PrimExpr:
        if isinstance(dim, tir.Var) or not any(v in unbound for v in shape_vars.variables_of(dim)):
            return dim
        return tir.Var("size", dim.dtype)

    return shape_vars.map_sizes(simple, sinfo)
