"""Programs compared on all targets with an oracle, for random arguments; and tests of passes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import FunctionType
from typing import Any, Final

import numpy as np

from relaxpy.errors import (
    FunctionSignatureError,
    MisuseError,
    RelaxpyError,
    check_type,
    counted,
    unexpected,
)
from relaxpy.exec.api.as_module import as_module
from relaxpy.exec.api.compile import compile
from relaxpy.exec.api.executable import Executable
from relaxpy.exec.inspect.explain import module_diff
from relaxpy.exec.runtime.values import Value
from relaxpy.ir import hooks
from relaxpy.ir.equality.structural import first_mismatch
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import BaseFunc
from relaxpy.plugins.testing.bisect import Tolerance, copied
from relaxpy.plugins.testing.random_inputs import random_inputs
from relaxpy.support.entry import user_facing
from relaxpy.support.progress import long_work

REFERENCE: Final = "reference"
TARGETS: Final = ("native", "numpy", REFERENCE)
#: The reference evaluator runs the program as written.
_PIPELINES: Final = {REFERENCE: None}


def available_targets() -> tuple[str, ...]:
    """The targets that programs run on here, from the fastest to the slowest."""
    lacks_native = hooks.call("native_obstacle") is not None
    return TARGETS[1:] if lacks_native else TARGETS


@user_facing
def check_targets(
    mod: IRModule | BaseFunc,
    *args: Value,
    oracle: Callable[..., Any] | str = REFERENCE,
    function: str | None = None,
    targets: Iterable[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    runs: int = 3,
    rtol: float | None = None,
) -> None:
    """Assert that a function computes what an oracle does, on every target.

    The function is `main`, or the only one. Without arguments, there are `runs` calls with random
    ones, from `seed` on, with dimensions as `random_inputs` draws them. The oracle is a Python
    function on arrays, or the name of a target. Where it is a target and fails, the others have to
    raise an error of the same class. Floats may differ by `rtol` times the largest element; by
    default, by 32 roundings to the narrowest datatype of the program, or by what random errors of
    4 roundings in each step of the program change, as the reference evaluator measures it. That one
    needs about ten seconds for a million multiplications, and a line on a terminal says which
    kernel runs: leave it out of `targets` for large models.

    Errors:
        AssertionError: a target computes something else.
        FunctionSignatureError: the function does not take the arguments.
        MisuseError (also TypeError, ValueError): there are no random values for a parameter, or an
            option is wrong.
        As `relaxpy.compile`.
    """
    __tracebackhide__ = True
    module = as_module(mod, "check_targets")
    chosen = available_targets() if targets is None else tuple(targets)
    executables = {target: compile(module, target) for target in chosen if target != oracle}
    if not executables:
        raise unexpected(list(chosen), "expected a target other than the oracle")
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        raise unexpected(runs, "expected a positive number of runs")
    judge: Any = oracle
    if isinstance(oracle, str):
        judged = compile(module, oracle, relax_pipeline=_PIPELINES.get(oracle, "default"))
        judge = judged[_name(judged, function)]
    elif not callable(oracle):
        raise unexpected(oracle, "expected a function or a target")
    tolerance = Tolerance(rtol, module)
    count = 1 if args else runs
    with long_work("checking targets", count * len(executables)) as work:
        for draw in range(count):
            calls: dict[str, tuple[tuple[Value, ...], Any]] = {}
            for target, executable in executables.items():
                name = _name(executable, function)
                entry = executable[name]
                if name not in calls:
                    source = module.functions_by_name.get(name, entry)
                    values = args or random_inputs(source, sizes, seed + draw)
                    _check_takes(judge, values)
                    errors = RelaxpyError if isinstance(oracle, str) else ()
                    calls[name] = values, _outcome(judge, values, errors)
                    if args and isinstance(calls[name][1], FunctionSignatureError):
                        raise calls[name][1]  # no target runs anything
                values, expected = calls[name]
                actual = _outcome(entry, values, RelaxpyError)
                tolerated = partial(tolerance.difference, name, values)
                if problem := _problem(actual, expected, tolerated):
                    origin = "" if args else f", random inputs of seed {seed + draw}"
                    shapes = ", ".join(map(_about, values))
                    raise AssertionError(
                        f"{entry.signature.name} on {target}{origin}: {problem}\ninputs: {shapes}"
                    )
                work.advance(target)


def _name(executable: Executable, function: str | None) -> str:
    """The function, or `main`, or the only one."""
    return function or (next(iter(executable)) if len(executable) == 1 else "main")


def _check_takes(oracle: Callable[..., Any], values: tuple[Value, ...]) -> None:
    """Errors: MisuseError if a Python function does not take this number of arguments."""
    if not isinstance(oracle, FunctionType):
        return
    signature = inspect.signature(oracle)
    try:
        signature.bind(*values)
    except TypeError:
        raise MisuseError(
            f"the oracle takes {signature}, found {counted(len(values), 'argument')}", about=oracle
        ) from None


def _outcome(
    function: Callable[..., Any], values: tuple[Value, ...], errors: type[RelaxpyError] | tuple[()]
) -> Any:
    """The result of a function for copies of the values, or its error."""
    try:
        return function(*map(copied, values))
    except errors as error:
        return error


def _problem(actual: Any, expected: Any, difference: Callable[[Value, Value], str]) -> str:
    """How two outcomes differ, values as `difference` says; empty if they do not."""
    if isinstance(expected, RelaxpyError):
        if type(actual) is type(expected):
            return ""
        found = "a result" if not isinstance(actual, RelaxpyError) else type(actual).__name__
        return f"found {found}, expected {type(expected).__name__}: {expected}"
    if isinstance(actual, RelaxpyError):
        return f"it raises {type(actual).__name__}: {actual}"
    if isinstance(actual, np.ndarray) and isinstance(expected, (list, tuple)):
        return f"the result is an array, but the oracle returned a {type(expected).__name__}"
    return difference(actual, _like(expected, actual))


def _like(expected: Any, actual: Any) -> Any:
    """The result of an oracle with the datatypes of another, if it computes in wider ones."""
    if isinstance(expected, (tuple, list)):
        if not isinstance(actual, tuple) or len(expected) != len(actual):
            return tuple(expected)
        return tuple(_like(e, a) for e, a in zip(expected, actual, strict=True))
    if isinstance(actual, np.ndarray):
        array = np.asarray(expected)
        same = array.dtype.kind == actual.dtype.kind or "V" in (array.dtype.kind, actual.dtype.kind)
        return array.astype(actual.dtype) if same and array.dtype != actual.dtype else array
    return expected


def _about(value: Value) -> str:
    """The datatype and shape of an array, or a value in short."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return f"{value!r:.60}"


