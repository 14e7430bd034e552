"""Bisects pipelines: finds the first pass that changes results of the reference evaluator."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from typing_extensions import override

from relaxpy.errors import MisuseError, RelaxpyError, TransformError
from relaxpy.exec.as_module import as_module
from relaxpy.exec.compile import compile
from relaxpy.exec.executable import Executable
from relaxpy.exec.explain import as_pass, module_diff
from relaxpy.exec.random_rounding import Tolerance, copied
from relaxpy.exec.runtime.random_inputs import random_inputs
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.function import BaseFunc
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext, PassInfo, PassInstrument, verify
from relaxpy.ir.relax import nodes as rx
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.screen import program_html


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
        """Return unified diffs of the functions that the pass changed."""
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
        """Return whether a function with these parameters can be compared with this result."""
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
