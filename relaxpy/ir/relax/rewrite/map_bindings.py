"""The driver of passes: rewrites the bindings of a program one by one, and keeps the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import is_
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

from typing_extensions import override

from relaxpy.errors import unexpected
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import mentions_any, occurring_vars
from relaxpy.ir.relax.block_builder.normalize import is_leaf
from relaxpy.ir.relax.rewrite.map_bindings import replace_variables
from relaxpy.support.dataclass import replace

E = TypeVar("E", bound=rx.Expr)
N = TypeVar("N", bound=Node)
V = TypeVar("V", bound=rx.Var)
Rewritten: TypeAlias = rx.Binding | rx.Expr | Iterable[rx.Binding | rx.BindingBlock] | None
Step: TypeAlias = Callable[[rx.Binding, rx.BindingBlock], Rewritten]


class BindingRewriter:
    """Rewrites the bindings of an expression in the order of evaluation.

    A pass overrides `step`. If it keeps track of scopes, it extends `function`, `sequence`, `block`
    or `binding`, too. Unchanged nodes stay the same objects, and spans and names are kept.
    Struct info is dropped where that of an operand changes, and normalisation derives it (DER).
    Only nested branches and functions take recursion. `_remap` has the images of variables, and
    of shape variables if the class `_remaps_shape_vars`.
    """

    _remaps_shape_vars: ClassVar[bool] = False

    def __init__(self) -> None:
        self._remap: dict[Node, Node] = {}
        self._values: dict[rx.Expr, rx.Expr] = {}
        self._originals: dict[rx.Var, rx.Var] = {}

    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        """The replacement of a binding of `block`, whose branches or body are rewritten already.

        None or the binding itself keeps it. An expression is the new value of the variable: a leaf
        replaces later uses of the variable and the binding is removed, any other value is bound.
        Bindings, maybe none, go into the same block. Blocks stay separate.
        """
        return None

    def original_of(self, var: rx.Var) -> rx.Var:
        """The variable of the program before rewriting that a variable in `step` stands for.

        A variable is replaced where its struct info mentions others that are replaced. Tables of
        the program before rewriting have the original.
        """
        return self._originals.get(var, var)

    def value_of(self, expr: rx.Expr) -> rx.Expr | None:
        """The definition of a variable, if its operands are in scope."""
        return self._values.get(expr)

    def expr(self, expr: E) -> E:
        """The expression after rewriting of the sequences directly in it, and those in them."""
        new: rx.Expr = expr
        match expr:
            case rx.SeqExpr():
                new = self.sequence(expr)
            case rx.Function():
                new = self.function(expr)
            case rx.If(true_branch=yes, false_branch=no):
                new = _with_operands(
                    expr, true_branch=self.sequence(yes), false_branch=self.sequence(no)
                )
            case _:
                pass
        return cast("E", new)

    def function(self, func: rx.Function) -> rx.Function:
        """The function with its body rewritten."""
        return _with_operands(func, body=self.sequence(func.body))

    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        """The sequence after rewriting, with neighbouring blocks of one kind joined."""
        blocks = [new for block in seq.blocks for new in self.block(block)]
        body = self._remapped(seq.body)
        if len(blocks) != len(seq.blocks) or not all(map(is_, blocks, seq.blocks)):
            return rebuild(seq, blocks=tuple(joined(blocks)), body=body)
        return _with_operands(seq, body=body)

    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        """The blocks that replace a block: itself if none of its bindings changes."""
        blocks: list[rx.BindingBlock] = []
        run: list[rx.Binding] = []
        for binding in block.bindings:
            for new in self.binding(binding, block):
                if isinstance(new, rx.BindingBlock):
                    blocks += [replace(block, bindings=tuple(run)), new]
                    run = []
                else:
                    run.append(new)
                    if isinstance(new, rx.VarBinding):
                        self._values[new.var] = new.value
        if isinstance(block, rx.DataflowBlock):
            for binding in block.bindings:
                self._values.pop(binding.var, None)  # type: ignore[arg-type]
        return [*blocks, with_bindings(block, run)]

    def binding(
        self, binding: rx.Binding, block: rx.BindingBlock
    ) -> Iterable[rx.Binding | rx.BindingBlock]:
        """The replacement of a binding: its value is rewritten, and then `step` decides."""
        keeps = not self._remaps_shape_vars and not mentions_any(binding, self._remap)
        seen = binding if keeps else self._remapped(binding)
        if binding.var is not None and seen.var is not None and seen.var is not binding.var:
            self._remap[binding.var] = seen.var
            self._originals[seen.var] = binding.var
        value = self.expr(seen.value)
        if value is not seen.value:
            seen = replace(seen, value=value)
        new = self.step(seen, block)
        if new is None:
            return (seen,)
        if isinstance(new, (rx.VarBinding, rx.MatchCast)):
            return (new,)
        if not isinstance(new, rx.Expr):
            return _checked(new)
        if not isinstance(seen, rx.VarBinding) or not is_leaf(new) or _outlives(seen.var, new):
            return (replace(seen, value=new),)
        self._remap[seen.var] = new
        if seen is not binding and binding.var is not None:
            self._remap[binding.var] = new
        return ()

    def rederived(self, var: V, sinfo: rx.StructInfo | None = None) -> V:
        """A variable instead of this one, whose struct info is derived, if it is not `sinfo`."""
        new = type(var)(var.name_hint, sinfo, var.span)
        self._remap[var] = new
        return new

    def _remapped(self, node: N) -> N:
        """The node with the images (remap) of variables that are no longer bound."""
        return replace_variables(node, self._remap) if self._remap else node


class _MapBindings(BindingRewriter):
    def __init__(self, step: Step) -> None:
        super().__init__()
        self._step = step

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        return self._step(binding, block)


def map_bindings(expr: E, step: Step) -> E:
    """`expr` with `step(binding, block)` instead of each binding; see `BindingRewriter.step`.

    Branches and nested functions are rewritten before the binding that contains them.
    """
    return _MapBindings(step).expr(expr)


def _checked(new: Any) -> Iterable[rx.Binding | rx.BindingBlock]:
    """The bindings that a step has returned. Errors: MisuseError if it returned something else."""
    kinds = rx.VarBinding, rx.MatchCast, rx.BindingBlock
    is_list = isinstance(new, Iterable) and not isinstance(new, (str, bytes))
    items: list[Any] = list(new) if is_list else [new]
    for item in items:
        if not isinstance(item, kinds):
            raise unexpected(
                item,
                "a step returns None, an expression, a binding, or a list of bindings and blocks",
            )
    return items


def _outlives(var: rx.Var, leaf: rx.Expr) -> bool:
    """Return whether a variable is visible where one that a leaf mentions no longer is (SC-7)."""
    return not isinstance(var, rx.DataflowVar) and any(
        isinstance(used, rx.DataflowVar) for used in occurring_vars(leaf)
    )


def _with_operands(expr: E, **operands: rx.Expr) -> E:
    """`expr` with these operands: itself if it has them already."""
    same = all(operand is getattr(expr, name) for name, operand in operands.items())
    return expr if same else rebuild(expr, **operands)


def with_bindings(block: rx.BindingBlock, bindings: Sequence[rx.Binding]) -> rx.BindingBlock:
    """`block` with these bindings: itself if it has them already."""
    same = len(bindings) == len(block.bindings) and all(map(is_, bindings, block.bindings))
    return block if same else replace(block, bindings=tuple(bindings))


def joined(blocks: Iterable[rx.BindingBlock]) -> list[rx.BindingBlock]:
    """The blocks that are not empty, neighbours merged (NF-8, NF-9, NF-10, NF-11)."""
    filled = [block for block in blocks if block.bindings]
    result: list[rx.BindingBlock] = []
    for _, group in groupby(filled, lambda block: isinstance(block, rx.DataflowBlock)):
        first, *others = group
        bindings = [b for block in (first, *others) for b in block.bindings]
        result.append(replace(first, bindings=tuple(bindings)) if others else first)
    return result
