"""The relations that names stand for."""

from __future__ import annotations

from relaxpy.ir.core.node import Attrs
from relaxpy.plugins.relay.op.registry import Op, is_op_name
from relaxpy.plugins.relay.op.relations import RELATIONS, Relation, RelationError, Solver
from relaxpy.plugins.relay.op.struct_info import struct_info_relation
from relaxpy.plugins.relay.ty import Type


def relation_named(name: str) -> Relation | None:
    """Return the relation that is registered under a name, or that of the operator; or None."""
    relation = RELATIONS.get(name)
    if relation is not None or not is_op_name(name):
        return relation
    record = Op.get(name).record
    if record.relation is None and record.translate is None:
        return _missing
    return struct_info_relation(record) if record.relation is None else record.relation


def _missing(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
    """The relation of a user's operator that has none."""
    raise RelationError("the operator has no type relation")
