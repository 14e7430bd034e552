"""The relations that names stand for."""

from __future__ import annotations

from relaxpy.ir.relay.op.registry import Op, is_op_name
from relaxpy.ir.relay.op.relations import RELATIONS, Relation
from relaxpy.ir.relay.op.struct_info import struct_info_relation


def relation_named(name: str) -> Relation | None:
    """Return the relation that is registered under a name, or that of the operator; or None."""
    relation = RELATIONS.get(name)
    if relation is not None or not is_op_name(name):
        return relation
    record = Op.get(name).record
    return struct_info_relation(record) if record.relation is None else record.relation
