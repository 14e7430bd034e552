"""`R` for an IRBuilder: frames and statements of graph functions.

Operators and annotations are those of `relaxpy.script.relax`.
"""

from __future__ import annotations

from collections.abc import Callable as _Function, Mapping  # R.Callable is an annotation
from typing import Any as _Value  # R.Any is an annotation

from relaxpy.errors import BuilderStateError, MisuseError, UnknownAttributeError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.base_classes import check_name
from relaxpy.script import relax as _namespace
from relaxpy.script.ir_builder.base import IRBuilder, check_option, handler
from relaxpy.script.ir_builder.frames import (
    BlockFrame,
    BranchFrame,
    FunctionFrame,
    IfFrame,
    RelaxFrame,
    SeqExprFrame,
)
from relaxpy.script.ir_builder.relax import frame as frame
from relaxpy.script.language import records, relax_directives as emitting
from relaxpy.script.language.annotations import resolve
from relaxpy.script.language.records import handling
from relaxpy.script.language.wording import describe
from relaxpy.support.entry import user_facing

_ADDED = (
    *("Else", "If", "SeqExpr", "Then", "arg", "dataflow", "emit", "emit_match_cast", "emit_te"),
    *("emit_var_binding", "func_attr", "func_name", "func_ret_struct_info", "func_ret_value"),
    *("function", "match_cast", "output"),
)
__all__ = sorted({*_namespace.__all__, *_ADDED} - {"macro", "match_shape"})


def __getattr__(name: str) -> _Value:
    if name in ("macro", "match_shape"):
        hint = "use R.match_cast" if name == "match_shape" else "a Python function does the same"
        raise UnknownAttributeError(f"R.{name} is for parsed programs only", hint=hint)
    return getattr(_namespace, name)


def __dir__() -> list[str]:
    return sorted({*dir(_namespace), *_ADDED} - {"macro", "match_shape"})


# --- functions


@user_facing
def function(*, is_pure: bool = True, is_private: bool = False) -> FunctionFrame:
    """A graph function: `with R.function():`."""
    check_option(is_pure, "is_pure")
    check_option(is_private, "is_private")
    return FunctionFrame(is_pure=is_pure, is_private=is_private)


def _function(directive: str) -> FunctionFrame:
    frame = IRBuilder.current().innermost(FunctionFrame)
    if frame is None:
        raise BuilderStateError(f"{directive} belongs directly in with R.function():")
    return frame


@user_facing
def func_name(name: str) -> None:
    """Name the enclosing function.

    Errors:
        BuilderStateError: it has a name already.
    """
    check_name(name, "the name of a function")
    frame = _function("R.func_name")
    if frame.name is not None:
        raise BuilderStateError(f"the function already has the name {frame.name!r}", about=name)
    frame.name = name


@user_facing
def arg(name: str, struct_info: object) -> rx.Var:
    """Add the next parameter; it binds the shape variables that are dimensions in its struct info.

    It can be called in blocks of the function too.

    Errors:
        BuilderStateError: the function has a result, or there is none.
    """
    frame = _frame("R.arg")
    var = rx.Var(name, resolve(struct_info))
    frame.graph.parameter(var)
    return var


@user_facing
def func_attr(attrs: Mapping[str, object]) -> None:
    """Add attributes to the enclosing function.

    Errors:
        MisuseError: the function has one of them.
    """
    frame, added = _function("R.func_attr"), records.attributes(attrs)
    records.check_added_attributes(frame.attrs, added)
    pure = added.pop("pure", frame.is_pure)
    if not isinstance(pure, bool):
        raise MisuseError(f"pure is True or False, found {pure!r:.60}", rule="LEG-15", about=attrs)
    frame.is_pure = pure
    if "force_pure" in added:
        added["relax.force_pure"] = added.pop("force_pure")
    frame.attrs |= added


@user_facing
def func_ret_struct_info(ret_sinfo: object) -> None:
    """Declare the struct info of the enclosing function's result.

    Errors:
        BuilderStateError: the function has a declared result.
    """
    frame = _function("R.func_ret_struct_info")
    if frame.ret_struct_info is not None:
        raise BuilderStateError(f"the function already returns {frame.ret_struct_info}")
    frame.ret_struct_info = resolve(ret_sinfo)


@user_facing
def func_ret_value(value: object) -> None:
    """Set the result of the enclosing function, which must be last.

    Errors:
        BuilderStateError: the function has a result.
    """
    frame = _function("R.func_ret_value")
    if frame.output is not None:
        raise BuilderStateError("a function has one result", rule="AST-11", about=value)
    frame.output = rx.convert_to_expr(value)


# --- blocks and branches


def dataflow() -> BlockFrame:
    """A block of bindings without side effects: `with R.dataflow() as block:`."""
    return BlockFrame()


