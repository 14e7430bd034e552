"""For each operator with a gradient, the function of PyTorch that is the same, or why none is."""

from __future__ import annotations

from tests.ir.relax.op.torch_functions import elementwise, networks, tensors
from tests.ir.relax.op.torch_functions.base import NoCounterpartError, Table, torch

__all__ = ["TABLE", "NoCounterpartError", "torch"]

_WORKERS = "it moves tensors between workers or devices"
_WITHOUT: Table = {
    **dict.fromkeys((f"ccl.{n}" for n in ("allgather", "allreduce", "reduce_scatter")), _WORKERS),
    **dict.fromkeys((f"ccl.{n}_to_worker0" for n in ("gather", "reduce")), _WORKERS),
    **dict.fromkeys((f"ccl.{n}_worker0" for n in ("broadcast_from", "scatter_from")), _WORKERS),
    **dict.fromkeys((f"dist.{n}" for n in ("annotate_sharding", "redistribute")), _WORKERS),
    "dist.redistribute_replica_to_shard": _WORKERS,
    **dict.fromkeys(("hint_on_device", "to_vdevice"), _WORKERS),
    "builtin.stop_lift_params": "it is a mark for passes, and the identity",
    "call_tir_with_grad": "it calls a kernel, whatever that computes",
    "layout_transform": "tensors of PyTorch have no index maps",
    "median": "elements that equal the median share the gradient, and PyTorch chooses one",
    "reverse_sequence": "there is no such function",
    "vision.get_valid_counts": "there is no such function",
    "vision.multibox_transform_loc": "there is no such function",
    "vision.all_class_non_max_suppression": "it is a function of torchvision",
}

TABLE: Table = {**elementwise.TABLE, **networks.TABLE, **tensors.TABLE, **_WITHOUT}
