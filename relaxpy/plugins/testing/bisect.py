"""Finds the pass, the call or the rounding by which results differ.

Pipelines are bisected with the reference evaluator, calls of a machine are compared with those of
other functions, and Monte Carlo arithmetic estimates the effect of rounding.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, RelaxpyError, TransformError, unexpected
from relaxpy.exec.api.as_module import as_module
from relaxpy.exec.api.compile import compile
from relaxpy.exec.api.executable import Executable
from relaxpy.exec.inspect.explain import as_pass, module_diff
from relaxpy.exec.reference.kernel import randomly_rounded
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.core.device import Device
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext, PassInfo, PassInstrument, verify
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import BaseFunc
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.plugins.testing.random_inputs import random_inputs
from relaxpy.plugins.testing.verify import EPSILONS, assert_allclose, difference, rounding
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.screen import program_html

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
        if rtol is not None and not rtol >= 0:
            raise unexpected(rtol, "expected an rtol of at least 0")
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


@dataclass(frozen=True, slots=True, eq=False)
class Bisection:
    """The first wrong pass: its name, its position among the passes that ran, and its effect.

    `function` has the result `expected` before the pass, and `found` after it. If the pass fails or
    breaks well-formedness, `found` is the error, and there is no function.
    """

    name: str
    index: int
    before: IRModule
    after: IRModule | None
    problem: str
    function: str | None = None
    args: tuple[Value, ...] = ()
    expected: Value = None
    found: Value = None

    def diff(self) -> str:
        """Unified diffs of the functions that the pass changed."""
        return "" if self.after is None else module_diff(self.before, self.after, self.name)

    @override
    def __str__(self) -> str:
        parts = [f"pass {self.index}, {self.name}: {self.problem}"]
        if self.function is not None:
            parts.append(f"expected: {self.expected}\nfound:    {self.found}")
        return "\n".join(filter(None, (*parts, self.diff() or self.before.script())))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return program_html(html.escape(str(self)))


@user_facing
def bisect(
    mod: IRModule | BaseFunc,
    pipeline: str | Pass | Sequence[Pass],
    *args: Value,
    function: str | None = None,
    rtol: float | None = None,
    seed: int = 0,
) -> Bisection | None:
    """The first pass of a pipeline after which a function computes something else, or None.

    Before the pipeline and after each pass, the reference evaluator calls `function` (`main`, or
    the only one) with copies of `args`. Without arguments, all public functions get random ones. A
    pass that fails or breaks well-formedness is wrong, too. Once a pass changes the parameters of a
    function, it gets new random arguments. Floats may differ by `rtol` times the largest element;
    by default, by 32 roundings to the narrowest datatype of the program, or by the effect of random
    errors of 4 roundings in each step of the program.

    Errors:
        MisuseError (also TypeError): `mod` is not a module, or `pipeline` not a pass.
        UnknownNameError (also KeyError, ValueError): there is no pipeline or function of that name.
        RuntimeCheckError: the program itself fails for these arguments.
    """
    module, step = as_module(mod, "bisect"), as_pass(pipeline)
    inputs: dict[str, tuple[Value, ...]] = {}
    if args or function is not None:
        original = compile(module, "reference", relax_pipeline=None)
        name = function or (next(iter(original)) if len(original) == 1 else "main")
        entry = original[name]
        inputs[name] = args or random_inputs(entry, seed=seed)
    check = ValueCheck(inputs or None, rtol, seed)
    try:
        with PassContext.current().with_instruments([check], check=False, check_inputs=None):
            step(module)
    except ValuesDifferError as error:
        return error.bisection
    except Exception as error:  # whatever a wrong pass raises
        if not check.running:
            raise
        info, before = check.running[-1]
        problem = f"it raises {type(error).__name__}: {error}"
        return Bisection(info.name, check.finished, before, None, problem, found=error)
    return None


class ValuesDifferError(TransformError):
    """A pass has changed the results of a program; see `bisection`."""

    bisection: Bisection

    @classmethod
    def of(cls, bisection: Bisection) -> ValuesDifferError:
        """The error for a wrong pass."""
        where = f"function {bisection.function}: " if bisection.function is not None else ""
        error = cls(
            f"pass {bisection.name} changes what the program computes: {where}{bisection.problem}",
            notes=tuple(filter(None, (bisection.diff(),))),
        )
        error.bisection = bisection
        return error


@dataclass(frozen=True, slots=True, eq=False)
class _Outcome:
    """The result of the reference evaluator for a function: a value, or an error."""

    params: rx.FuncStructInfo
    args: tuple[Value, ...]
    args_after: tuple[Value, ...]
    value: Value
    failed: bool

    def is_comparable(self, other: rx.FuncStructInfo) -> bool:
        """True if a function with these parameters can be compared with this result."""
        return not self.failed and self.params == other


class ValueCheck(PassInstrument):
    """Evaluates public functions after every pass that changes the module.

    `inputs` are arguments by the names of functions. Without them, arguments are random. Nested
    passes are compared if they continue the module evaluated last.

    Errors:
        RelaxpyError: a function fails for its `inputs` before the first pass.
        ValuesDifferError: a value differs from that before the pass, or the module is ill-formed.
    """

    def __init__(
        self,
        inputs: Mapping[str, Sequence[Value]] | None = None,
        rtol: float | None = None,
        seed: int = 0,
    ) -> None:
        self._inputs, self._rtol, self._seed = inputs, rtol, seed
        self.running: list[tuple[PassInfo, IRModule]] = []
        self.finished = 0
        self._last: tuple[IRModule, dict[str, _Outcome]] | None = None
        self._has_inner: list[bool] = []

    @override
    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        depth = len(PassContext.current().running) - 1
        del self.running[depth:], self._has_inner[depth:]  # those of passes that failed
        if not depth:
            self.finished = 0
            if self._last is None or self._last[0] is not mod:
                self._last = mod, self._outcomes(mod, {})
                for outcome in self._last[1].values():
                    if outcome.failed and self._inputs is not None:
                        raise outcome.value
        if self._has_inner and self._continues(mod):
            self._has_inner[-1] = True
        self.running.append((info, mod))
        self._has_inner.append(False)

    @override
    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        _, before = self.running[-1]
        if self._last is not None and mod is not self._last[0] and self._continues(before):
            self._compare(info, before, mod, self._last[1])
        self.running.pop()
        if not self._has_inner.pop() and (not self.running or self._continues(mod)):
            self.finished += 1

    def _continues(self, mod: IRModule) -> bool:
        return self._last is not None and self._last[0] is mod

    def _compare(
        self, info: PassInfo, before: IRModule, after: IRModule, expected: dict[str, _Outcome]
    ) -> None:
        def differs(problem: str, name: str | None = None, found: Value = None) -> None:
            args, value = (expected[name].args, expected[name].value) if name else ((), None)
            fields = (info.name, self.finished, before, after, problem, name, args, value, found)
            raise ValuesDifferError.of(Bisection(*fields))

        if not isinstance(after, IRModule):
            self._last = None
            return
        try:
            verify(after)
        except RelaxpyError as error:
            differs(f"its result is ill-formed: {error}", found=error)
        found = self._outcomes(after, expected)
        tolerance = Tolerance(self._rtol, before, after)
        for name, was in expected.items():
            now = found.get(name)
            if now is None or not was.is_comparable(now.params):
                continue
            if now.failed:
                differs(f"it raises {type(now.value).__name__}: {now.value}", name, now.value)
            if problem := tolerance.difference(name, was.args, now.value, was.value):
                differs(problem, name, now.value)
            for k, pair in enumerate(zip(now.args_after, was.args_after, strict=True)):
                where = f"argument {k} after the call"
                if problem := tolerance.difference(name, was.args, *pair, where):
                    differs(problem, name, now.value)
        self._last = after, found

    def _outcomes(self, mod: IRModule, earlier: Mapping[str, _Outcome]) -> dict[str, _Outcome]:
        """The results of the public functions, for the earlier arguments if these fit."""
        if not isinstance(mod, IRModule):
            return {}
        with PassContext():  # operators are legalised at run time, without checks of this context
            try:
                executable = compile(mod, "reference", relax_pipeline=None)
            except RelaxpyError:
                return {}
            names = (n for n in executable if self._inputs is None or n in self._inputs)
            found = ((name, self._outcome(executable, name, mod, earlier)) for name in names)
            return {name: outcome for name, outcome in found if outcome is not None}

    def _outcome(
        self, executable: Executable, name: str, mod: IRModule, earlier: Mapping[str, _Outcome]
    ) -> _Outcome | None:
        func = mod.functions_by_name.get(name)
        if not isinstance(func, rx.Function) or not isinstance(func.struct_info, rx.FuncStructInfo):
            return None
        params = rx.FuncStructInfo(func.struct_info.params, rx.ObjectStructInfo())
        was = earlier.get(name)
        try:
            if was is not None and was.params == params:
                args = was.args
            elif was is None and self._inputs is not None:
                args = tuple(self._inputs[name])
            else:
                args = random_inputs(executable[name], seed=self._seed)
        except MisuseError:  # of an object, for example
            return None
        copies = tuple(map(copied, args))
        try:
            result = executable[name](*copies)
        except RelaxpyError as error:
            return _Outcome(params, args, copies, error, failed=True)
        return _Outcome(params, args, copies, result, failed=False)


class LibCompareVMInstrument:
    """Compares each kernel that a machine calls with a function of the same name.

    `mod` has these functions: a dict, an executable, or a module, whose kernels the reference
    evaluator runs. A function gets copies of the arguments; the last one is the output. A subclass
    may override `skip_instrument` and `compare`.
    """

    def __init__(
        self,
        mod: IRModule | Executable | Mapping[str, Callable[..., Any]],
        device: Device | None = None,
        verbose: bool = True,
        rtol: float = 1e-5,
        atol: float = 1e-5,
    ) -> None:
        self.mod: Any = _reference_kernels(mod) if isinstance(mod, IRModule) else mod
        self.device = device
        self.verbose = verbose
        self.counter = 0
        self.rtol = rtol
        self.atol = atol

    def compare(
        self,
        name: str,
        ref_args: Sequence[Any],
        new_args: Sequence[Any],
        ret_indices: Iterable[int],
    ) -> None:
        """Call the function with `new_args`, and compare the outputs with those of `ref_args`.

        Errors:
            AssertionError: they differ.
        """
        if self.verbose:
            print(f"[{self.counter}] comparing {name}")
        self.mod[name](*new_args)
        for index in ret_indices:
            assert_allclose(new_args[index], ref_args[index], rtol=self.rtol, atol=self.atol)
        self.counter += 1

    def skip_instrument(
        self, func: object, name: str, before_run: bool, ret_val: object, *args: object
    ) -> bool:
        """True if a call is not compared."""
        return False

    def __call__(
        self, func: object, name: str, before_run: bool, ret_val: object, *args: Any
    ) -> None:
        """Compare a call that has returned.

        Errors:
            AssertionError: the results differ.
        """
        if before_run or not args or not all(isinstance(arg, np.ndarray) for arg in args):
            return
        if name not in self.mod or self.skip_instrument(func, name, before_run, ret_val, *args):
            return
        new_args = [*(np.array(arg) for arg in args[:-1]), np.empty_like(args[-1])]
        self.compare(name, args, new_args, (len(args) - 1,))


def _reference_kernels(mod: IRModule) -> dict[str, Callable[..., Any]]:
    return {
        name: compile(IRModule({name: func.with_attr("global_symbol", name)}), "reference")[name]
        for name, func in mod.functions_by_name.items()
        if isinstance(func, PrimFunc)
    }
