"""The Relax expression of a call of an operator."""

from __future__ import annotations

from typing import Any

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.plugins.relay.op.registry import OpRecord
from relaxpy.plugins.relay.ty import Type


def translated(
    builder: BlockBuilder,
    record: OpRecord,
    args: tuple[rx.Expr, ...],
    attrs: Attrs,
    ty: Type | None,
) -> rx.Expr:
    """Return the Relax expression of a call of an operator, whose attributes are complete.

    Errors:
        RuntimeCheckError: the operator has neither a translation nor a computation.
    """
    if record.translate is not None:
        return record.translate(args, attrs)
    compute = record.compute
    if compute is None:
        raise RuntimeCheckError(
            f"the operator {record.name} has no implementation",
            rule="RLY-28",
            hint=f'register one: relay.op.register_compute("{record.name}", function)',
        )

    def tensors(*operands: Any) -> Any:
        results = list(compute(attrs, operands, ty))
        return results[0] if len(results) == 1 else results

    return builder.call_te(tensors, *args)
