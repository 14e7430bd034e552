"""Calls of packed functions that have plans, as steps of native functions."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError, RuntimeCheckError
from relaxpy.exec.machine.fast_paths import PACKED_CALLS
from relaxpy.exec.program.graph.sessions import ARGUMENTS, Plan, Session
from relaxpy.exec.runtime.registry import provided, remove_global_func
from relaxpy.exec.runtime.values import Part
from relaxpy.script import from_source
from relaxpy.support.dataclass import replace
from tests.exec.program.test_outline import native_functions

pytest.importorskip("llvmlite")

Array = np.ndarray[Any, Any]


class Box:
    """An object of packed functions: what it has to do in a call, and the calls that it saw."""

    def __init__(self, bias: float = 0, event: Any = None) -> None:
        self.bias, self.event = bias, event
        self.seen: list[int] = []
        self.lengths: set[int] = set()
        self.valid = np.array([1])
        self.rows = 4

    def called(self, number: int, factor: float, x: Array, out: Array) -> None:
        self.seen.append(number)
        self.lengths.add(len(x))
        bias = self.bias
        if self.event is not None:
            self.event(self, number)
        out[...] = x * np.float32(factor) + np.float32(number + bias)

    def plan(self, forms: Any, calls: Sequence[Any]) -> Plan:
        tensors = [np.zeros((self.rows, *shape), dtype) for dtype, shape in forms]
        columns = [[*column] for column in zip(*calls, strict=True)]
        return Plan(self.valid, self.rows, tensors, ((self.called, (*columns, *tensors)),))


@pytest.fixture(autouse=True)
def boxed() -> Iterator[None]:
    """A packed function of boxes that has plans."""

    def plan(box: object, forms: Any, calls: Any) -> Plan | None:
        return box.plan(forms, calls) if isinstance(box, Box) else None

    @provided("test.boxed", pure=True, planned=plan)
    def call(box: Any, number: int, factor: float, x: Any, out: Any) -> None:
        if not isinstance(box, Box):
            raise RuntimeCheckError("it is no box")
        box.called(number, factor, x, out)

    yield
    remove_global_func("test.boxed")


def call(box: str, number: int, x: str, rows: str = "n") -> str:
    return (
        f'R.call_dps_packed("test.boxed", ({box}, R.prim_value({number}), R.prim_value(0.5), {x}),'
        f' out_sinfo=R.Tensor(({rows}, 3), "float32"))'
    )


TENSOR = 'R.Tensor(("n", 3), "float32")'
LINE = f"""
@R.function
def main(box: R.Object, other: R.Object, x: {TENSOR}) -> {TENSOR}:
    with R.dataflow():
        y = R.add(x, x)
        a = {call("box", 2, "y")}
        b = {call("other", 3, "a")}
        c = {call("box", 4, "b")}
        w = R.add(c, x)
        R.output(w)
    return w
"""
BRANCH = f"""
@R.function
def main(box: R.Object, other: R.Object, x: {TENSOR}) -> {TENSOR}:
    y = {call("box", 1, "x")}
    if R.less(R.sum(y), R.const(0.0)):
        z = {call("box", 2, "y")}
    else:
        z = {call("other", 3, "y")}
    return z
"""
LOOP = f"""
@R.function
def main(box: R.Object, other: R.Object, x: {TENSOR}) -> {TENSOR}:
    n = T.int64()
    @R.function
    def loop(i: R.Tensor((), "int64"), y: R.Tensor((n, 3), "float32")
             ) -> R.Tensor((n, 3), "float32"):
        if R.less(i, R.const(5, "int64")):
            a = {call("box", 7, "y")}
            b = {call("other", 8, "a")}
            z = loop(R.add(i, R.const(1, "int64")), b)
        else:
            z = y
        return z
    first = R.add(x, x)
    w = loop(R.const(0, "int64"), first)
    return w
