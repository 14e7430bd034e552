"""What users name and hold can be copied and pickled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

import relaxpy
from relaxpy.script import from_source, ir as I, relax as R, tir as T

#: Modules whose public objects users name in programs that they send to other processes.
MODULES = {
    "I": I,
    "R": R,
    "T": T,
    "relaxpy": relaxpy,
    **{name: getattr(relaxpy, name) for name in ("te", "tir", "topi", "relax", "transform", "nd")},
    "topi.nn": relaxpy.topi.nn,
    "topi.image": relaxpy.topi.image,
    "topi.testing": relaxpy.topi.testing,
    **{name: getattr(relaxpy.relax, name) for name in ("op", "transform", "analysis", "frontend")},
    **{f"relax.{name}": getattr(relaxpy.relax, name) for name in ("dpl", "block_builder", "expr")},
}


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The public names of a module with their objects, apart from modules."""
    for name in dir(module):
        value = getattr(module, name, None)
        is_ours = str(getattr(value, "__module__", "")).startswith("relaxpy")
        is_ours = is_ours or type(value).__module__.startswith("relaxpy")
        if not name.startswith("_") and is_ours and not isinstance(value, ModuleType):
            yield name, value


@pytest.mark.parametrize("module", MODULES)
def test_public_objects_are_pickled_and_copied(module: str) -> None:
    faults = []
    for name, value in public(MODULES[module]):
        try:
            back, *copies = (
                pickle.loads(pickle.dumps(value)),
                copy.copy(value),
                copy.deepcopy(value),
            )
        except Exception as error:
            faults.append(f"{name}: {error!r:.120}")
            continue
        if isinstance(value, (FunctionType, type)):
            faults += [f"{name} is another one" for new in (back, *copies) if new is not value]
    assert not faults, "\n".join(faults)


def test_a_namespace_of_operators_is_the_same_after_a_pickle() -> None:
    assert pickle.loads(pickle.dumps(R.nn)).relu is R.nn.relu
    assert copy.deepcopy(R.image).resize2d is R.image.resize2d


@pytest.mark.parametrize("copied", [lambda s: pickle.loads(pickle.dumps(s)), copy.deepcopy])
def test_a_copied_schedule_goes_on(copied: Any) -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            v = T.axis.spatial(4, i)
            B[v] = A[v]
"""
    schedule = relaxpy.tir.Schedule(from_source(text))
    new = copied(schedule)
    new.split(new.get_loops("B")[0], [2, 2])
    assert len(new.get_loops("B")) == 2
    assert len(schedule.get_loops(schedule.get_block("B"))) == 1
