"""Bindings whose values nothing uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from relaxpy.entry import user_facing
from relaxpy.ir.relax.analysis.purity import makes_impure_call
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.expect import expect
from relaxpy.ir.relax.nodes import (
    Binding,
    BindingBlock,
    DataflowBlock,
    Expr,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Var,
)

E = TypeVar("E", bound=Expr)
Keep = Callable[[Binding, bool], bool]


@user_facing
def remove_all_unused(func: E) -> E:
    """`func` less the bindings whose variable nothing uses; itself if there are none.

    Casts and impure calls stay (PU-5 has none of these in dataflow blocks), with what they use.
    Blocks that are left empty go, and what they kept apart is joined (NF-8, NF-9, NF-11).
    """
    expect(func, Expr)
    return without_bindings(func, _nothing)


def _nothing(binding: Binding, used: bool) -> bool:
    return used or isinstance(binding, MatchCast)


def without_bindings(expr: E, keep: Keep) -> E:
    """`expr` less the bindings that `keep` does not keep, told whether their variable is used.

    Impure calls are kept anyway.
    """
    return _clean(expr, keep)  # type: ignore[return-value]


def _clean(expr: Expr, keep: Keep) -> Expr:
    match expr:
        case Function(body=body):
            new = _clean_sequence(body, keep)
            return expr if new is body else replace(expr, body=new)
        case If(true_branch=yes, false_branch=no):
            branches = _clean_sequence(yes, keep), _clean_sequence(no, keep)
            if branches[0] is yes and branches[1] is no:
                return expr
            return replace(expr, true_branch=branches[0], false_branch=branches[1])
        case SeqExpr():
            return _clean_sequence(expr, keep)
        case _:
            return expr


def _clean_sequence(seq: SeqExpr, keep: Keep) -> SeqExpr:
    used = set(occurring_vars(seq.body))
    blocks: list[BindingBlock] = []
    for block in reversed(seq.blocks):
        kept: list[Binding] = []
        for binding in reversed(block.bindings):
            left = _clean_binding(binding, used, block, keep)
            if left is not None:
                kept.append(left)
                used.update(_uses(left))
        blocks.append(_with_bindings(block, tuple(reversed(kept))))
    blocks = joined(list(reversed(blocks)))
    if len(blocks) == len(seq.blocks) and all(
        a is b for a, b in zip(blocks, seq.blocks, strict=True)
    ):
        return seq
    return replace(seq, blocks=tuple(blocks))


def _clean_binding(
    binding: Binding, used: set[Var], block: BindingBlock, keep: Keep
) -> Binding | None:
    found = binding.var is None or binding.var in used
    effects = not isinstance(block, DataflowBlock) and makes_impure_call(binding.value)
    if not effects and not keep(binding, found):
        return None
    value = _clean(binding.value, keep)
    return binding if value is binding.value else replace(binding, value=value)


def _uses(binding: Binding) -> Iterator[Var]:
    """The variables that a binding needs, in annotations, too."""
    yield from occurring_vars(binding.value)
    if binding.var is not None:
        yield from occurring_vars(binding.var)
    if isinstance(binding, MatchCast):
        yield from occurring_vars(binding.struct_info)


def _with_bindings(block: BindingBlock, bindings: tuple[Binding, ...]) -> BindingBlock:
    same = len(bindings) == len(block.bindings) and all(
        a is b for a, b in zip(bindings, block.bindings, strict=True)
    )
    return block if same else replace(block, bindings=bindings)


def joined(blocks: list[BindingBlock]) -> list[BindingBlock]:
    """The blocks without empty ones, neighbours of one kind made one (NF-8 to NF-11)."""
    filled = [block for block in blocks if block.bindings]
    result: list[BindingBlock] = []
    for _, group in groupby(filled, lambda block: isinstance(block, DataflowBlock)):
        first, *others = group
        if others:
            bindings = [b for block in (first, *others) for b in block.bindings]
            first = replace(first, bindings=tuple(bindings))
        result.append(first)
    return result