"""
PROGRAMS = {"line": LINE, "branch": BRANCH, "loop": LOOP}
X = np.arange(12, dtype=np.float32).reshape(4, 3) - 5


@pytest.fixture(params=PROGRAMS)
def programs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """A program as a native function, and by the text."""
    mod = from_source(PROGRAMS[request.param])
    assert native_functions(mod, monkeypatch) == ["main"]
    with PACKED_CALLS.off():
        text = relaxpy.compile(mod, "native")
    return relaxpy.compile(mod, "native"), text


@pytest.mark.parametrize("x", [X, -X, X[:, ::-1]], ids=["negative", "positive", "strided"])
def test_results_and_calls_are_those_of_the_text(programs: tuple[Any, Any], x: Array) -> None:
    found = []
    for program in programs:
        box, other = Box(0.5), Box(-3)
        results = [program["main"](box, other, each).tobytes() for each in (x, x + 1)]
        found.append((results, box.seen, other.seen, program["main"](box, box, x).tobytes()))
    assert found[0] == found[1]


def test_what_a_plan_does_not_fit_is_left_to_the_text(programs: tuple[Any, Any]) -> None:
    """Other numbers of rows, objects, arguments."""
    native, text = programs
    box, other = Box(), object()
    for rows in (3, 5, 0):
        x = np.resize(X, (rows, 3))
        box.lengths.clear()
        expected = text["main"](Box(), Box(), x)
        np.testing.assert_array_equal(native["main"](box, box, x), expected)
        assert box.lengths == {rows}
    messages = []
    for program in programs:
        found = []
        for args in [(other, other, X), (box, Box()), (box, Box(), X[0]), (box, Box(), X, X)]:
            with pytest.raises(RelaxpyError) as caught:
                program["main"](*args)
            found.append(str(caught.value))
        messages.append(found)
    assert messages[0] == messages[1]


class Stopped(BaseException):
    """Ends a call."""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Stopped, MemoryError])
def test_exceptions_end_a_call(programs: tuple[Any, Any], error: Any) -> None:
    """The text does not run again: a handler of signals may have raised them."""
    native, text = programs
    box, other = Box(), Box()
    expected = text["main"](box, other, X)
    for chosen in range(len(box.seen + other.seen)):
        for program in programs:
            count = iter(range(chosen))
            stopping = partial(stop, count, error)
            first, second = Box(event=stopping), Box(event=stopping)
            with pytest.raises(error, match="for a reason"):
                program["main"](first, second, X)
            assert len(first.seen + second.seen) == chosen + 1
        np.testing.assert_array_equal(native["main"](Box(), Box(), X), expected)


def stop(count: Iterator[int], error: type[BaseException], box: Box, number: int) -> None:
    """Raise an error after so many calls."""
    if next(count, None) is None:
        raise error("for a reason")


def test_errors_of_relaxpy_are_those_of_the_text(programs: tuple[Any, Any]) -> None:
    def fail(chosen: int, box: Box, number: int) -> None:
        if number == chosen:
            raise RuntimeCheckError("for a reason")

    native, text = programs
    box, other = Box(), Box()
    expected = text["main"](box, other, X)
    for number in {*box.seen, *other.seen}:
        messages = []
        for program in programs:
            failing = Box(event=partial(fail, number))
            with pytest.raises(RuntimeCheckError, match="for a reason") as caught:
                program["main"](failing, failing, X)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
        assert "call_dps_packed" in messages[0]
        np.testing.assert_array_equal(native["main"](Box(), Box(), X), expected)


class Apart(Box):
    """A box whose plan has lists of functions and numbers, and parts of a tensor, by the call."""

    def __init__(self, order: Sequence[int], more: int = 0) -> None:
        super().__init__()
        self.order, self.more = order, more
        self.table = np.arange(600, dtype=np.float32).reshape(10, 20, 3)
        self.read: list[Any] = []

    def plan(self, forms: Any, calls: Sequence[Any]) -> Plan:
        plan = super().plan(forms, calls)
        order = [self.order[k % len(self.order)] for k in range(len(calls))]
        first = self.table[order[0], 2::5]
        offsets = (np.array(order) - order[0]) * self.table.strides[0]
        part = Part((first, first.view(), offsets))
        notes = [partial(self.note, number) for number, _ in calls]
        steps = (notes, (part, order)), (self.filled, (part, part, *[0] * self.more))
        return replace(plan, steps=(*steps, *plan.steps))

    def note(self, number: int, part: Array, row: int) -> None:
        self.read.append((number, row, part.tolist()))

    def filled(self, part: Array, other: Array, *_: int) -> None:
        assert part is other
        part += 1000


@pytest.mark.parametrize("order", [[4], [0, 1, 2], [7, 2, 2, 9]])
def test_arguments_are_those_of_each_call(order: list[int]) -> None:
    native = relaxpy.compile(from_source(LINE.replace("other, ", "box, ")), "native")
    box = Apart(order)
    native["main"](box, Box(), X)
    assert [number for number, *_ in box.read] == [2, 3, 4]
    expected = np.arange(600, dtype=np.float32).reshape(10, 20, 3)
    for _, row, part in box.read:
        np.testing.assert_array_equal(part, expected[row, 2::5])
        expected[row, 2::5] += 1000
    np.testing.assert_array_equal(box.table, expected)


def test_a_function_of_too_many_arguments_is_left_to_the_text() -> None:
    program = relaxpy.compile(from_source(LINE), "native")
    expected = program["main"](Box(), Box(), X)
    for more in (ARGUMENTS - 2, ARGUMENTS - 1):
        box = Apart([1], more)
        np.testing.assert_array_equal(program["main"](box, Box(), X), expected)
        assert (box.table.max() > 1000) == (more == ARGUMENTS - 2)


def test_an_outdated_plan_is_left_to_the_text(programs: tuple[Any, Any]) -> None:
    """All steps are those after the change, also the one in which it happens."""
    native, text = programs

    def event(box: Box, number: int) -> None:
        box.valid[0], box.bias = 0, 1

    expected = text["main"](Box(1), Box(1), X)
    box = Box(event=event)
    np.testing.assert_array_equal(native["main"](box, box, X), expected)


def test_a_plan_that_fails_is_left_to_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    program = relaxpy.compile(from_source(LINE), "native")
    expected = program["main"](Box(), Box(), X)

    def fail(box: Box, forms: Any, calls: Any) -> None:
        raise RuntimeCheckError("it has no plan")

    monkeypatch.setattr(Box, "plan", fail)
    np.testing.assert_array_equal(program["main"](Box(), Box(), X), expected)


def test_a_plan_owns_what_machine_code_reads() -> None:
    """A box may drop all of it while it is called."""
    program = relaxpy.compile(from_source(LINE), "native")
    dropped: list[weakref.ref[Any]] = []

    def event(box: Box, number: int) -> None:
        dropped.append(weakref.ref(box.valid))
        box.valid = np.array([1])
        gc.collect()
        [np.full((4, 3), 7, np.float32) for _ in range(50)]

    expected = program["main"](Box(), Box(), X)
    np.testing.assert_array_equal(program["main"](Box(event=event), Box(), X), expected)
    assert dropped[0]() is None  # after the call


class Returned:
    """The result of a step, which machine code drops."""


def test_calls_leave_no_references(programs: tuple[Any, Any]) -> None:
    native, _ = programs
    living: weakref.WeakSet[Returned] = weakref.WeakSet()

    def returned(*_: Any) -> Returned:
        found = Returned()
        living.add(found)
        return found

    class Returning(Box):
        def plan(self, forms: Any, calls: Sequence[Any]) -> Plan:
            plan = super().plan(forms, calls)
            return replace(plan, steps=((returned, (self,)), *plan.steps))

    for event in (None, lambda box, number: box.missing):
        box = Returning(event=event)
        with suppress(AttributeError):
            native["main"](box, box, X)
        assert [*living] == []
        dropped = weakref.ref(box)
        del box
        gc.collect()
        assert dropped() is None


def test_twin_functions_share_code_but_not_objects() -> None:
    other = LINE.replace("def main", "def second")
    program = relaxpy.compile(from_source(LINE + other), "native")
    results = [program[name](Box(b), Box(b), X) for b in (0, 2) for name in ("main", "second")]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[2], results[3])
    assert not np.array_equal(results[0], results[2])
    with pytest.raises(RelaxpyError, match="no box"):
        program["second"](object(), Box(), X)


def test_what_has_no_plan_stays_in_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that users register, objects in tuples, other arguments than tensors, no number."""
    both = LINE.replace("box: R.Object", "both: R.Tuple(R.Object, R.Object)")
    texts = [
        LINE.replace("test.boxed", "test.users"),
        both.replace("(box, ", "(both[0], "),
        LINE.replace("R.prim_value(0.5), y", "R.prim_value(0.5), R.shape([1])"),
        *(LINE.replace("(0.5)", f"(T.float32({x!r}))") for x in ("inf", "nan")),  # not in JSON
    ]
    relaxpy.register_func("test.users", lambda *args: None, pure=True)
    try:
        for text in texts:
            assert native_functions(from_source(text), monkeypatch) == []
    finally:
        remove_global_func("test.users")


def test_sessions_are_saved() -> None:
    session = Session(1, "test.boxed", (("float32", (3,)),) * 2, ((1, 0.5), (2, 1.0)))
    saved = (1, "test.boxed", [["float32", [3]]] * 2, [[1, 0.5], [2, 1.0]])
    assert Session.loaded(*saved) == session
