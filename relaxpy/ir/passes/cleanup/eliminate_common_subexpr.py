"""EliminateCommonSubexpr: common subexpressions are computed once (CSE)."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from typing_extensions import override

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.equality.structural import structural_hash
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.passes.rewrite_pass import RewritePass
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import Effects, Escapes
from relaxpy.ir.relax.analysis.variables import bind_equally
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.support.dataclass import dataclass

Table: TypeAlias = MutableMapping[object, tuple[rx.Binding, ...]]


@dataclass(frozen=True)
class EliminateCommonSubexpr(RewritePass):
    """Uses the first of equal values for later ones, whose variables become its aliases.

    This is done for pure calls and for other expressions, such as local functions, or only for
    calls with `call_only`. Two new tensors stay two if mutation could show that they are one
    (OPT-11).

    Errors:
        MisuseError (also TypeError): `call_only` is not a Boolean.
    """

    call_only: bool = False

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        def merged(func: rx.Function) -> rx.Function:
            effects = Effects(Context(), mod.functions_by_name, func)
            return _Eliminator(effects, call_only=self.call_only).expr(func)

        return merged


class _Eliminator(BindingRewriter):
    """The first bindings of values: `lasting` ones never change, `computed` ones by effects."""

    def __init__(self, effects: Effects, *, call_only: bool) -> None:
        super().__init__()
        self.effects, self.call_only = effects, call_only
        self.lasting: ChainMap[object, tuple[rx.Binding, ...]] = ChainMap()
        self.computed: ChainMap[object, tuple[rx.Binding, ...]] = ChainMap()
        self._home: dict[rx.Var, Escapes] = {}
        self._escaping: dict[rx.Var, bool] = {}
        self._firsts: dict[rx.Var, rx.Var] = {}
        #: The variables whose images are visible only in the dataflow block, and what they become
        #: outside of it.
        self._local: dict[Node, Node] = {}

    @override
    def function(self, func: rx.Function) -> rx.Function:
        outer = self.lasting, self.computed
        self.lasting, self.computed = ChainMap(), ChainMap()
        with self.effects.inside(func):
            after = super().function(func)
        self.lasting, self.computed = outer
        return after

    @contextmanager
    def _visible_inside(self) -> Iterator[list[Table]]:
        """On exit, forget the values that were bound inside, but not that there was a barrier.

        The list has the tables of those values in the end.
        """
        outer = self.lasting, self.computed
        before = self.lasting, self.computed = outer[0].new_child(), outer[1].new_child()
        inner: list[Table] = []
        yield inner
        inner += self.lasting.maps[0], self.computed.maps[0]
        self.lasting, self.computed = outer
        if inner[1] is not before[1].maps[0]:
            self.computed = ChainMap()

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        escapes = Escapes(seq, self.effects)
        for block in seq.blocks:
            self._home.update((b.var, escapes) for b in block.bindings if b.var is not None)
        with self._visible_inside():
            return super().sequence(seq)

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        if not isinstance(block, rx.DataflowBlock):
            return super().block(block)
        with self._visible_inside() as inner:
            after = super().block(block)
        for table, new in zip((self.lasting, self.computed), inner, strict=True):
            for key, bindings in new.items():
                table[key] = tuple(b for b in bindings if not isinstance(b.var, rx.DataflowVar))
        self._remap |= self._local
        self._local.clear()
        return after

    @override
    def binding(
        self, binding: rx.Binding, block: rx.BindingBlock
    ) -> Iterable[rx.Binding | rx.BindingBlock]:
        if not isinstance(binding.value, rx.Function) or not self._local:
            return super().binding(binding, block)
        hidden: dict[Node, Node] = {var: self._remap[var] for var in self._local}
        local = self._local
        self._remap |= self._local  # WF-11
        self._local = {}
        after = super().binding(binding, block)
        self._remap |= hidden
        self._local = local
        return after

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        value, var = binding.value, binding.var
        if self.effects.is_barrier(binding):
            if not isinstance(value, rx.If):  # whose branches have forgotten what they change
                self.computed = ChainMap()
            return None
        if var is None:
            return None
        if isinstance(value, rx.Var) and not isinstance(binding, rx.MatchCast):
            return None
        if self.call_only and not isinstance(value, rx.Call):
            return None
        if isinstance(value, rx.Call) and isinstance(value.op, Op) and value.op.record.allocates:
            return None  # each evaluation returns new memory, whose elements are not defined
        is_new = isinstance(binding, rx.VarBinding) and _is_new(value)
        table = self.computed if is_new else self.lasting
        key = structural_hash(value, whole_arrays=False)
        known = table.get(key, ())
        first = next((b for b in known if _is_same(b, binding)), None)
        if first is None:
            table[key] = (*known, binding)
            return None
        assert first.var is not None
        if is_new and self._both_escape(first.var, var):
            return None
        original = self.original_of(var)
        self._remap[original] = first.var
        if isinstance(first.var, rx.DataflowVar) and not isinstance(var, rx.DataflowVar):
            self._local[original] = var
            table[key] = (*known, binding)
        return rx.VarBinding(var, first.var, binding.span)

    def _both_escape(self, first: rx.Var, var: rx.Var) -> bool:
        """True if mutation may show that two variables have one value; they have it if not."""
        first = self._firsts.get(first, first)
        one, other = self._escapes(first), self._escapes(var)
        if one and other:
            return True
        self._firsts[var] = first
        self._escaping[first] = one or other
        return False

    def _escapes(self, var: rx.Var) -> bool:
        if var not in self._escaping:
            original = self.original_of(var)
            self._escaping[var] = self._home[original].escapes(original)
        return self._escaping[var]


def _is_new(value: rx.Expr) -> bool:
    """True if a value is, or has in it, a tensor that each evaluation creates (EV-2)."""
    if isinstance(value, rx.Function):  # whose constants are created when it is called
        return False
    return isinstance(value, rx.Call) or any(isinstance(node, rx.Constant) for node in walk(value))


def _is_same(first: rx.Binding, later: rx.Binding) -> bool:
    """True if two bindings have equal values, and that of the first is known as precisely."""
    if not bind_equally(first, later):
        return False
    if isinstance(first, rx.MatchCast):
        return True
    assert first.var is not None
    assert later.var is not None
    known, other = first.var.struct_info, later.var.struct_info
    return known is not None and other is not None and is_base_of(other, known)
