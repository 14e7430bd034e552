"""DataflowBlockRewrite: adds and removes bindings of a dataflow block, and redirects uses."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.traverse import rebuild, rename, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import binding_vars, bound_vars, occurring_vars
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.rewrite.expr_functor import PyExprMutator
from relaxpy.ir.relax.rewrite.map_bindings import joined, remove_all_unused
from relaxpy.support.dataclass import replace


class DataflowBlockRewrite:
    """Changes to a dataflow block of a function, which themselves stay unchanged.

    `mutated_dfb` and `mutated_root_fn` are the results so far. Changes of bindings are collected,
    and applied to the function when one of these is requested. An empty block is removed from the
    function (NF-11).

    Errors:
        MisuseError (also TypeError, ValueError): the block is not in the function, or a variable is
            not bound by it.
        TransformError: a variable to be removed is used.
    """

    def __init__(self, dfb: rx.DataflowBlock, root_fn: rx.Function) -> None:
        if not isinstance(dfb, rx.DataflowBlock) or not isinstance(root_fn, rx.Function):
            raise MisuseError("a rewrite takes a DataflowBlock and the Function it belongs to")
        self._original = root_fn
        self._numbers = 0
        self._restart(root_fn, dfb)
        self._sequence()

    def _restart(self, function: rx.Function, block: rx.DataflowBlock) -> None:
        """Continue with a function and the block in it."""
        self._function, self._block = function, block
        self._bindings = list(block.bindings)
        self._changed = False

    @late_property
    def _bound(self) -> set[rx.Var]:
        """The variables that the function binds."""
        return set(bound_vars(self._function))

    @late_property
    def _names(self) -> set[str]:
        return {var.name_hint for var in self._bound}

    @late_property
    def _users(self) -> dict[rx.Var, dict[object, str]]:
        """The users of each variable, with their names in messages."""
        users: dict[rx.Var, dict[object, str]] = {}
        for node in walk(self._function):
            if isinstance(node, (rx.VarBinding, rx.MatchCast)):
                _add_uses(node, users)
            elif isinstance(node, rx.SeqExpr):
                for var in occurring_vars(node.body):
                    users.setdefault(var, {})[node] = "a result"
        return users

    def _forget_uses(self) -> None:
        """Drop the cached results for a function that has been rewritten as a whole."""
        for name in ("_bound", "_names", "_users"):
            self.__dict__.pop(name, None)

    def mutated_dfb(self) -> rx.DataflowBlock:
        """The block after all changes so far."""
        self._apply()
        return self._block

    def mutated_root_fn(self) -> rx.Function:
        """The function after all changes so far."""
        self._apply()
        return self._function

    def mutate_irmodule(self, irmodule: IRModule) -> IRModule:
        """A copy of the module with the function after all changes so far."""
        result = irmodule.clone()
        for var, func in irmodule.items():
            if func is self._original:
                result[var] = self.mutated_root_fn()
        return result

    def replace_all_uses(self, old_var: rx.Var, new_var: rx.Var) -> None:
        """Replace each use of `old_var` in the function by `new_var`; definitions stay."""
        for var in (old_var, new_var):
            if var not in self._bound:
                raise MisuseError(f"{var.name_hint} is not bound by the function", about=var)
        redirect = _Redirect(old_var, new_var, self.mutated_dfb())
        self._restart(redirect.visit_expr(self._function), redirect.block_after)
        self._forget_uses()

    def add(self, expr: rx.Expr, name: str | None = None, is_dfvar: bool = False) -> None:
        """Bind `expr` to a new variable, after the bindings that it uses.

        The default name is `tmp` and a number. Unless `is_dfvar`, the variable outlives the block.
        """
        builder = BlockBuilder(suppress_warnings=True)
        builder._begin_dataflow_block()
        value = builder.normalize(expr)
        operands = builder._end_block().bindings
        kind = rx.DataflowVar if is_dfvar else rx.Var
        var = kind(name or self._fresh_name(), builder.struct_info_of(value))
        self._insert((*operands, rx.VarBinding(var, value)))

    def _fresh_name(self) -> str:
        count = self._numbers
        while f"tmp{count}" in self._names:
            count += 1
        self._numbers = count
        return f"tmp{count}"

    def add_binding(self, binding: rx.Binding) -> None:
        """Add a binding of a variable that is not bound yet, after the bindings that it uses."""
        if binding.var is not None and binding.var in self._bound:
            raise MisuseError(
                f"variable {binding.var.name_hint} is bound already", rule="SC-9", about=binding.var
            )
        self._insert((binding,))

    def _insert(self, new: tuple[rx.Binding, ...]) -> None:
        used = {var for binding in new for var in binding_vars(binding)}
        bound = {binding.var for binding in new if binding.var is not None}
        self._names.update(var.name_hint for var in bound)
        self._bound.update(bound)
        for binding in new:
            _add_uses(binding, self._users)
        at = len(self._bindings)
        while at and self._bindings[at - 1].var not in used:
            at -= 1
        at = at or min(1, len(self._bindings))
        self._bindings[at:at] = new
        self._changed = True

    def remove_unused(self, var: rx.Var, allow_undef: bool = False) -> None:
        """Remove the binding of `var`, which nothing uses; with `allow_undef` it may be unbound."""
        at = next((i for i, b in enumerate(self._bindings) if b.var is var), None)
        if at is None:
            if allow_undef:
                return
            raise MisuseError(
                f"the block does not bind {var.name_hint}",
                hint="allow_undef=True skips a variable that it does not bind",
                about=var,
            )
        users = self._users.get(var)
        if users:
            raise TransformError(f"variable {var.name_hint} is used by {', '.join(users.values())}")
        binding = self._bindings.pop(at)
        for used in binding_vars(binding):
            self._users[used].pop(binding, None)
        self._bound.discard(var)
        self._changed = True

    def remove_all_unused(self) -> None:
        """Remove the bindings that nothing uses from the function, including other blocks."""
        block = self.mutated_dfb()
        function = remove_all_unused(self._function)
        bound = {binding.var for binding in block.bindings if binding.var is not None}
        blocks = (node for node in walk(function) if isinstance(node, rx.DataflowBlock))
        left = (b for b in blocks if any(binding.var in bound for binding in b.bindings))
        self._restart(function, next(left, rx.DataflowBlock(())))
        self._forget_uses()

    def _sequence(self) -> rx.SeqExpr:
        """The sequence that the block belongs to."""
        for node in walk(self._function):
            if isinstance(node, rx.SeqExpr) and any(block is self._block for block in node.blocks):
                return node
        raise MisuseError("the dataflow block is not in the function", about=self._block)

    def _apply(self) -> None:
        """Apply the collected changes to the function."""
        if not self._changed:
            return
        seq = self._sequence()
        new = replace(self._block, bindings=tuple(self._bindings))
        blocks: list[rx.BindingBlock] = [new if b is self._block else b for b in seq.blocks]
        if not new.bindings:
            blocks = joined(blocks)
        changed = rebuild(seq, blocks=tuple(blocks))
        self._restart(rename(self._function, {seq: changed}), new)


def _add_uses(binding: rx.Binding, users: dict[rx.Var, dict[object, str]]) -> None:
    name = binding.var.name_hint if binding.var is not None else "a cast"
    for var in binding_vars(binding):
        users.setdefault(var, {})[binding] = name


class _Redirect(PyExprMutator):
    """Replaces uses of one variable by another one; `block_after` is the result for a block."""

    def __init__(self, old: rx.Var, new: rx.Var, block: rx.DataflowBlock) -> None:
        super().__init__()
        self.old, self.new = old, new
        self.block = self.block_after = block

    @override
    def visit_var_(self, op: rx.Var) -> Any:
        return super().visit_var_(self.new if op is self.old else op)

    @override
    def visit_dataflow_block_(self, block: rx.DataflowBlock) -> rx.BindingBlock:
        result = super().visit_dataflow_block_(block)
        if block is self.block:
            assert isinstance(result, rx.DataflowBlock)
            self.block_after = result
        return result
