"""Inlining: the body of a function in place of calls of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from relaxpy.errors import MisuseError, TransformError, counted
from relaxpy.ir.core.traverse import rename
from relaxpy.ir.relax.analysis.unused import joined
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.nodes import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    GlobalVar,
    If,
    MatchCast,
    SeqExpr,
    StructInfo,
    Var,
    VarBinding,
)
from relaxpy.ir.relax.relations import Compatibility, check_compatibility
from relaxpy.ir.relax.rewrite.arguments import in_place_of_parameters
from relaxpy.ir.relax.rewrite.expr_mutator import PyExprMutator
from relaxpy.ir.relax.rewrite.replace import copy_with_new_vars, replace_variables


@dataclass(frozen=True, slots=True)
class _Line:
    """A binding, and whether it stands in a dataflow block."""

    binding: Binding
    dataflow: bool


_Lines: TypeAlias = list[_Line]


def inline_functions(func: Function, function_map: Mapping[GlobalVar | str, Function]) -> Function:
    """`func` with the bodies of the given functions in place of calls of them, at every depth.

    An ordinary block in a body splits the dataflow block in which the call stands. Where an
    argument is not known to fit its parameter, or the result its annotation, the check that the
    call makes becomes a match_cast.

    Errors:
        MisuseError (also TypeError, ValueError): a name is given twice, or what it stands for is no
            Relax function.
        TransformError: a function would be put into itself.
    """
    table: dict[str, Function] = {}
    for key, callee in function_map.items():
        name = key if isinstance(key, str) else key.name_hint
        if name in table:
            raise MisuseError(f"function {name} is given twice")
        if not isinstance(callee, Function):
            raise MisuseError(f"{name} is no Relax function, but {type(callee).__name__}")
        table[name] = _derived(callee)
    func = _derived(func)
    body = _Inliner(table).sequence(func.body)
    if body is func.body:
        return func
    return _derived(replace(func, body=body, struct_info=None))


def _derived(func: Function) -> Function:
    return PyExprMutator().builder_.normalize_function(func)


class _Inliner:
    def __init__(self, table: Mapping[str, Function]) -> None:
        self.table = table
        self.open: list[str] = []

    def expr(self, expr: Expr) -> Expr:
        """The expression with calls inlined in all sequences that it holds."""
        match expr:
            case SeqExpr():
                return self.sequence(expr)
            case If(true_branch=yes, false_branch=no):
                new = self.sequence(yes), self.sequence(no)
                if new[0] is yes and new[1] is no:
                    return expr
                return replace(expr, true_branch=new[0], false_branch=new[1], struct_info=None)
            case Function(body=body):
                inside = self.sequence(body)
                return expr if inside is body else replace(expr, body=inside, struct_info=None)
            case _:
                return expr

    def sequence(self, seq: SeqExpr) -> SeqExpr:
        old = [
            _Line(binding, isinstance(block, DataflowBlock))
            for block in seq.blocks
            for binding in block.bindings
        ]
        lines = self.lines(old)
        if len(lines) == len(old) and all(
            a.binding is b.binding for a, b in zip(lines, old, strict=True)
        ):
            return seq
        return _assembled(lines, seq)

    def lines(self, old: Sequence[_Line]) -> _Lines:
        result: _Lines = []
        for line in old:
            callee = self._callee(line.binding.value)
            if callee is not None:
                result += self._instance(callee, line)
                continue
            value = self.expr(line.binding.value)
            same = value is line.binding.value
            result.append(
                line if same else replace(line, binding=replace(line.binding, value=value))
            )
        return result

    def _callee(self, value: Expr) -> str | None:
        if isinstance(value, Call) and isinstance(value.op, GlobalVar):
            return value.op.name_hint if value.op.name_hint in self.table else None
        return None

    def _instance(self, name: str, line: _Line) -> _Lines:
        """The lines of a copy of the function, the last of which binds what `line` does."""
        if name in self.open:
            cycle = " -> ".join([*self.open[self.open.index(name) :], name])
            raise TransformError(
                f"{name} cannot be inlined, as it calls itself: {cycle}", span=line.binding.span
            )
        call = line.binding.value
        assert isinstance(call, Call)
        func = copy_with_new_vars(self.table[name])
        if len(func.params) != len(call.args):
            params = counted(len(func.params), "parameter")
            raise TransformError(
                f"a call of a function of {params} has {counted(len(call.args), 'argument')}",
                rule="DER-39",
                span=call.span,
            )
        pairs = list(zip(func.params, call.args, strict=True))
        whole, images = in_place_of_parameters(pairs, func.body, call.span)
        body = replace_variables(whole, images)
        checks = body.blocks[: len(whole.blocks) - len(func.body.blocks)]
        promised = _unproved_result(func)
        if promised is not None:
            promised = replace_variables(promised, images)
        inner = [
            _Line(binding, line.dataflow if block in checks else isinstance(block, DataflowBlock))
            for block in body.blocks
            for binding in block.bindings
        ]
        self.open.append(name)
        inner = self.lines(inner)
        self.open.pop()
        if line.dataflow and all(other.dataflow for other in inner):
            outputs = {
                b.var: DataflowVar(b.var.name_hint, b.var.struct_info, b.var.span)
                for b in (other.binding for other in inner)
                if b.var is not None and not isinstance(b.var, DataflowVar)
            }
            inner, result = _renamed(inner, outputs, body.body)
        else:
            result = body.body
        bound = {other.binding.var for other in inner}
        target = line.binding
        if promised is not None:
            if isinstance(target, VarBinding):
                target = MatchCast(target.var, result, promised, target.span)
                return [*inner, replace(line, binding=target)]
            check = MatchCast(None, result, promised, target.span)
            inner.append(replace(line, binding=check))
        if isinstance(target, VarBinding) and isinstance(result, Var) and result in bound:
            return _renamed(inner, {result: target.var}, result)[0]
        return [*inner, replace(line, binding=replace(target, value=result))]


def _unproved_result(func: Function) -> StructInfo | None:
    """The result annotation, where a call has to check that the body keeps it (FN-8)."""
    found, promised = func.body.struct_info, func.ret_struct_info
    if found is None or promised is None:
        return promised
    known = check_compatibility(found, promised) is Compatibility.COMPATIBLE
    return None if known else promised


def _renamed(lines: _Lines, table: Mapping[Var, Var], result: Expr) -> tuple[_Lines, Expr]:
    """Lines and what they result in, with variables replaced where defined and used."""
    whole = SeqExpr((BindingBlock(tuple(line.binding for line in lines)),), result)
    after = rename(whole, table)
    bindings = after.blocks[0].bindings
    changed = [replace(a, binding=b) for a, b in zip(lines, bindings, strict=True)]
    return changed, after.body


def _assembled(lines: _Lines, seq: SeqExpr) -> SeqExpr:
    """The lines as blocks; a DataflowVar that is needed outside its block becomes a Var."""
    blocks: list[BindingBlock] = [
        (DataflowBlock if line.dataflow else BindingBlock)((line.binding,)) for line in lines
    ]
    blocks = joined(blocks)
    home: dict[Var, int] = {}
    for place, block in enumerate(blocks):
        for binding in block.bindings:
            if isinstance(binding.var, DataflowVar):
                home[binding.var] = place if isinstance(block, DataflowBlock) else -1
    outside = {var for var, place in home.items() if place == -1}
    for place, block in enumerate(blocks):
        used = occurring_vars(block)
        outside.update(v for v in used if home.get(v, place) != place)
    outside.update(v for v in occurring_vars(seq.body) if v in home)
    new = SeqExpr(tuple(blocks), seq.body, span=seq.span)
    return rename(new, {v: Var(v.name_hint, v.struct_info, v.span) for v in outside})