@user_facing
def pass_diff(mod: IRModule, transform: Callable[[IRModule], IRModule]) -> str:
    """The unified diff of a module's text before and after a pass; empty if they are equal."""
    return module_diff(mod, transform(mod), "the pass")


@user_facing
def assert_transforms(
    before: IRModule,
    transform: Callable[[IRModule], IRModule],
    expected: IRModule | type[RelaxpyError],
) -> None:
    """Assert that a pass makes `expected` of a module, up to the names of variables.

    `expected` may be the class of the error that the pass raises.

    Errors:
        AssertionError: it makes something else; the message has the first difference, a diff from
            the expected program, and what the pass changed.
        MisuseError (also TypeError): `expected` is something else.
    """
    __tracebackhide__ = True
    if isinstance(expected, type) and issubclass(expected, BaseException):
        try:
            changed = pass_diff(before, transform)
        except expected:
            return
        raise AssertionError(_text(f"the pass raises no {expected.__name__}", changed=changed))
    check_type(expected, IRModule, "expected a module")
    after = transform(before)
    mismatch = first_mismatch(after, expected)
    if mismatch is not None:
        diff: str = hooks.call("program_diff", expected, after, ("as expected", "as it is"))
        raise AssertionError(_text(str(mismatch), diff, module_diff(before, after, "the pass")))


def _text(message: str, diff: str = "", changed: str = "") -> str:
    parts = [message, diff, f"the pass changed:\n{changed or 'nothing'}"]
    return "\n\n".join(filter(None, parts))
