"""Annotations that are stronger than the derived struct info."""

from __future__ import annotations

from relaxpy.errors import Diagnostic
from relaxpy.ir.relax import nodes as rx


class StrongerAnnotations:
    """Collects one diagnostic for each node with such an annotation, however often it is used."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._nodes: set[rx.Expr] = set()

    def add(
        self, node: rx.Expr, declared: rx.StructInfo, derived: rx.StructInfo, rule: str
    ) -> None:
        """Report that `node` declares more than can be derived, unless an operand does so."""
        if node in self._nodes:
            return
        self._nodes.add(node)
        if not self._repeats_operand(node):
            self.diagnostics.append(
                Diagnostic(
                    f"this {type(node).__name__} declares the struct info {declared}, "
                    f"derivation gives {derived}",
                    rule,
                    node.span,
                    "leave struct_info out when you build or replace a node, it is derived",
                )
            )

    def add_form(self, call: rx.Call) -> None:
        """Report that the normalisation of its operator would change `call`."""
        if call not in self._nodes:
            self._nodes.add(call)
            self.diagnostics.append(
                Diagnostic(
                    f"the normalisation of {call.op} changes this call",
                    span=call.span,
                    hint="relax.transform.Normalize applies it",
                )
            )

    def _repeats_operand(self, node: rx.Expr) -> bool:
        """True if the annotation of `node` follows from that of an operand that was reported."""
        reported = self._nodes
        match node:
            case rx.Tuple(fields=fields):
                return node.has_field_sinfos and not reported.isdisjoint(fields)
            case rx.TupleGetItem(tuple_value=value, index=index) if value in reported:
                return node.struct_info == rx.TupleGetItem(value, index).struct_info
            case rx.SeqExpr(body=body):
                return body in reported and node.struct_info == body.struct_info
            case rx.If(true_branch=yes, false_branch=no):
                return any(s in reported and node.struct_info == s.struct_info for s in (yes, no))
            case rx.Function(body=body, struct_info=rx.FuncStructInfo(ret=ret)):
                return body in reported and ret == body.struct_info
            case _:
                return False
