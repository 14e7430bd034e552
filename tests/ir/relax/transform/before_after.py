"""Checks of a pass on modules written by hand: the one before it and the one after it."""

from collections.abc import Callable
from typing import Any

import numpy as np

import relaxpy
from relaxpy import IRModule
from relaxpy.ir import assert_structural_equal, structural_hash
from relaxpy.ir.relax.analysis.well_formed import check_well_formed


def check(
    step: Callable[[IRModule], IRModule],
    before: IRModule,
    after: IRModule,
    *args: Any,
    name: str = "main",
) -> None:
    """The pass turns one module into the other; both give the same value for the arguments."""
    hash_before = structural_hash(before)
    found = step(before)
    assert_structural_equal(found, after)
    assert structural_hash(before) == hash_before
    assert check_well_formed(found, normal_form=True) == []
    if args:
        results = [relaxpy.compile(mod, target="reference")[name](*args) for mod in (before, found)]
        for one, other in zip(*map(leaves, results), strict=True):
            np.testing.assert_array_equal(one, other)


def leaves(value: Any) -> list[Any]:
    return [x for v in value for x in leaves(v)] if isinstance(value, tuple) else [value]


def stays(step: Callable[[IRModule], IRModule], mod: IRModule) -> None:
    """The pass has nothing to do: it returns the module itself, once that is in normal form."""
    mod = relaxpy.relax.transform.Normalize()(mod)
    assert step(mod) is mod
