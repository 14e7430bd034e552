"""The derivation of struct info (DER): one rule for each kind of expression."""

from __future__ import annotations

from typing import cast

from relaxpy.errors import Span, StructInfoError, StructInfoTypeError, counted
from relaxpy.ir import hooks
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.ops.definition.registry import infer_op_call
from relaxpy.ir.relax import nodes as rx, relations
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.relations.derivation import Context, Except, written_at
from relaxpy.ir.relax.relations.shape_vars import over_sizes_info, simplified_shapes, sizes_of
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_func import PrimFunc


def callee_name(callee: rx.Expr | Op) -> str:
    """The name of a callee in messages."""
    match callee:
        case rx.ExternFunc(global_symbol=name):
            return f"packed function {name}"
        case Op(name=name):
            return name
        case _:
            return getattr(callee, "name_hint", "the function")


def infer_call(call: rx.Call, ctx: Context) -> rx.StructInfo:
    """The struct info of a call whose callee and arguments have theirs.

    Dimensions are simplified by their known signs, and a shape with a very large one is
    unknown, unless the call states them.

    Errors:
        StructInfoError: the operator rejects the arguments, the callee is not a function, or the
            arguments do not fit its signature; `about` is the argument at fault.
    """
    if isinstance(call.op, Op):
        return infer_op_call(call.op, call, ctx)
    sinfo = apply_signature(ctx.callee_sinfo(call.op), call, ctx)
    if call.sinfo_args:
        return sinfo
    return simplified_shapes(sinfo, ctx.sizes, lambda: map(ctx.sinfo_of, call.args))


def apply_signature(sinfo: rx.StructInfo, call: rx.Call, ctx: Context) -> rx.StructInfo:
    """The struct info of a call of a callee with this struct info (DER-37, DER-38, DER-42).

    The shape variables that it binds occur nowhere else (DER-51).

    Errors:
        StructInfoError: the callee is not a function, or the arguments do not fit.
    """
    if not isinstance(sinfo, rx.FuncStructInfo):
        raise StructInfoTypeError(
            f"{callee_name(call.op)} is {sinfo}, which cannot be called",
            rule="DER-37",
            span=written_at(cast("rx.Expr", call.op)),
            hint="declare with R.match_cast that it is a function"
            if isinstance(sinfo, rx.ObjectStructInfo)
            else None,
            about=call.op,
        )
    if sinfo.params is None:
        if sinfo.derive_func is None:
            raise StructInfoError(
                f"{callee_name(call.op)} has neither params nor derive_func",
                rule="WF-17b",
                span=written_at(cast("rx.Expr", call.op)),
                about=call.op,
            )
        return rx.as_struct_info(sinfo.derive_func.func(call, ctx))
    return _call_closure(call, sinfo, sinfo.params, ctx)


def _call_closure(
    call: rx.Call, sinfo: rx.FuncStructInfo, params: tuple[rx.StructInfo, ...], ctx: Context
) -> rx.StructInfo:
    """The result of a callee with parameters (DER-39, DER-40, DER-41, DER-42, DER-51)."""
    name = callee_name(call.op)
    if len(call.args) != len(params):
        extra = call.args[len(params)] if len(call.args) > len(params) else cast("rx.Expr", call.op)
        kernel = isinstance(call.op, rx.GlobalVar) and isinstance(
            ctx.function_of(call.op), PrimFunc
        )
        raise StructInfoTypeError(
            f"{name} takes {counted(len(params), 'argument')}, found {len(call.args)}",
            rule="DER-39",
            span=written_at(extra),
            hint=f"to have the kernel write its result: R.call_tir({name}, (...), out_sinfo)"
            if kernel
            else None,
            about=extra,
        )
    args = tuple(ctx.sinfo_of(arg) for arg in call.args)
    images = relations.map_params(params, args, ctx.shape_vars)
    for i, (arg, actual, param) in enumerate(zip(call.args, args, params, strict=True)):
        expected = relations.substitute_info(param, images)
        check_argument(f"argument {i + 1} of {name}", arg, actual, expected, call, ctx)
    unmapped = [
        var for var in relations.bound_shape_vars(sinfo, ctx.shape_vars) if var not in images
    ]
    return relations.erase_to_well_defined(
        relations.substitute_info(sinfo.ret, images), Except(()), Except(unmapped)
    )


