"""Estimates the effect of rounding on results of a program with Monte Carlo arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from relaxpy.errors import RelaxpyError
from relaxpy.exec.compile import compile
from relaxpy.exec.reference.kernel import randomly_rounded
from relaxpy.exec.runtime.differences import EPSILONS, difference, rounding
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax import nodes as rx

_SAMPLES: Final = 4
_ROUNDINGS: Final = 4
"""The roundings by which each result of arithmetic may be off in a sample."""


class Tolerance:
    """The tolerance between results of two evaluations of a function.

    Floats may differ by `rtol` times the largest element; by default, that is 32 roundings to the
    narrowest datatype of `modules`. Where the default is too small, the first of `modules` is
    evaluated again by the reference evaluator, with random errors of up to 4 roundings in the
    results of its kernels: floats, and integers that follow from floats, may differ by as much as
    this changes them.

    Rule:
        Monte Carlo arithmetic with random rounding (Parker, UCLA CSD-970002, 1997).
    """

    def __init__(self, rtol: float | None, *modules: IRModule) -> None:
        self._module = None if rtol is not None else modules[0]
        self.rtol = EPSILONS * max(map(rounding_of, modules)) if rtol is None else rtol

    def difference(
        self, name: str, args: Sequence[Value], actual: Value, expected: Value, where: str = ""
    ) -> str:
        """The first difference of two results for `args`, and the tolerance that it exceeds; or "".

        With `where`, the values compared are not the results of the function `name`.
        """
        problem = difference(actual, expected, self.rtol, where or "the result")
        samples: list[Value] = []
        if problem and self._module is not None and not where:
            for sample in _samples(self._module, name, args):
                samples.append(sample)
                problem = difference(actual, expected, self.rtol, samples=samples)
                if not problem:
                    return ""
        return problem and f"{problem}\n{self._described(len(samples))}"

    def _described(self, samples: int) -> str:
        if self._module is None:
            return f"floats may differ by {self.rtol:.3g} (rtol) times the largest element"
        default = f"{self.rtol:.3g} times the largest element"
        if samples:
            default = f"{default}, or by what random rounding changes"
        return f"floats may differ by {default}; rtol=... sets another factor"


def _samples(module: IRModule, name: str, args: Sequence[Value]) -> Iterator[Value]:
    """The result with the roundings of the program, and then others with random errors."""
    try:
        with PassContext():  # without the checks of the current one, which may have asked for this
            function = compile(module, "reference", relax_pipeline=None)[name]
        yield function(*map(copied, args))
        for seed in range(_SAMPLES):
            with randomly_rounded(seed, _ROUNDINGS):
                sample = function(*map(copied, args))
            yield sample
    except RelaxpyError:  # the reference evaluator does not run it, or not for these values
        return


def copied(value: Value) -> Value:
    """A copy of the value, whose tensors a call may overwrite."""
    if type(value) is tuple:
        return tuple(map(copied, value))
    return value.copy() if hasattr(value, "copy") and hasattr(value, "dtype") else value


def rounding_of(mod: IRModule) -> float:
    """The largest relative error of one rounding to a datatype of the module's variables."""
    sinfos = {
        var.struct_info
        for func in mod.functions_by_name.values()
        for var in occurrences(func, rx.Var)
    }
    tensors = (t for sinfo in sinfos if sinfo for t in occurrences(sinfo, rx.TensorStructInfo))
    return max((rounding(t.dtype) for t in tensors if t.dtype), default=0.0)
