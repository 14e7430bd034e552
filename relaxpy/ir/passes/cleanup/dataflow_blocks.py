"""Passes that create, dissolve and sort dataflow blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Final, Literal, TypeAlias

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.traverse import rebuild, strongly_connected
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.cleanup.canonicalize_bindings import canonical_module
from relaxpy.ir.passes.rewrite_pass import RewritePass
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import Dependencies, Effects, calls_made, may_fail, mutates
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.call_graph import call_graph
from relaxpy.ir.relax.nodes import BindingBlock, DataflowBlock, DataflowVar, Function, SeqExpr, Var
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.relax.rewrite.map_bindings import (
    BindingRewriter,
    joined,
    needed_bindings,
    with_bindings,
)
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True)
class ConvertToDataflow(Pass):
    """Puts at least `min_size` neighbouring bindings without effects into a dataflow block.

    A dataflow block next to them takes them in, however few they are. Calls with effects, recursive
    calls and conditionals stay outside, and so do unused bindings that may fail, which a dataflow
    block would lose (OPT-8). The result is canonical, as after CanonicalizeBindings, but a cast
    that certainly fails stays, and fails where it is evaluated.

    Errors:
        MisuseError: `min_size` is not a positive integer.
    """

    min_size: int = 2

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_size < 1:
            raise MisuseError(
                f"min_size is a positive integer, found {self.min_size}", about=self.min_size
            )

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)

        graph = call_graph(mod)
        cycles = {name: group for group in strongly_connected(graph) for name in group}
        result = mod
        for var, func in mod.items():
            if isinstance(func, rx.Function):
                effects = Effects(Context(), mod.functions_by_name, func)
                recursive = cycles[var.name_hint]
                needed = needed_bindings(func, has_effect=partial(_has_effect, effects))
                converter = _Converter(effects, needed, recursive, self.min_size)
                after = converter.expr(func)
                if after is not func:
                    result = mod.clone() if result is mod else result
                    result[var] = after
        return canonical_module(result, refuse_contradictions=False)


def _has_effect(effects: Effects, binding: rx.Binding) -> bool:
    return any(not effects.is_pure(call) for call in calls_made(binding.value))


class _Converter(BindingRewriter):
    """Regroups bindings; results and effects depend on those that are `needed`.

    `recursive` are the functions that call the one being converted, `inside` the local functions
    that are being converted.
    """

    def __init__(
        self,
        effects: Effects,
        needed: Container[rx.Var | rx.Binding],
        recursive: Container[str],
        min_size: int,
    ) -> None:
        super().__init__()
        self.effects, self.needed, self.recursive = effects, needed, recursive
        self.min_size = min_size
        self.inside: list[rx.Var] = []

    @override
    def function(self, func: rx.Function) -> rx.Function:
        with self.effects.inside(func):
            return super().function(func)

    @override
    def binding(
        self, binding: rx.Binding, block: rx.BindingBlock
    ) -> Iterable[rx.Binding | rx.BindingBlock]:
        if not isinstance(binding.value, rx.Function) or binding.var is None:
            return super().binding(binding, block)
        self.inside.append(binding.var)
        after = super().binding(binding, block)
        self.inside.pop()
        return after

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        seq = super().sequence(seq)
        pairs = ((block, binding) for block in seq.blocks for binding in block.bindings)
        blocks: list[rx.BindingBlock] = []
        for fits, run in groupby(pairs, lambda pair: self._fits(*pair)):
            members = list(run)
            home = next((b for b, _ in members if isinstance(b, rx.DataflowBlock)), None)
            if home is None and fits and len(members) >= self.min_size:
                home = rx.DataflowBlock((), span=members[0][0].span)
            bindings = tuple(binding for _, binding in members)
            blocks.append(replace(home or members[0][0], bindings=bindings))
        blocks = joined(blocks)
        if [(type(b), b.bindings) for b in blocks] == [(type(b), b.bindings) for b in seq.blocks]:
            return seq
        return rebuild(seq, blocks=tuple(blocks))

    def _fits(self, block: rx.BindingBlock, binding: rx.Binding) -> bool:
        """True if a binding may be in a dataflow block, and would not be lost there."""
        if isinstance(block, rx.DataflowBlock):
            return True
        callee = binding.value.op if isinstance(binding.value, rx.Call) else None
        if callee in self.inside:
            return False  # WF-7a
        if isinstance(callee, rx.GlobalVar) and callee.name_hint in self.recursive:
            return False  # WF-7b
        is_check = binding.var is None or binding.var not in self.needed
        is_pure = mutates(binding) or not self.effects.is_barrier(binding)
        return is_pure and not (is_check and may_fail(binding))


@dataclass(frozen=True)
class ToNonDataflow(RewritePass):
    """Makes the bindings of dataflow blocks ordinary ones, whose order and errors then stay."""

    @override
    def rewriting(self, mod: IRModule) -> Callable[[Function], Function]:
        return lambda func: _Ordinary().expr(func)


class _Ordinary(BindingRewriter):
    @override
    def block(self, block: BindingBlock) -> Sequence[BindingBlock]:
        if isinstance(block, DataflowBlock):
            for binding in block.bindings:
                var = binding.var
                if isinstance(var, DataflowVar):
                    sinfo = var.struct_info and self._remapped(var.struct_info)
                    self._remap[var] = Var(var.name_hint, sinfo, var.span)
            block = BindingBlock(block.bindings, block.span)
        return super().block(block)


Graph: TypeAlias = dict[object, dict[object, None]]
_INPUT: Final = "input"
_OUTPUT: Final = "output"


@dataclass(frozen=True)
class TopologicalSort(RewritePass):
    """Sorts the bindings of dataflow blocks as a search of their dependencies visits them.

    The search starts from the parameters and follows the uses of values, or starts from the results
    and follows operands. Where it has a choice, the present order decides.

    Errors:
        MisuseError (also ValueError): there is no such order or direction.
    """

    order: Literal["depth-first", "breadth-first"] = "depth-first"
    direction: Literal["from-inputs", "from-outputs"] = "from-inputs"

    @override
    def rewriting(self, mod: IRModule) -> Callable[[Function], Function]:
        depth_first, forward = self.order == "depth-first", self.direction == "from-inputs"

        def ordered(func: Function) -> Function:
            return _Sorter(depth_first=depth_first, forward=forward).expr(func)

        return ordered


class _Sorter(BindingRewriter):
    def __init__(self, *, depth_first: bool, forward: bool) -> None:
        super().__init__()
        self.depth_first, self.forward = depth_first, forward
        self.params: tuple[Var, ...] = ()

    @override
    def function(self, func: Function) -> Function:
        outer, self.params = self.params, func.params
        after = super().function(func)
        self.params = outer
        return after

    @override
    def sequence(self, seq: SeqExpr) -> SeqExpr:
        seq = super().sequence(seq)
        if not any(isinstance(block, DataflowBlock) for block in seq.blocks):
            return seq
        position = {node: k for k, node in enumerate(self._visited(seq))}
        sign = 1 if self.forward else -1
        blocks = [
            with_bindings(b, sorted(b.bindings, key=lambda b: sign * position[b]))
            if isinstance(b, DataflowBlock)
            else b
            for b in seq.blocks
        ]
        return seq if blocks == [*seq.blocks] else rebuild(seq, blocks=tuple(blocks))

    def _visited(self, seq: SeqExpr) -> Iterable[object]:
        """The bindings of a sequence in the order in which the search visits them."""
        required, onward = _dependencies(self.params, seq)
        start: object = _INPUT
        if not self.forward:
            onward, required, start = required, onward, _OUTPUT
        missing = {node: len(nodes) for node, nodes in required.items()}
        waiting = deque([start])
        while waiting:
            node = waiting.pop() if self.depth_first else waiting.popleft()
            yield node
            ready = []
            for following in onward.get(node, ()):
                missing[following] -= 1
                if not missing[following]:
                    ready.append(following)
            # The search from the inputs visits the first user first, and that from the outputs the
            # last operand, which the reversal of the whole order then puts last.
            waiting += reversed(ready) if self.depth_first and self.forward else ready


def _dependencies(params: tuple[Var, ...], seq: SeqExpr) -> tuple[Graph, Graph]:
    """The operands and the users of the parameters and bindings of a sequence, each in order."""
    bindings = [binding for block in seq.blocks for binding in block.bindings]
    dependencies = Dependencies(bindings, params)
    nodes = (*params, *bindings)
    operands: Graph = {param: {_INPUT: None} for param in params}
    operands |= {b: dict.fromkeys(needs) for b, needs in dependencies.needs.items() if needs}
    result = dependencies.of(seq.body)
    operands[_OUTPUT] = dict.fromkeys(result)
    operands |= {node: {_INPUT: None} for node in nodes if node not in operands}
    users: Graph = {}
    for user, used in operands.items():
        for node in used:
            users.setdefault(node, {})[user] = None
    unused = [node for node in nodes if node not in users]
    users |= {node: {_OUTPUT: None} for node in unused}
    operands[_OUTPUT] = dict.fromkeys((*unused, *result))
    return operands, users