def _computes_shapes(call: rx.Call, ctx: Context) -> bool:
    """True if a call is of a kernel on dimensions that VMShapeLower adds to lowered programs.

    Its argument has the right size, and users could not act on a warning.
    """
    func = ctx.function_of(call.op) if isinstance(call.op, rx.GlobalVar) else None
    return isinstance(func, PrimFunc) and bool(func.attrs.get("tir.is_host_func", False))


def _is_narrower(expected: rx.StructInfo) -> bool:
    """True if a kernel has dimensions of less than 64 bits, which are compared when it runs."""
    sizes = sizes_of(expected)
    return any(isinstance(node, tir.Cast) for size in sizes for node in walk(size))


def check_argument(
    what: str,
    arg: rx.Expr,
    actual: rx.StructInfo,
    expected: rx.StructInfo,
    call: rx.Call,
    ctx: Context,
) -> None:
    """DER-41: raise an error if an argument is incompatible, or warn if it may be."""
    compatibility = _compatibility(actual, expected, ctx)
    if compatibility is relations.Compatibility.COMPATIBLE:
        return
    message = f"{what} is {actual}, expected {expected}{_because(actual, expected, ctx)}"
    hint = cast_hint(actual, expected, ctx)
    if compatibility is relations.Compatibility.POSSIBLE:
        if not _computes_shapes(call, ctx) and not _is_narrower(expected):
            ctx.warn(message, rule="DER-41", about=(arg, call), hint=hint)
        return
    raise _incompatible(actual, expected)(
        message, rule="DER-41", span=written_at(arg), hint=hint, about=arg
    )


def _compatibility(
    actual: rx.StructInfo, expected: rx.StructInfo, ctx: Context
) -> relations.Compatibility:
    """True if a value fits the expected struct info, given the signs of dimensions."""
    result = relations.check_compatibility(actual, expected, ctx.shape_vars)
    if result is relations.Compatibility.POSSIBLE and ctx.sizes:
        actual, expected = (over_sizes_info(sinfo, ctx.sizes) for sinfo in (actual, expected))
        result = relations.check_compatibility(actual, expected, ctx.shape_vars)
    return result


def _because(actual: rx.StructInfo, expected: rx.StructInfo, ctx: Context) -> str:
    reason = relations.explain_incompatibility(actual, expected, ctx.shape_vars)
    return f": {reason}" if reason else ""


def _incompatible(actual: rx.StructInfo, expected: rx.StructInfo) -> type[StructInfoError]:
    """The class of the error: a wrong kind or datatype is also a TypeError."""
    same = type(actual) is type(expected)
    if isinstance(actual, rx.TensorStructInfo) and isinstance(expected, rx.TensorStructInfo):
        same = actual.dtype == expected.dtype
    return StructInfoError if same else StructInfoTypeError


def cast_hint(actual: rx.StructInfo, expected: rx.StructInfo, ctx: Context) -> str | None:
    """SI-15: the match_cast that would refine the struct info; None if it cannot succeed."""
    if isinstance(actual, rx.FuncStructInfo) or relations.provably_disjoint(
        actual, expected, ctx.shape_vars
    ):
        return None
    return f"declare what it is first: R.match_cast(..., {expected})"


_HINTS_FOR_INDICES = {
    rx.TensorStructInfo: "to index a tensor use R.take or R.strided_slice",
    rx.ShapeStructInfo: "name the dimensions of a shape, as in R.match_cast(s, R.Shape([n, m]))",
    rx.ObjectStructInfo: "declare what it is first: R.match_cast(..., R.Tuple(...))",
}


