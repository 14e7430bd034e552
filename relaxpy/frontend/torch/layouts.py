"""Results of captured graphs in the order of memory that PyTorch expects.

A program that follows may read it: `view` takes the elements as they lie in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._guards import TracingContext

from relaxpy.frontend.torch.aliases import is_whole
from relaxpy.frontend.torch.symbols import is_symbolic


def returned_count() -> int:
    """How many results of the graph that is being compiled are not for its backward graph alone."""
    context = TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    return 0 if known is None else known.num_forward_returns


def arrange(graph: Any, places: Sequence[int]) -> dict[int, list[int]]:
    """Have a graph return results at these places with their axes in the order of memory.

    The result has, by the place of each one, the permutation that restores its axes.
    """
    output = graph.output_node()
    items = list(output.args[0])
    found: dict[int, list[int]] = {}
    for k in places:
        meta = items[k].meta.get("val") if isinstance(items[k], torch.fx.Node) else None
        if not isinstance(meta, torch.Tensor) or (order := _order(meta)) is None:
            continue
        with graph.inserting_before(output):
            items[k] = graph.call_function(torch.ops.aten.permute.default, (items[k], order))
        items[k].meta["val"] = meta.permute(order)
        found[k] = [order.index(axis) for axis in range(len(order))]
    output.args = (tuple(items),)
    return found


def _order(meta: Any) -> list[int] | None:
    """The axes of a tensor in the order in which they fill its memory, if it is not theirs."""
    strides = [s.node.hint if is_symbolic(s) else s for s in meta.stride()]
    if meta.layout is not torch.strided or None in strides:
        return None
    order = sorted(range(meta.ndim), key=lambda axis: -strides[axis])
    is_other = order != sorted(order) and not is_whole(meta)
    return order if is_other and is_whole(meta.permute(order)) else None
