"""Inlining: the body of a function in place of calls of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError, counted
from relaxpy.ir.core.traverse import rebuild, rename
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
    MatchCast,
    SeqExpr,
    StructInfo,
    Var,
    VarBinding,
)
from relaxpy.ir.relax.relations import Compatibility, check_compatibility
from relaxpy.ir.relax.rewrite.arguments import in_place_of_parameters
from relaxpy.ir.relax.rewrite.expr_mutator import PyExprMutator
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.rewrite.replace import copy_with_new_vars, replace_variables


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
    after = _Inliner(table).expr(func)
    return func if after is func else _derived(after)


def _derived(func: Function) -> Function:
    return PyExprMutator().builder_.normalize_function(func)


class _Inliner(BindingRewriter):
    """Puts the functions of `table` in place of calls; `open` are those inside which it is."""

    def __init__(self, table: Mapping[str, Function]) -> None:
        super().__init__()
        self.table = table
        self.open: list[str] = []

    @override
    def sequence(self, seq: SeqExpr) -> SeqExpr:
        after = super().sequence(seq)
        return after if after is seq else _outlasting(after)

    @override
    def step(self, binding: Binding, block: BindingBlock) -> Rewritten:
        name = self._callee(binding.value)
        return None if name is None else self._instance(name, binding, type(block))

    def _callee(self, value: Expr) -> str | None:
        if isinstance(value, Call) and isinstance(value.op, GlobalVar):
            return value.op.name_hint if value.op.name_hint in self.table else None
        return None

    def _instance(self, name: str, binding: Binding, kind: type[BindingBlock]) -> Rewritten:
        """The blocks of a copy of the function, the last of which binds what `binding` does."""
        if name in self.open:
            cycle = " -> ".join([*self.open[self.open.index(name) :], name])
            raise TransformError(
                f"{name} cannot be inlined, as it calls itself: {cycle}", span=binding.span
            )
        call = binding.value
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
        checks = len(whole.blocks) - len(func.body.blocks)
        blocks = (*(kind(b.bindings) for b in body.blocks[:checks]), *body.blocks[checks:])
        promised = _unproved_result(func)
        if promised is not None:
            promised = replace_variables(promised, images)
        self.open.append(name)
        body = self.expr(rebuild(body, blocks=blocks))
        self.open.pop()
        if issubclass(kind, DataflowBlock) and all(isinstance(b, kind) for b in body.blocks):
            outputs = {
                var: DataflowVar(var.name_hint, var.struct_info, var.span)
                for var in _bound(body)
                if not isinstance(var, DataflowVar)
            }
            body = rename(body, outputs)
        result = body.body
        if promised is not None:
            if isinstance(binding, VarBinding):
                last = MatchCast(binding.var, result, promised, binding.span)
                return [*body.blocks, kind((last,))]
            check = MatchCast(None, result, promised, binding.span)
            return [*body.blocks, kind((check, replace(binding, value=result)))]
        if isinstance(binding, VarBinding) and isinstance(result, Var) and result in _bound(body):
            return rename(body, {result: binding.var}).blocks
        return [*body.blocks, kind((replace(binding, value=result),))]


def _bound(seq: SeqExpr) -> set[Var]:
    """The variables that a sequence binds itself."""
    bindings = (binding for block in seq.blocks for binding in block.bindings)
    return {binding.var for binding in bindings if binding.var is not None}


def _unproved_result(func: Function) -> StructInfo | None:
    """The result annotation, where a call has to check that the body keeps it (FN-8)."""
    found, promised = func.body.struct_info, func.ret_struct_info
    if found is None or promised is None:
        return promised
    known = check_compatibility(found, promised) is Compatibility.COMPATIBLE
    return None if known else promised


def _outlasting(seq: SeqExpr) -> SeqExpr:
    """The sequence with a Var for each DataflowVar that is needed outside its block."""
    home: dict[Var, int] = {}
    for place, block in enumerate(seq.blocks):
        for binding in block.bindings:
            if isinstance(binding.var, DataflowVar):
                home[binding.var] = place if isinstance(block, DataflowBlock) else -1
    outside = {var for var, place in home.items() if place == -1}
    for place, block in enumerate(seq.blocks):
        used = occurring_vars(block)
        outside.update(v for v in used if home.get(v, place) != place)
    outside.update(v for v in occurring_vars(seq.body) if v in home)
    return rename(seq, {v: Var(v.name_hint, v.struct_info, v.span) for v in outside})