def infer_tuple_get_item(
    value: rx.Expr, index: int, span: Span | None, ctx: Context
) -> rx.StructInfo:
    """DER-32, DER-33: the struct info of field `index` of `value`.

    Errors:
        StructInfoError: the value is not known to be a tuple, or has fewer fields.
    """
    sinfo = ctx.sinfo_of(value)
    if not isinstance(sinfo, rx.TupleStructInfo):
        raise StructInfoTypeError(
            f"[{index}] needs a tuple, found {sinfo}",
            rule="DER-32",
            span=span,
            hint=_HINTS_FOR_INDICES.get(type(sinfo)),
            about=value,
        )
    if index >= len(sinfo.fields):
        raise StructInfoError(
            f"index {index} is out of bounds for a tuple of {len(sinfo.fields)} fields",
            rule="DER-33",
            span=span,
            about=value,
        )
    return sinfo.fields[index]


def check_condition(cond: rx.Expr, ctx: Context) -> None:
    """Check that a condition is a Boolean tensor of rank 0 (DER-9).

    Errors:
        StructInfoError: it is not, or not known to be.
    """
    sinfo = ctx.sinfo_of(cond)
    if isinstance(sinfo, DTensorStructInfo):
        sinfo = sinfo.tensor_sinfo  # of rank 0, so every device has it
    if isinstance(sinfo, rx.TensorStructInfo) and sinfo.ndim == 0 and sinfo.dtype.is_bool:
        return
    expected = rx.TensorStructInfo((), "bool")
    raise StructInfoTypeError(
        f"a condition is a Boolean tensor of rank 0, found {sinfo}",
        rule="DER-9",
        span=written_at(cond),
        hint=f"R.logical_and(...{'' if sinfo.dtype.is_bool else ' != 0'}, R.const(True)) makes a"
        " tensor of it"
        if isinstance(sinfo, rx.PrimStructInfo)
        else "R.where(condition, x, y) chooses for each element"
        if isinstance(sinfo, rx.TensorStructInfo) and sinfo.ndim > 0
        else "compare the number, as in x != 0"
        if isinstance(sinfo, rx.TensorStructInfo) and sinfo.ndim == 0 and not sinfo.dtype.is_void
        else cast_hint(sinfo, expected, ctx),
        about=cond,
    )


def infer_if(expr: rx.If, ctx: Context) -> rx.StructInfo:
    """DER-9, DER-10: the least upper bound of the branches.

    Errors:
        StructInfoError: the condition is not a Boolean tensor of rank 0.
    """
    check_condition(expr.cond, ctx)
    return relations.struct_info_lca(
        ctx.sinfo_of(expr.true_branch), ctx.sinfo_of(expr.false_branch), ctx.shape_vars
    )


def check_annotation(
    what: str,
    rule: str,
    actual: rx.StructInfo,
    annotation: rx.StructInfo,
    *,
    about: rx.Expr,
    ctx: Context,
) -> None:
    """Check that a value fits its annotation (DER-18, DER-20, DER-25, DER-45); warn if it may not.

    An annotation with a device places a value whose device is unknown.

    Errors:
        StructInfoError: the two are incompatible.
    """
    compatibility = _compatibility(actual, annotation, ctx)
    if compatibility is relations.Compatibility.COMPATIBLE or ctx.as_written:
        return
    placed = relations.placed_like(actual, annotation)
    if placed is not actual:
        check_annotation(what, rule, placed, annotation, about=about, ctx=ctx)
        return
    is_possible = compatibility is relations.Compatibility.POSSIBLE
    fit = "may not fit" if is_possible else "does not fit"
    reason = _because(actual, annotation, ctx)
    message = f"{what} is {actual}, which {fit} its annotation {annotation}{reason}"
    hint = cast_hint(actual, annotation, ctx)
    if is_possible:
        # A result is checked when the program runs, a variable is not.
        hint = None if rule == "DER-45" else hint
        rule = "DER-20" if rule == "DER-18" else rule
        ctx.warn(message, rule=rule, about=(about,), hint=hint)
        return
    raise _incompatible(actual, annotation)(
        message, rule=rule, span=written_at(about), hint=hint, about=about
    )


