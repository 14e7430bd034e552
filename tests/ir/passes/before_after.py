"""Checks of a pass on modules written by hand: the one before it and the one after it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import relaxpy
from relaxpy import IRModule, testing
from relaxpy.ir import assert_structural_equal, structural_hash
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from tests.ir.relax.texts import module


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
        agree(before, found, *args, targets=("reference",), name=name)


def agree(
    before: IRModule,
    after: IRModule,
    *args: Any,
    targets: tuple[str, ...] = ("numpy", "reference"),
    name: str = "main",
) -> None:
    """Both modules give the same values for copies of the arguments, bit by bit."""
    for target in targets:
        results = []
        for mod in (before, after):
            copies = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
            results.append(leaves(relaxpy.compile(mod, target=target)[name](*copies)))
        for one, other in zip(*results, strict=True):
            np.testing.assert_array_equal(one, other)


def numbers(*shape: int, seed: int = 0) -> Any:
    """Small integers as floats, of which sums are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


def leaves(value: Any) -> list[Any]:
    return [x for v in value for x in leaves(v)] if isinstance(value, tuple) else [value]


def stays(step: Callable[[IRModule], IRModule], mod: IRModule) -> None:
    """The pass has nothing to do: it returns the module itself, once that is in normal form."""
    mod = relaxpy.relax.transform.Normalize()(mod)
    assert step(mod) is mod


def verify(
    step: Callable[[IRModule], IRModule],
    before: str,
    after: str,
    names: Mapping[str, Any] | None = None,
    *,
    run: bool = True,
    again: bool = True,
    **sizes: int,
) -> None:
    """The pass turns one text into the other; both give the same values for random arguments.

    If the texts are the same, it returns the module itself, as it does the second time (`again`).
    """
    mod = relaxpy.relax.transform.Normalize()(module(before, names))
    if before == after:
        assert step(mod) is mod
        return
    check(step, mod, module(after, names))
    once = step(mod)
    assert not again or step(once) is once
    same_values(mod, once, *(["reference"] if run else []), **sizes)


def same_values(before: IRModule, after: IRModule, *targets: str, **sizes: int) -> None:
    """Both modules give the same values, bit by bit, for random arguments of these dimensions."""
    for seed in range(2):
        args = testing.random_inputs(before["main"], sizes, seed)
        agree(before, after, *args, targets=targets)
