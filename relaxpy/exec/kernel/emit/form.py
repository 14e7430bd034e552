"""The form of a plan that NumPy runs: with its own tiles, searches, and buffers to allocate."""

from __future__ import annotations

from collections.abc import Mapping

from relaxpy.dataclass import dataclass
from relaxpy.exec.kernel.emit.extremes import unused_extremes, with_searches
from relaxpy.exec.kernel.emit.short_axes import with_short_loops
from relaxpy.exec.kernel.plan.blocking import in_tiles
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import Plan, Search, Tile, runs
from relaxpy.ir.tir.buffer import Buffer


@dataclass(frozen=True, slots=True, eq=False)
class NumpyForm:
    """A plan whose buffers `allocated` the kernel allocates, apart from those of single blocks.

    The statements that compute buffers in `unused` need not run, as no search needs the extremes.
    """

    plan: Plan
    allocated: tuple[Buffer, ...]
    unused: Mapping[Buffer, Assignment]


def numpy_form(plan: Plan) -> NumpyForm:
    """The form in which NumPy runs `plan`."""
    plan = with_searches(plan)
    unused = unused_extremes(plan)
    searches = (r.statement for r in runs(plan.trees) if isinstance(r.idiom, Search))
    plan = in_tiles(plan, {*unused.values(), *searches}, for_threads=True)
    plan = with_short_loops(plan)
    without = {b for tree in plan.trees if isinstance(tree, Tile) for b in tree.local}
    without.update(unused, plan.reshaped)
    return NumpyForm(plan, tuple(b for b in plan.local if b not in without), unused)
