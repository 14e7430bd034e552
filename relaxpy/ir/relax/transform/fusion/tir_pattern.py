"""Patterns of loop nests: PrimFuncs that other PrimFuncs are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from relaxpy.dataclass import dataclass
from relaxpy.ir.core.node import Node
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Add, FloatImm, IntImm, Mul, PrimExpr, Var
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import Block, BlockRealize, For, ForKind, SeqStmt, Stmt

_IGNORED: Final = frozenset(("span", "name_hint", "annotations"))
"""Fields of statements in which a match may differ from the pattern."""
_OF_BUFFERS: Final = ("dtype", "shape", "strides", "axis_separators")
"""Fields of buffers in which a match does not differ."""
_NEUTRAL: Final = {Mul: 1, Add: 0}


@dataclass(frozen=True, slots=True)
class MatchResult:
    """A match of a pattern: the values of its scalar parameters, and the buffers of the others."""

    pattern: PrimFunc
    symbol_values: tuple[PrimExpr, ...]
    matched_buffers: tuple[Buffer, ...]


def statements_of(func: PrimFunc) -> tuple[Stmt, ...]:
    """The statements in the root block of a PrimFunc, or none if it has no root block."""
    if not isinstance(func.body, BlockRealize) or func.body.block.iter_vars:
        return ()
    body = func.body.block.body
    return body.seq if isinstance(body, SeqStmt) else (body,)


def match_statement(stmt: Stmt, patterns: Sequence[PrimFunc]) -> MatchResult | None:
    """The match of the first pattern whose loop nest is that of the statement.

    Variables and buffers may have other names, and the operands of sums and products another order.
    Scalar parameters of a pattern stand for literals. If one is a factor that the statement does
    not have, it is 1; if it is such a term, it is 0. Shape variables stand for any sizes.
    """
    for pattern in patterns:
        [nest] = statements_of(pattern)
        matcher = _Matcher(pattern)
        if matcher.nodes(stmt, nest):
            return matcher.result()
    return None


class _Matcher:
    """The comparison with one pattern: what its variables and buffers stand for so far."""

    def __init__(self, pattern: PrimFunc) -> None:
        self.pattern = pattern
        self.symbols = [p for p in pattern.params if p not in pattern.buffer_map]
        self.values: dict[Var, PrimExpr] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def result(self) -> MatchResult | None:
        """The match, if every parameter stands for something."""
        buffers = [b for b in self.pattern.buffer_map_items if b is not None]
        if not all(s in self.values for s in self.symbols) or not set(buffers) <= set(self.buffers):
            return None
        return MatchResult(
            self.pattern,
            tuple(self.values[symbol] for symbol in self.symbols),
            tuple(self.buffers[buffer] for buffer in buffers),
        )

    def nodes(self, node: object, pattern: object) -> bool:
        """Whether two fields match: nodes, sequences of them, or other values."""
        if isinstance(pattern, Var):
            return isinstance(node, PrimExpr) and self._variable(node, pattern)
        if isinstance(pattern, Buffer):
            return isinstance(node, Buffer) and self._buffer(node, pattern)
        if isinstance(pattern, (Add, Mul)):
            return isinstance(node, PrimExpr) and self._commutative(node, pattern)
        if isinstance(pattern, (tuple, list)):
            return (
                isinstance(node, (tuple, list))
                and len(node) == len(pattern)
                and all(map(self.nodes, node, pattern))
            )
        if isinstance(pattern, (IntImm, FloatImm)):
            if not isinstance(node, (IntImm, FloatImm)):
                return False
            return node.dtype == pattern.dtype and node.value == pattern.value
        if not isinstance(pattern, Node):
            return bool(node == pattern)
        if not isinstance(node, Node) or type(node) is not type(pattern):
            return False
        return _is_plain(pattern) and self._fields(node, pattern, pattern._fields)

    def _fields(self, node: Node, pattern: Node, names: Sequence[str]) -> bool:
        return _is_plain(node) and all(
            self.nodes(getattr(node, name), getattr(pattern, name))
            for name in names
            if name not in _IGNORED
        )

    def _variable(self, value: PrimExpr, var: Var) -> bool:
        if var in self.symbols and not isinstance(value, (IntImm, FloatImm)):
            return False
        if var.dtype != value.dtype and var not in self.symbols:
            return False
        known = self.values.setdefault(var, value)
        return known is value or (known.dtype == value.dtype and bool(known == value))

    def _buffer(self, buffer: Buffer, pattern: Buffer) -> bool:
        known = self.buffers.get(pattern)
        if known is not None:
            return known is buffer
        if buffer in self.buffers.values() or buffer.scope() != pattern.scope():
            return False
        self.buffers[pattern] = buffer
        return self._fields(buffer, pattern, _OF_BUFFERS)

    def _commutative(self, value: PrimExpr, pattern: Add | Mul) -> bool:
        """Whether a sum or product matches, or a value that lacks a symbol as term or factor."""
        for symbol, other in ((pattern.a, pattern.b), (pattern.b, pattern.a)):
            if isinstance(symbol, Var) and symbol in self.symbols:
                neutral = ops.const(_NEUTRAL[type(pattern)], other.dtype)
                if self._all((neutral, symbol), (value, other)):
                    return True
        if not isinstance(value, type(pattern)):
            return False
        a, b = value.a, value.b
        return any(self._all((x, pattern.a), (y, pattern.b)) for x, y in ((a, b), (b, a)))

    def _all(self, *pairs: tuple[PrimExpr, PrimExpr]) -> bool:
        """Whether all of these match; what a failed attempt assumed is forgotten."""
        values, buffers = dict(self.values), dict(self.buffers)
        if all(self.nodes(value, pattern) for value, pattern in pairs):
            return True
        self.values, self.buffers = values, buffers
        return False


def _is_plain(node: Node) -> bool:
    """Whether loops are serial and begin at 0, and blocks are evaluated for each iteration."""
    match node:
        case For():
            is_zero = isinstance(node.min, IntImm) and node.min.value == 0
            serial = node.kind == ForKind.SERIAL and node.thread_binding is None
            return is_zero and serial and not node.annotations
        case BlockRealize(predicate=predicate):
            return isinstance(predicate, IntImm) and bool(predicate.value)
        case Block():
            return not node.alloc_buffers and not node.match_buffers
        case _:
            return True
