"""Operators of TVM's compiler that keep their operand: annotations, devices, checkpoints."""

from __future__ import annotations

from typing import Final

from relaxpy.ir.relay.op.define import define

_ATTRIBUTES: Final[dict[str, dict[str, object]]] = {
    "annotation.bitpack_start": {},
    "annotation.bitpack_end": {},
    "annotation.stop_fusion": {},
    "annotation.checkpoint": {},
    "annotation.force_cast": {},
    "annotation.cast_hint": {"dtype": ""},
    "annotation.compiler_begin": {"compiler": ""},
    "annotation.compiler_end": {"compiler": ""},
    "on_device": {"device_type": 0, "constrain_result": False, "constrain_body": True},
    "device_copy": {"src_dev_type": 0, "dst_dev_type": 0},
}
for _name, _attributes in _ATTRIBUTES.items():
    define(_name, "data", lambda args, attrs: args[0], _attributes, relation="Identity")
