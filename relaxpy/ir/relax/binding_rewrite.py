"""DataflowBlockRewrite: bindings of one dataflow block added, removed and redirected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.module import IRModule
from relaxpy.ir.node import Node
from relaxpy.ir.relax.analysis.unused import joined, remove_all_unused
from relaxpy.ir.relax.analysis.variables import bound_vars, occurring_vars
from relaxpy.ir.relax.builder import BlockBuilder
from relaxpy.ir.relax.expr_mutator import PyExprMutator
from relaxpy.ir.relax.nodes import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    MatchCast,
    SeqExpr,
    Var,
    VarBinding,
)
from relaxpy.ir.traverse import rename, walk


class DataflowBlockRewrite:
    """Changes to a dataflow block of a function, each of which makes both anew.

    What the rewrite is made of stays as it is; `mutated_dfb` and `mutated_root_fn` are what it has
    become by now. A block that is left empty is no longer in the function (NF-11).

    Errors:
        MisuseError (also TypeError, ValueError): the block is not in the function, or a variable is
            not the function's.
        TransformError: a variable that is to be removed is used.
    """

    def __init__(self, dfb: DataflowBlock, root_fn: Function) -> None:
        if not isinstance(dfb, DataflowBlock) or not isinstance(root_fn, Function):
            raise MisuseError("a rewrite is made of a DataflowBlock and the Function it stands in")
        self._original = self._function = root_fn
        self._block = dfb
        self._sequence()

    def mutated_dfb(self) -> DataflowBlock:
        """The block as it is by now."""
        return self._block

    def mutated_root_fn(self) -> Function:
        """The function as it is by now."""
        return self._function

    def mutate_irmodule(self, irmodule: IRModule) -> IRModule:
        """A copy of the module in which the function is as it is by now."""
        result = irmodule.clone()
        for var, func in irmodule.items():
            if func is self._original:
                result[var] = self._function
        return result

    def replace_all_uses(self, old_var: Var, new_var: Var) -> None:
        """Let each use of `old_var` in the function mean `new_var`; definitions stay."""
        known = set(bound_vars(self._function))
        for var in (old_var, new_var):
            if var not in known:
                raise MisuseError(f"{var.name_hint} is no variable of the function", about=var)
        redirect = _Redirect(old_var, new_var, self._block)
        self._function = redirect.visit_expr(self._function)
        self._block = redirect.found

    def add(self, expr: Expr, name: str | None = None, is_dfvar: bool = False) -> None:
        """Bind `expr` to a new variable, behind what it uses.

        Without a name it is `tmp` with a number; unless `is_dfvar`, it outlives the block.
        """
        builder = BlockBuilder(quiet=True)
        builder._begin_dataflow_block()
        value = builder.normalize(expr)
        before = builder._end_block().bindings
        kind = DataflowVar if is_dfvar else Var
        var = kind(name or self._fresh_name(), builder.struct_info_of(value))
        self._insert((*before, VarBinding(var, value)))

    def _fresh_name(self) -> str:
        taken = {var.name_hint for var in bound_vars(self._function)}
        count = 0
        while f"tmp{count}" in taken:
            count += 1
        return f"tmp{count}"

    def add_binding(self, binding: Binding) -> None:
        """Add a binding of a variable that is not bound yet, behind what it uses."""
        if binding.var is not None and binding.var in bound_vars(self._function):
            raise MisuseError(
                f"variable {binding.var.name_hint} is bound already", rule="SC-9", about=binding.var
            )
        self._insert((binding,))

    def _insert(self, new: tuple[Binding, ...]) -> None:
        used = {var for binding in new for var in _uses(binding)}
        old = self._block.bindings
        places = [i + 1 for i, binding in enumerate(old) if binding.var in used]
        at = max(places, default=min(1, len(old)))
        self._replace_block((*old[:at], *new, *old[at:]))

    def remove_unused(self, var: Var, allow_undef: bool = False) -> None:
        """Remove the binding of `var`, which nothing uses; with `allow_undef` there may be none."""
        left = tuple(b for b in self._block.bindings if b.var is not var)
        if len(left) == len(self._block.bindings):
            if allow_undef:
                return
            raise MisuseError(
                f"the block does not bind {var.name_hint}",
                hint="allow_undef=True skips a variable that it does not bind",
                about=var,
            )
        users = self._users(var)
        if users:
            raise TransformError(f"variable {var.name_hint} is used by {', '.join(users)}")
        self._replace_block(left)

    def _users(self, var: Var) -> list[str]:
        """What uses a variable, in words."""
        found = []
        for node in walk(self._function):
            if isinstance(node, (VarBinding, MatchCast)) and var in _uses(node):
                found.append(node.var.name_hint if node.var is not None else "a cast")
            elif isinstance(node, SeqExpr) and var in occurring_vars(node.body):
                found.append("a result")
        return found

    def remove_all_unused(self) -> None:
        """Remove the bindings of the function that nothing uses, those of other blocks, too."""
        self._function = remove_all_unused(self._function)
        bound = {binding.var for binding in self._block.bindings if binding.var is not None}
        blocks = (node for node in walk(self._function) if isinstance(node, DataflowBlock))
        left = (b for b in blocks if any(binding.var in bound for binding in b.bindings))
        self._block = next(left, DataflowBlock(()))

    def _sequence(self) -> SeqExpr:
        """What the block stands in."""
        for node in walk(self._function):
            if isinstance(node, SeqExpr) and any(block is self._block for block in node.blocks):
                return node
        raise MisuseError("the dataflow block does not stand in the function", about=self._block)

    def _replace_block(self, bindings: tuple[Binding, ...]) -> None:
        seq = self._sequence()
        new = replace(self._block, bindings=bindings)
        blocks: list[BindingBlock] = [new if b is self._block else b for b in seq.blocks]
        if not bindings:
            blocks = joined(blocks)
        changed = replace(seq, blocks=tuple(blocks))
        self._function = rename(self._function, {seq: changed})
        self._block = new


def _uses(binding: Binding) -> Iterator[Var]:
    """The variables that a binding needs."""
    yield from occurring_vars(binding.value)
    if isinstance(binding, MatchCast):
        yield from occurring_vars(binding.struct_info)
    info: Node | None = None if binding.var is None else binding.var.struct_info
    if info is not None:
        yield from occurring_vars(info)


class _Redirect(PyExprMutator):
    """Lets one variable be meant where another was, and notes what becomes of a block."""

    def __init__(self, old: Var, new: Var, block: DataflowBlock) -> None:
        super().__init__()
        self.old, self.new = old, new
        self.block = self.found = block

    @override
    def visit_var_(self, op: Var) -> Any:
        return super().visit_var_(self.new if op is self.old else op)

    @override
    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        result = super().visit_dataflow_block_(block)
        if block is self.block:
            assert isinstance(result, DataflowBlock)
            self.found = result
        return result
