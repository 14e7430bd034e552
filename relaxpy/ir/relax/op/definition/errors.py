"""Errors of operators, which name the operator and the operand and give a hint."""

from __future__ import annotations

from relaxpy.errors import Diagnostic, RelaxpyError, Span, StructInfoTypeError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.op.definition.parameter import Parameter
from relaxpy.ir.relax.relations.context import Context, written_at
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import replace


class Named:
    """Prefixes the messages of errors raised inside with the operator's name.

    With a call and a context, an error about struct info becomes an error about its operand.
    """

    __slots__ = ("call", "ctx", "name")

    def __init__(self, name: str, call: rx.Call | None = None, ctx: Context | None = None) -> None:
        self.name = name
        self.call = call
        self.ctx = ctx

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, RelaxpyError):
            return
        about = error.about
        if isinstance(about, rx.StructInfo) and self.call is not None and self.ctx is not None:
            about = _operand_of(about, self.call, self.ctx)
        span = written_at(about) if isinstance(about, rx.Expr) else None
        error.diagnostics = tuple(_with_name(d, self.name, span) for d in error.diagnostics)
        error.about = about


def _operand_of(sinfo: rx.StructInfo, call: rx.Call, ctx: Context) -> object:
    """The operand, or field of a tuple operand, with this struct info object; else `sinfo`."""
    fields = [f for a in call.args if isinstance(a, rx.Tuple) for f in a.fields]
    for operand in (*call.args, *fields):
        if ctx.sinfo_of(operand) is sinfo:
            return operand
    for operand in call.args:
        operand_sinfo = ctx.sinfo_of(operand)
        if isinstance(operand_sinfo, rx.TupleStructInfo) and any(
            f is sinfo for f in operand_sinfo.fields
        ):
            return operand
    return sinfo


def _with_name(diagnostic: Diagnostic, name: str, span: Span | None) -> Diagnostic:
    message, rule, span = diagnostic.message, diagnostic.rule or "DER-36", diagnostic.span or span
    message = message if message.startswith(name) else f"{name}: {message}"
    return replace(diagnostic, message=message, rule=rule, span=span)


def wrong_kind(parameter: Parameter, arg: rx.Expr, sinfo: rx.StructInfo) -> StructInfoTypeError:
    """The error of an operand that is not of the kinds that its parameter takes."""
    literal = isinstance(arg, (rx.StringImm, rx.DataTypeImm))
    vague = isinstance(sinfo, rx.ObjectStructInfo) and not literal
    hint = "declare its struct info with R.match_cast first" if vague else None
    if hint and isinstance(arg, rx.Var):
        example = f'{arg.name_hint}: R.Tensor(("n", 4), "float32")'
        hint = f"annotate the parameter, as in {example}; for another variable, {hint}"
    if isinstance(sinfo, rx.FuncStructInfo):
        hint = "call the function"
    numbers = _as_numbers(arg) if rx.TensorStructInfo in parameter.kinds else None
    if numbers is not None:
        hint = f"for a tensor of these numbers write R.const({numbers}, dtype)"
    if isinstance(sinfo, DTensorStructInfo):
        hint = "call a kernel for tensors on several devices: R.dist.call_tir(..., out_sinfo)"
    return StructInfoTypeError(
        f"{parameter.name} is {parameter.expected()}, found {arg if literal else sinfo}",
        rule="SI-15" if vague else "DER-36",
        span=written_at(arg),
        hint=hint,
        about=arg,
    )


def _as_numbers(arg: rx.Expr) -> str | None:
    """The list of Python that became the tuple `arg`, where its fields are literals."""
    fields = arg.fields if isinstance(arg, rx.Tuple) else ()
    scalars = [f.value for f in fields if isinstance(f, rx.PrimValue)]
    literals = [str(v.value) for v in scalars if isinstance(v, tir.ConstExpr)]
    return f"[{', '.join(literals)}]" if fields and len(literals) == len(fields) else None