def check_match_cast(value: rx.Expr, sinfo: rx.StructInfo, ctx: Context) -> None:
    """Warn if a cast cannot succeed (DER-26)."""
    actual = ctx.sinfo_of(value)
    if not relations.provably_disjoint(actual, sinfo, ctx.shape_vars):
        return
    reason = relations.explain_disjointness(actual, sinfo, ctx.shape_vars)
    message = f"this cast of {actual} to {sinfo} always fails: {reason}"
    ctx.warn(message, rule="DER-26", about=(value,))


def signature_of(func: rx.Function) -> rx.FuncStructInfo:
    """The signature that a function declares, whose parameters have struct info (DER-1, DER-44)."""
    return function_sinfo(func, func.ret_struct_info or rx.ObjectStructInfo())


def function_sinfo(func: rx.Function, ret: rx.StructInfo) -> rx.FuncStructInfo:
    """DER-43: the signature that callers see, in which shapes that are parameters are unknown."""
    scope, shape_vars = Except(func.params), Except(())
    params = tuple(
        relations.erase_to_well_defined(p.struct_info or rx.ObjectStructInfo(), scope, shape_vars)
        for p in func.params
    )
    ret = relations.erase_to_well_defined(ret, scope, shape_vars)
    return rx.FuncStructInfo(params, ret, func.is_pure, span=func.span)


def is_pure_call(call: rx.Call, ctx: Context) -> bool:
    """True if the callee declares that this call is pure (PU-12, PU-13, PU-14, LEG-15)."""
    callee = call.op
    if isinstance(callee, Op):
        record = callee.record
        if record.calls is CallKind.DPS_PACKED:
            return is_pure_packed(call.args[0], ctx)
        return record.pure is True
    if call.attrs.get("pure") is True and isinstance(callee, rx.ExternFunc):
        return True
    return is_pure_packed(callee, ctx)


def is_pure_packed(callee: rx.Expr, ctx: Context) -> bool:
    """True if a callee, which may be a packed function, is known to be pure (PU-12, PU-13)."""
    if ctx.is_pure_callee(callee):
        return True
    if not isinstance(callee, rx.ExternFunc):
        return False
    registered: bool = hooks.call("packed_is_pure", callee.global_symbol)
    return registered


def impure_hint(call: rx.Call) -> str:
    """The treatment of an impure call in a dataflow block."""
    moved = "move the call out of the dataflow block"
    packed = [f for f in (call.op, *call.args[:1]) if isinstance(f, rx.ExternFunc)]
    if not packed:
        return moved
    name = packed[0].global_symbol
    return f'register it as pure, relaxpy.register_func("{name}", f, pure=True), or {moved}'


def check_pure_here(call: rx.Call, ctx: Context) -> None:
    """Check that a call inside a dataflow block is pure (PU-5, WF-7d).

    Errors:
        StructInfoError: it is not.
    """
    if not is_pure_call(call, ctx):
        raise StructInfoError(
            f"{callee_name(call.op)} is impure, so it cannot be called inside a dataflow block",
            rule="PU-5",
            span=call.span,
            hint=impure_hint(call),
            about=call,
        )


def check_purity(func: rx.Function, impure: rx.Call | None) -> None:
    """Check that a function makes no impure call if it is declared pure (PU-8, PU-9).

    Errors:
        StructInfoError: it makes the call `impure`.
    """
    if impure is None or not func.is_pure or func.attrs.get("relax.force_pure"):
        return
    raise StructInfoError(
        f"a function declared pure calls {callee_name(impure.op)}, which is impure",
        rule="PU-8",
        span=impure.span or func.span,
        hint="declare the function with pure=False",
        about=impure,
    )
