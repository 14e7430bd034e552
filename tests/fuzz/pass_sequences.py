"""Random sequences of passes on random programs, each step compared with the reference.

Programs are those of `calls.py`, of `graphs.py`, and gradients of those of `differentiable.py`.
What is varied: the passes, one to six of those in `tests/exec/passes.py`, in any order; arguments,
at the ends of their ranges for passes that round nothing; the targets, which run the program after
the default pipeline.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import RelaxpyError, RelaxpyWarning
from relaxpy.plugins.cli.named_passes import public_passes
from relaxpy.plugins.testing.bisect import rounding_of
from relaxpy.plugins.testing.verify import difference
from relaxpy.relax import transform
from relaxpy.script import from_source
from relaxpy.transform import Pass, bisect, module_pass
from tests.exec.passes import REORDERING, REWRITING, ROWS
from tests.fuzz import calls, differentiable, graphs
from tests.fuzz.progress import noted

#: The passes of the table that keep datatypes and parameters, and need no compiler of the user's.
#: Those that work on dataflow blocks or kernels also run on modules without.
LEFT_OUT = {"ToMixedPrecision", "RunCodegen"}
STEPS = {name: step for name, step in ROWS.items() if name not in LEFT_OUT} | {
    f"{name}(alone)": public_passes()[name]()
    for name in sorted((REORDERING | REWRITING.keys()) & public_passes().keys() - LEFT_OUT)
}


def may_round(name: str) -> bool:
    """Whether results may be rounded otherwise after a pass: else they are the same bits."""
    return name.partition("(")[0] in REORDERING | REWRITING.keys()


def tolerance(mod: IRModule) -> float:
    """The relative error of a result: of sums of wide floats, or of some steps of narrow ones."""
    one = rounding_of(mod)
    return one * (1024 if one < 1e-6 else 16)


def step(name: str) -> Pass:
    """One pass of the table, with those that it needs before it."""
    made: Pass = module_pass(lambda mod, ctx: STEPS[name](mod), opt_level=0, name=name)
    return made


@dataclass(frozen=True)
class Sample:
    """A module, the function that is called, and arguments at the ends of ranges or not."""

    mod: IRModule
    function: str
    args: tuple[Any, ...]
    extreme: bool = False

    def copies(self) -> list[Any]:
        """The arguments as arrays of their own, which calls may overwrite."""
        return [a.copy() if isinstance(a, np.ndarray) else a for a in self.args]


def sample(seed: str) -> Sample:
    """The program of this seed."""
    rng = random.Random(seed)
    kind = rng.random()
    if kind < 0.15:
        twins = graphs.write(seed)
        if not graphs.is_decorated(twins):
            return Sample(from_source(twins.relax), "main", tuple(graphs.arguments(twins, seed)))
    elif kind < 0.3:
        return gradient(seed)
    mod, extreme = calls.write(seed), rng.random() < 0.4
    args = calls.arguments(mod, rng.randrange(1 << 30), extreme=extreme)
    return Sample(mod, "main", args, extreme)


def gradient(seed: str) -> Sample:
    """A differentiable program with its gradients by parameters."""
    written = differentiable.write(seed)
    mod = from_source(written.text())
    values = written.arguments(seed)
    floats = {name for name, (_, kind) in written.params.items() if kind is not None}
    by = [param for param in mod["main"].params if param.name_hint in floats]
    mod = transform.Gradient("main", by, written.target)(mod)
    return Sample(mod, "main_adjoint", tuple(values[p.name_hint] for p in mod["main"].params))


def run(seed: str) -> str | None:
    """What is wrong with the passes or targets of this seed; None if nothing is.

    Programs that fail for their arguments are not compared.
    """
    rng = random.Random(f"steps {seed}")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RelaxpyWarning)
        drawn = sample(seed)
        mod, function = drawn.mod, drawn.function
        names = [n for n in sorted(STEPS) if not (drawn.extreme and may_round(n))]
        is_large = any(getattr(arg, "size", 0) > 10_000 for arg in drawn.args)
        chosen = rng.choices(names, k=1 if is_large else rng.randint(1, 6))
        rtol = tolerance(mod) if any(map(may_round, chosen)) else 0.0
        steps = [step(name) for name in chosen]
        try:
            found = bisect(mod, steps, *drawn.args, function=function, rtol=rtol)
        except RelaxpyError:
            return None
        if found is not None:
            return f"passes {chosen}\narguments {drawn.args}\n{found}"
        target = rng.choice(("numpy", "native", None))
        if target is not None and not drawn.extreme:
            actual, expected = (
                relaxpy.compile(mod, target, relax_pipeline=pipeline)[function](*drawn.copies())
                for target, pipeline in ((target, "default"), ("reference", None))
            )
            if problem := difference(actual, expected, tolerance(mod)):
                return f"target {target}\narguments {drawn.args}\n{problem}\n{mod.script()}"
    return None


def check(name: str, number: int = 0) -> None:
    """Run the passes and targets of a seed.

    Errors:
        AssertionError: something is wrong with them.
    """
    with noted(sample(name).mod.script()):
        problem = run(name)
        assert problem is None, problem
