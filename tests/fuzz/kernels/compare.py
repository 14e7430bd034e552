"""A program several times: by the oracle, compiled to both targets, and by the evaluator."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

import relaxpy
from relaxpy.errors import ParseError, RelaxpyError, RuntimeCheckError
from relaxpy.exec.machine import tuning
from relaxpy.exec.native.machine_code.machine import obstacle
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source
from tests.fuzz.kernels.memory import Array
from tests.fuzz.kernels.oracle import Oracle, UnreadableError
from tests.fuzz.kernels.program import Call, Program, called
from tests.fuzz.kernels.semantics import Precision, RefusedError, UndefinedError, digest

TARGETS = ("numpy", "native", "reference") if obstacle() is None else ("numpy", "reference")


relaxpy.register_func(
    "tests.fuzz.digest", lambda array: digest(np.asarray(array).ravel().tolist()), override=True
)


@dataclass(frozen=True)
class Failure:
    """What went wrong with a program, in a few words that programs of one cause share."""

    kind: str
    detail: str
    call: int = 0

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


@dataclass
class Outcome:
    """What became of one program."""

    failures: list[Failure] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    """How many calls ended well, in an error, or tested nothing."""


class Hangs(BaseException):
    """A program takes far too long."""


def examine(program: Program, targets: Sequence[str] = TARGETS, *, trip: bool = True) -> Outcome:
    """Run `program` on all `targets` and compare each with the oracle."""
    outcome = Outcome()
    try:
        oracle = Oracle(program.text)
    except (UnreadableError, SyntaxError) as error:
        return Outcome([Failure("unreadable", str(error))])
    try:
        func = from_source(program.text)
    except RelaxpyError as error:
        if isinstance(error, ParseError) and "PX-3" in str(error):
            return outcome  # a division that is provably by zero
        return Outcome([Failure("refused when parsed", _first_line(error))])
    except Exception as error:
        return Outcome([Failure("bare exception when parsed", _described(error))])
    if trip:
        outcome.failures += _round_trip(func)
    executables = {}
    for target in targets:
        try:
            with _blocks(program):
                executables[target] = relaxpy.compile(called(func, program.caller), target=target)
        except RelaxpyError as error:
            outcome.failures.append(
                Failure(f"refused when compiled ({target})", _first_line(error))
            )
        except Exception as error:
            detail = _described(error)
            outcome.failures.append(Failure(f"bare exception when compiled ({target})", detail))
    for number, call in enumerate(program.calls):
        expected = _expected(oracle, call)
        outcome.calls[type(expected).__name__.removesuffix("Error").lower()] += 1
        for target, executable in executables.items():
            try:
                with _blocks(program):
                    function = executable[oracle.name]
                    if program.stack and target == "native" and isinstance(expected, Finished):
                        function = _in_a_thread(function, program.stack)
                    found = _found(target, function, call, expected)
            except Hangs:
                if isinstance(expected, UndefinedError):
                    return outcome  # a bound that was never written may be any number
                raise
            if found is not None:
                kind = f"{found.kind} ({target})"
                outcome.failures.append(Failure(kind, found.detail, number))
    return outcome


@contextmanager
def _blocks(program: Program) -> Iterator[None]:
    """Rows are divided into blocks of as many bytes as `program` states, however little work."""
    before = tuning.Blocks.TARGET, tuning.Blocks.WORTH_THREADS, tuning.Blocks.MUCH_WORK
    if program.block:
        tuning.Blocks.TARGET, tuning.Blocks.WORTH_THREADS = program.limits()
        tuning.Blocks.MUCH_WORK = 1
    try:
        yield
    finally:
        tuning.Blocks.TARGET, tuning.Blocks.WORTH_THREADS, tuning.Blocks.MUCH_WORK = before


def _in_a_thread(function: Callable[..., Any], stack: int) -> Callable[..., Any]:
    """`function` called in a thread with a stack of so many bytes."""

    def called(*args: Any) -> Any:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)

        usual = threading.stack_size(stack)
        try:
            threading.Thread(target=run, daemon=True).start()
        finally:
            threading.stack_size(usual)
        return future.result()

    return called


def _round_trip(func: Any) -> list[Failure]:
    text = func.script()
    try:
        assert isinstance(func, PrimFunc)
        assert_structural_equal(from_source(text), func)
    except RelaxpyError as error:
        return [Failure("round trip", _first_line(error))]
    except Exception as error:
        return [Failure("bare exception in round trip", _described(error))]
    return []


@dataclass(frozen=True)
class Finished:
    """A call that came to its end."""

    memories: list[Array]
    precision: Precision


Expected: TypeAlias = Finished | RefusedError | UndefinedError


def _expected(oracle: Oracle, call: Call) -> Expected:
    args, memories = call.build()
    try:
        semantics = oracle.run(args)
    except (RefusedError, UndefinedError) as error:
        return error
    return Finished(memories, semantics.precision)


def _found(
    target: str,
    function: Callable[..., Any],
    call: Call,
    expected: Finished | RefusedError | UndefinedError,
) -> Failure | None:
    """What is wrong with a call of the compiled program, if anything is."""
    args, memories = call.build()
    before = [m.copy() for m in memories]
    try:
        function(*args)
    except RelaxpyError as error:
        text = str(error)
        if isinstance(expected, Finished) and not _may_refuse(call, text):
            return Failure("legal program refused", _first_line(error))
        if target == "numpy" and _is_at_entry(text) and not all(map(_same_bits, memories, before)):
            return Failure("refused too late", _first_line(error))
        return None
    except Exception as error:
        return Failure("bare exception", _described(error))
    match expected:
        case RefusedError():
            return Failure("no error", str(expected))
        case Finished(memories=wanted, precision=precision):
            for number, (one, other) in enumerate(zip(memories, wanted, strict=True)):
                if not _agree(one, other, precision):
                    return Failure("wrong result", _difference(number, one, other))
    return None


def _may_refuse(call: Call, message: str) -> bool:
    """Whether a program that goes well may be refused: memory that it may write is read-only.

    A kernel looks at that before it begins, so that nothing is written by halves.
    """
    frozen = any(getattr(a, "frozen", False) and 0 not in a.shape for a in call.arguments)  # type: ignore[union-attr]
    return frozen and "is read-only" in message


def _is_at_entry(message: str) -> bool:
    return "is read-only" in message or "do not fit" in message or "should be" in message


def _same_bits(one: Array, other: Array) -> bool:
    return one.tobytes() == other.tobytes()


def _agree(found: Array, expected: Array, precision: Precision) -> bool:
    """Whether two arrays hold the same values, as far as the program decides them."""
    if found.dtype.kind in "biu":
        return precision.cliffs > 0 or bool(np.array_equal(found, expected))
    one, other = found.astype(np.float64), expected.astype(np.float64)
    if precision.cliffs:
        return True
    if not np.array_equal(np.isnan(one), np.isnan(other)):
        return False
    finite = np.isfinite(other)
    if not np.array_equal(
        np.where(finite | np.isnan(other), 0, one),
        np.where(finite, 0, np.nan_to_num(other, nan=0.0, posinf=np.inf, neginf=-np.inf)),
    ):
        return False
    if not precision.rounded:
        numbers = ~np.isnan(other)
        return bool(
            np.array_equal(one[numbers], other[numbers])
            and (
                precision.negative_zeros
                or np.array_equal(*map(np.signbit, (one[numbers], other[numbers])))
            )
        )
    # Each rounding moves a result by at most half a unit of the largest value met on the way.
    roundings = (precision.rounded + 1) * precision.steepest
    allowed = precision.coarsest * precision.largest * roundings
    return bool(np.all(np.abs(one[finite] - other[finite]) <= allowed))


def _difference(number: int, found: Array, expected: Array) -> str:
    return f"array {number} is {found.tolist()}, expected {expected.tolist()}"


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"


__all__ = ["Failure", "Outcome", "RuntimeCheckError", "examine"]
