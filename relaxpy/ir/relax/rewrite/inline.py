"""Inlining: calls of a function are replaced by its body."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError, counted
from relaxpy.ir.core.traverse import rebuild, rename
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.relations import Compatibility, check_compatibility
from relaxpy.ir.relax.rewrite.arguments import in_place_of_parameters
from relaxpy.ir.relax.rewrite.expr_mutator import PyExprMutator
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.rewrite.replace import copy_with_new_vars, replace_variables
from relaxpy.support.dataclass import replace


def inline_functions(
    func: rx.Function, function_map: Mapping[rx.GlobalVar | str, rx.Function]
) -> rx.Function:
    """`func` with the bodies of the functions instead of calls of them, at every depth.

    An ordinary block in a body splits the dataflow block of the call. If an argument is not known
    to fit its parameter, or the result its annotation, a match_cast checks it as the call does.

    Errors:
        MisuseError (also TypeError, ValueError): a name occurs twice, or is not that of a Relax
            function.
        TransformError: a function would be inlined into itself.
    """
    table: dict[str, rx.Function] = {}
    for key, callee in function_map.items():
        name = key if isinstance(key, str) else key.name_hint
        if name in table:
            raise MisuseError(f"function {name} occurs twice in function_map")
        if not isinstance(callee, rx.Function):
            raise MisuseError(f"{name} is not a Relax function, but {type(callee).__name__}")
        table[name] = _derived(callee)
    func = _derived(func)
    after = _Inliner(table).expr(func)
    return func if after is func else _derived(after)


def _derived(func: rx.Function) -> rx.Function:
    return PyExprMutator().builder_.normalize_function(func)


class _Inliner(BindingRewriter):
    """Replaces calls by the bodies of the functions in `table`; `open` are being inlined."""

    def __init__(self, table: Mapping[str, rx.Function]) -> None:
        super().__init__()
        self.table = table
        self.open: list[str] = []

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        after = super().sequence(seq)
        return after if after is seq else _with_outputs(after)

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, rx.GlobalVar):
            return None
        name = call.op.name_hint
        return self._inlined(name, call, binding, type(block)) if name in self.table else None

    def _inlined(
        self, name: str, call: rx.Call, binding: rx.Binding, kind: type[rx.BindingBlock]
    ) -> Rewritten:
        """The blocks of a copy of the function; the last one binds the result of the call."""
        if name in self.open:
            cycle = " -> ".join([*self.open[self.open.index(name) :], name])
            raise TransformError(
                f"{name} cannot be inlined, as it calls itself: {cycle}", span=binding.span
            )
        func = copy_with_new_vars(self.table[name])
        if len(func.params) != len(call.args):
            params = counted(len(func.params), "parameter")
            raise TransformError(
                f"a call of a function of {params} has {counted(len(call.args), 'argument')}",
                rule="DER-39",
                span=call.span,
            )
        pairs = list(zip(func.params, call.args, strict=True))
        checked, images = in_place_of_parameters(pairs, func.body, call.span)
        body = replace_variables(checked, images)
        checks = len(checked.blocks) - len(func.body.blocks)
        blocks = (*(kind(b.bindings) for b in body.blocks[:checks]), *body.blocks[checks:])
        declared = unproved_result(func)
        if declared is not None:
            declared = replace_variables(declared, images)
        body = rebuild(body, blocks=blocks)
        if isinstance(binding, rx.VarBinding) and declared is None and body.body in _bound(body):
            body = rename(body, {body.body: binding.var})  # now, while the body is short
        self.open.append(name)
        body = super().sequence(body)
        self.open.pop()
        if issubclass(kind, rx.DataflowBlock) and all(isinstance(b, kind) for b in body.blocks):
            outputs = {
                var: rx.DataflowVar(var.name_hint, var.struct_info, var.span)
                for var in _bound(body)
                if not isinstance(var, rx.DataflowVar) and var is not binding.var
            }
            body = rename(body, outputs) if outputs else body
        result = body.body
        if declared is not None:
            if isinstance(binding, rx.VarBinding):
                last = rx.MatchCast(binding.var, result, declared, binding.span)
                return [*body.blocks, kind((last,))]
            check = rx.MatchCast(None, result, declared, binding.span)
            return [*body.blocks, kind((check, replace(binding, value=result)))]
        if result is binding.var:
            return body.blocks
        return [*body.blocks, kind((replace(binding, value=result),))]


def _bound(seq: rx.SeqExpr) -> set[rx.Var]:
    """The variables that a sequence binds itself."""
    bindings = (binding for block in seq.blocks for binding in block.bindings)
    return {binding.var for binding in bindings if binding.var is not None}


def unproved_result(func: rx.Function) -> rx.StructInfo | None:
    """The result annotation, if a call must check that the body satisfies it (FN-8)."""
    actual, declared = func.body.struct_info, func.ret_struct_info
    if actual is None or declared is None:
        return declared
    known = check_compatibility(actual, declared) is Compatibility.COMPATIBLE
    return None if known else declared


def _with_outputs(seq: rx.SeqExpr) -> rx.SeqExpr:
    """The sequence with a Var for each DataflowVar that is used outside its block."""
    home: dict[rx.Var, int] = {}
    for index, block in enumerate(seq.blocks):
        for binding in block.bindings:
            if isinstance(binding.var, rx.DataflowVar):
                home[binding.var] = index if isinstance(block, rx.DataflowBlock) else -1
    outputs = {var for var, index in home.items() if index == -1}
    for index, block in enumerate(seq.blocks):
        outputs.update(v for v in occurring_vars(block) if home.get(v, index) != index)
    outputs.update(v for v in occurring_vars(seq.body) if v in home)
    return rename(seq, {v: rx.Var(v.name_hint, v.struct_info, v.span) for v in outputs})