@user_facing
def output(*variables: rx.Var) -> None:
    """Mark the outputs of the dataflow block; they become its `output_vars`.

    Errors:
        BuilderStateError: one of them is not bound in the block, or it has outputs.
    """
    frame = IRBuilder.current().innermost(BlockFrame)
    if frame is None:
        raise BuilderStateError("R.output belongs at the end of with R.dataflow():")
    frame.check_position("R.output")
    inner = frame.graph.builder
    for var in variables:
        if not isinstance(var, rx.Var) or not inner.binds(var):
            name = var.name_hint if isinstance(var, rx.Var) else repr(var)
            raise BuilderStateError(
                f"{name:.60} is not bound in this dataflow block", rule="SC-8", about=var
            )
    frame.outputs = variables


@user_facing
def If(condition: object) -> IfFrame:
    """`with R.If(condition) as choice:`, with R.Then and R.Else in it; the result: `choice.var`."""
    return IfFrame(rx.convert_to_expr(condition))


def Then() -> BranchFrame:
    """The branch for a true condition; its value is the variable that is bound last."""
    return BranchFrame(taken=True)


def Else() -> BranchFrame:
    """The branch for a false condition; its value is the variable that is bound last."""
    return BranchFrame(taken=False)


def SeqExpr() -> SeqExprFrame:
    """A sequence of bindings, which are added to the enclosing block."""
    return SeqExprFrame()


# --- bindings


def _frame(directive: str) -> RelaxFrame:
    frame = IRBuilder.current().innermost(RelaxFrame)
    if frame is None:
        raise BuilderStateError(
            f"{directive} belongs in a graph function", hint="open one: with R.function():"
        )
    frame.check_position(directive)
    return frame


@user_facing
def emit(value: object, annotate_struct_info: object = None) -> rx.Var:
    """Bind `value` to a new variable, which `IRBuilder.name` gives a name.

    Errors:
        StructInfoError: the value is ill-formed, or does not match the annotation.
    """
    sinfo = None if annotate_struct_info is None else resolve(annotate_struct_info)
    return _apply(records.EmitForm(value, sinfo))  # type: ignore[no-any-return]


@user_facing
def emit_var_binding(value: rx.VarBinding) -> rx.Var:
    """Add a binding.

    Errors:
        StructInfoError: the value is ill-formed, or does not match the variable's struct info.
    """
    frame = _frame("R.emit_var_binding")
    with handling(None):
        binding = emitting.emit_var_binding(value)
    var = frame.graph.emit(binding.value, None, var=value.var, annotation=binding.annotation)
    IRBuilder.current().named.add(var)
    return var


@user_facing
def emit_match_cast(value: object, struct_info: object) -> rx.Var:
    """Check `value` against a struct info at run time, and bind it to a new variable.

    New shape variables that are dimensions in the struct info are bound.
    """
    form = records.MatchCastForm(value, struct_info)
    return _frame("R.emit_match_cast").graph.apply(form, None)  # type: ignore[no-any-return]


match_cast = emit_match_cast


@user_facing
def emit_te(func: _Function[..., _Value], *args: object, **kwargs: _Value) -> rx.Call:
    """A call of the kernel of `func`, for R.emit; the kernel is added to the module.

    Errors:
        BuilderStateError: there is no enclosing module.
        MisuseError: `func` does not return tensor expressions for `args`.
    """
    with handling(None):
        form = emitting.emit_te(func, *args, **kwargs)
    return _apply(form)  # type: ignore[no-any-return]


# --- the directives of relaxpy.script.relax

_DIRECTIVES: Mapping[str, _Function[..., _Value]] = {
    directive.__name__: directive
    for directive in (func_name, arg, func_ret_struct_info, func_ret_value, If, Then, Else)
}


@handler.register(records.BuilderForm)
def _apply_directive(form: records.BuilderForm) -> _Value:
    return _DIRECTIVES[form.name](*form.args)


@handler.register(records.AttrsForm)
def _apply_attributes(form: records.AttrsForm) -> _Value:
    builder = IRBuilder.current()
    if form.owner == "function" and builder.innermost(FunctionFrame) is not None:
        return func_attr(form.attrs)
    return builder.kernel(describe(form)).apply(form, None)


@handler.register(records.DataflowForm)
@handler.register(records.SeqForm)
@handler.register(records.OutputForm)
def _apply_to_block(form: records.Form) -> _Value:
    if isinstance(form, records.OutputForm):
        return output(*form.variables)  # type: ignore[arg-type]
    return dataflow() if isinstance(form, records.DataflowForm) else SeqExpr()


@handler.register(records.MatchCastForm)
@handler.register(records.MatchShapeForm)
@handler.register(records.EmitForm)
@handler.register(records.TeForm)
def _apply(form: records.Form) -> _Value:
    return _frame(form.display_name).graph.apply(form, None)
