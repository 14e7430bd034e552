"""What a program requires of the sizes of its inputs, beyond what their shapes say.

Where PyTorch traces a branch on sizes, it follows the one that the sizes of the example take, and
notes that the graph is right only for sizes that take it, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

import sympy
import torch

from relaxpy.dataclass import dataclass
from relaxpy.frontend.torch.symbols import Symbols, is_symbolic
from relaxpy.ir.arith import Analyzer
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax.nodes import Expr, PrimValue
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_expr import PrimExpr

#: PyTorch calls sizes from here on usual, and computes with 0 and 1 all the same.
_USUAL: Final = 2
_UNBOUNDED: Final = sys.maxsize - 1


@dataclass(frozen=True, eq=False)
class Conditions:
    """The conditions that a graph comes with, and those that are noted while it is imported."""

    env: Any
    ranges: Mapping[Any, Any]
    #: The conditions before these are checked by whoever calls the graph.
    first: int = 0

    @classmethod
    def of_graph(cls, graph: Any) -> Conditions:
        """The conditions of a captured graph, of which PyTorch checks those that it knows."""
        env = _environment(graph)
        return cls(env, {}, len(_noted(env)))

    @classmethod
    def of_exported(cls, exported: Any) -> Conditions:
        """The conditions of an exported program, which may have been read from a file."""
        env = _environment(exported.graph)
        if exported._guards_code and not _noted(env):
            checks = getattr(exported.module(), "_guards_fn", None)
            if checks is not None:  # whose calls are noted as those of the model have been
                users = exported.graph_signature.user_inputs
                nodes = {node.name: node for node in exported.graph.find_nodes(op="placeholder")}
                checks(*(nodes[name].meta["val"] if name in nodes else name for name in users))
        return cls(env, exported.range_constraints)

    @property
    def count(self) -> int:
        """How many conditions PyTorch has noted so far."""
        return len(_noted(self.env))

    def assertions(self, symbols: Symbols) -> list[Expr]:
        """Assertions of the conditions on sizes that are known.

        Errors:
            UnsupportedError: a condition has a function without a form in TIR.
        """
        analyzer = Analyzer()
        result: list[Expr] = []
        with ExitStack() as known:
            for condition in dict.fromkeys(self._all()):
                if symbols.unknown(condition):
                    continue  # on strides, which say nothing here, or on sizes found when it runs
                test = symbols.expr(condition)
                if isinstance(test, PrimExpr) and not analyzer.can_prove(test):
                    known.enter_context(analyzer.constraint_scope(test))
                    result.append(_assertion(test))
        return result

    def _all(self) -> Iterator[Any]:
        for symbol, bounds in self.ranges.items():
            if bounds.lower > _USUAL:
                yield sympy.Ge(symbol, bounds.lower)
            if bounds.upper < _UNBOUNDED:
                yield sympy.Le(symbol, bounds.upper)
        for guard in _noted(self.env)[self.first :]:
            yield self.env.replace(guard.expr)


def _environment(graph: Any) -> Any:
    """Where PyTorch notes the conditions on the sizes of a graph's inputs; None without any."""
    for node in graph.find_nodes(op="placeholder"):
        meta = node.meta.get("val")
        for size in meta.shape if isinstance(meta, torch.Tensor) else (meta,):
            if is_symbolic(size):
                return size.node.shape_env
    return None


def _noted(env: Any) -> Sequence[Any]:
    return () if env is None else env.guards


def _assertion(test: PrimExpr) -> Expr:
    sizes = list(dict.fromkeys(node for node in walk(test) if isinstance(node, tir.Var)))
    found = ", ".join(f"{size.name} = {{}}" for size in sizes)
    required = ShortText().prim(test, INT64)
    text = f"the program was exported for sizes where {required}, found {found}"
    assertion: Expr = R.assert_op(PrimValue(test), [PrimValue(size) for size in sizes], text)
    return assertion
