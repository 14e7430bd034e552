"""Local functions that call themselves last, as native loops: results, memory, errors, signals."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.lower import module as lowering
from relaxpy.script import from_source

Array = np.ndarray[Any, Any]
HEADER = "from relaxpy.script import ir as I, relax as R, tir as T\n"
KERNELS = """
    @T.prim_func(private=True)
    def write_row(a: T.handle, i: T.Buffer((), "int64"), row: T.Buffer((4,), "float32")):
        n = T.int64()
        rows = T.match_buffer(a, (n, 4), "float32")
        for k in range(4):
            rows[i[()], k] = row[k]

    @T.prim_func(private=True)
    def increase(x: T.Buffer((4,), "float32")):
        for k in range(4):
            x[k] = x[k] + T.float32(1)
"""


def module(body: str, params: str) -> relaxpy.IRModule:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    main = f"    @R.function\n    def main({params}):\n{lines}"
    return from_source(f"{HEADER}@I.ir_module\nclass M:{KERNELS}\n{main}")


def load(*_: Any) -> None:
    """What loads the Python text of a module, where it may not be needed."""
    raise AssertionError("the text is needed")


def state(shape: str = "(4,)") -> str:
    return f'R.Tensor({shape}, "float32")'


I64 = 'R.Tensor((), "int64")'
X = f"n: {I64}, x: {state()}"

#: The body of `main`, its parameters, its arguments.
PROGRAMS: dict[str, tuple[str, str, list[tuple[Array, ...]]]] = {}
COUNTS = [np.array(k) for k in (3, 0, 1, 70, -2)]
VALUES = np.linspace(-1, 1, 4).astype("float32")
EACH = [(count, VALUES) for count in COUNTS]

PROGRAMS["a state that is computed anew"] = (
    f"""\
@R.function
def loop(i: {I64}, s: {state()}) -> {state()}:
    more = R.less(i, n)
    if more:
        t = R.tanh(R.add(s, x))
        j = R.add(i, R.const(1, "int64"))
        r: {state()} = loop(j, t)
    else:
        r = s
    return r
out = loop(R.const(0, "int64"), x)
return out""",
    X,
    EACH,
)
PROGRAMS["the last iteration is the branch for true"] = (
    f"""\
@R.function
def loop(i: {I64}, s: {state()}) -> {state()}:
    done = R.greater_equal(i, n)
    if done:
        r = R.negative(s)
    else:
        t = R.multiply(s, x)
        r: {state()} = loop(R.add(i, R.const(1, "int64")), t)
    return r
out = loop(R.const(0, "int64"), x)
return (out, R.add(out, x))""",
    X,
    EACH,
)
PROGRAMS["states change places"] = (
    f"""\
@R.function
def loop(i: {I64}, a: {state()}, b: {state()}, c: {state()}) -> R.Tuple({state()}, {state()}):
    if R.less(i, n):
        j = R.add(i, R.const(1, "int64"))
        r: R.Tuple({state()}, {state()}) = loop(j, b, c, R.subtract(a, b))
    else:
        r = (a, R.add(b, c))
    return r
out = loop(R.const(0, "int64"), x, R.exp(x), R.negative(x))
return out""",
    X,
    EACH,
)
PROGRAMS["rows written in place"] = (
    f"""\
rows = R.zeros((5, 4), "float32")
@R.function
def loop(i: {I64}, s: {state()}, rows: {state("(5, 4)")}) -> R.Tuple({state()}, {state("(5, 4)")}):
    if R.less(i, R.minimum(n, R.const(5, "int64"))):
        t = R.add(s, x)
        more = R.call_tir_inplace(M.write_row, (rows, i, t), [0], R.Tensor((5, 4), "float32"))
        j = R.add(i, R.const(1, "int64"))
        r: R.Tuple({state()}, {state("(5, 4)")}) = loop(j, t, more)
    else:
        r = (s, rows)
    return r
out = loop(R.const(0, "int64"), x, rows)
return out""",
    X,
    EACH,
)
PROGRAMS["rows of a symbolic number"] = (
    f"""\
m = T.int64()
rows = R.full((m, 4), R.const(7, "float32"), "float32")
@R.function
def loop(i: {I64}, s: {state()}, rows: {state("(m, 4)")}) -> {state("(m, 4)")}:
    if R.less(i, R.minimum(n, R.const(5, "int64"))):
        t = R.add(s, R.take(x, i, axis=0))
        more = R.call_tir_inplace(M.write_row, (rows, i, t), [0], R.Tensor((m, 4), "float32"))
        r: {state("(m, 4)")} = loop(R.add(i, R.const(1, "int64")), t, more)
    else:
        r = rows
    return r
out = loop(R.const(0, "int64"), R.zeros((4,), "float32"), rows)
return out""",
    f'n: {I64}, x: {state("""("m", 4)""")}',
    [(n, np.arange(4 * m, dtype="float32").reshape(m, 4)) for n in COUNTS for m in (5, 9)],
)
PROGRAMS["what is written in place is no result"] = (
    f"""\
start = R.exp(x)
@R.function
def loop(i: {I64}, a: {state()}, b: {state()}) -> {state()}:
    if R.less(i, n):
        c = R.call_tir_inplace(M.increase, (a,), [0], R.Tensor((4,), "float32"))
        r: {state()} = loop(R.add(i, R.const(1, "int64")), c, R.multiply(c, b))
    else:
        r = b
    return r
out = loop(R.const(0, "int64"), start, x)
return R.tanh(out)""",
    X,
    EACH,
)
PROGRAMS["a branch within, and a state that stays"] = (
    f"""\
@R.function
def loop(i: {I64}, s: {state()}, w: {state()}) -> R.Tuple({state()}, {state()}):
    if R.less(i, n):
        if R.equal(R.floor_mod(i, R.const(2, "int64")), R.const(0, "int64")):
            t = R.add(s, w)
        else:
            t = R.multiply(s, x)
        r: R.Tuple({state()}, {state()}) = loop(R.add(i, R.const(1, "int64")), t, w)
    else:
        r = (s, w)
    return r
out = loop(R.const(0, "int64"), x, R.exp(x))
return out""",
    X,
    EACH,
)
PROGRAMS["a loop within a loop"] = (
    f"""\
@R.function
def outer(i: {I64}, s: {state()}) -> {state()}:
    if R.less(i, n):
        @R.function
        def inner(j: {I64}, t: {state()}) -> {state()}:
            if R.less(j, i):
                r2: {state()} = inner(R.add(j, R.const(1, "int64")), R.multiply(t, x))
            else:
                r2 = t
            return r2
        u = inner(R.const(0, "int64"), s)
        r: {state()} = outer(R.add(i, R.const(1, "int64")), R.add(u, s))
    else:
        r = s
    return r
out = outer(R.const(0, "int64"), x)
return out""",
    X,
    [(np.array(k), VALUES) for k in (3, 0, 12)],
)
PROGRAMS["two loops, one within a branch"] = (
    f"""\
@R.function
def loop(i: {I64}, s: {state()}) -> {state()}:
    if R.less(i, n):
        r: {state()} = loop(R.add(i, R.const(1, "int64")), R.sin(s))
    else:
        r = s
    return r
first = loop(R.const(0, "int64"), x)
if R.less(n, R.const(2, "int64")):
    second = loop(R.const(-3, "int64"), R.exp(first))
else:
    second = R.negative(x)
return (first, second)""",
    X,
    EACH,
)


def assert_equal(found: Any, wanted: Any) -> None:
    """Fail if tensors, or tuples of tensors, differ."""
    if not isinstance(wanted, tuple):
        found, wanted = (found,), (wanted,)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_have_the_values_of_the_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, params, calls = PROGRAMS[name]
    mod = module(body, params)
    native = relaxpy.compile(mod, "native")["main"]
    oracle = relaxpy.compile(mod, "reference")["main"]
    monkeypatch.setattr(lowering, "_load", load)
    for args in calls:
        given = [arg.copy() for arg in args]
        assert_equal(native(*args), oracle(*args))
        for before, arg in zip(given, args, strict=True):
            np.testing.assert_array_equal(before, arg)


REFUSED = {
    "a state that grows": (
        f"""\
@R.function
def loop(i: {I64}, s: {state('("k", 4)')}) -> R.Tensor("float32", ndim=2):
    k = T.int64()
    if R.less(i, n):
        t = R.concat([s, R.expand_dims(x, 0)], axis=0)
        r: R.Tensor("float32", ndim=2) = loop(R.add(i, R.const(1, "int64")), t)
    else:
        r: R.Tensor("float32", ndim=2) = s
    return r
out = loop(R.const(0, "int64"), R.expand_dims(x, 0))
return out""",
        X,
        EACH[:3],
    ),
    "a state that is a result twice": (
        f"""\
@R.function
def loop(i: {I64}, s: {state()}) -> R.Tuple({state()}, {state()}):
    if R.less(i, n):
        r: R.Tuple({state()}, {state()}) = loop(R.add(i, R.const(1, "int64")), R.exp(s))
    else:
        r = (s, s)
    return r
out = loop(R.const(0, "int64"), x)
return out""",
        X,
        EACH[:3],
    ),
    "a call that is not the last": (
        f"""\
@R.function
def down(i: {I64}, s: {state()}) -> {state()}:
    if R.less(i, n):
        q: {state()} = down(R.add(i, R.const(1, "int64")), s)
        r = R.add(q, x)
    else:
        r = s
    return r
out = down(R.const(0, "int64"), x)
return out""",
        X,
        EACH[:3],
    ),
    "two calls": (
        f"""\
@R.function
def loop(i: {I64}, s: {state()}) -> {state()}:
    j = R.add(i, R.const(1, "int64"))
    if R.less(i, n):
        if R.equal(i, R.const(1, "int64")):
            r: {state()} = loop(j, R.exp(s))
        else:
            r: {state()} = loop(j, R.sin(s))
    else:
        r = s
    return r
out = loop(R.const(0, "int64"), x)
return out""",
        X,
        EACH[:3],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_functions_that_are_no_native_loops(name: str) -> None:
    body, params, calls = REFUSED[name]
    mod = module(body, params)
    native, oracle = (relaxpy.compile(mod, target)["main"] for target in ("native", "reference"))
    for args in calls:
        assert_equal(native(*args), oracle(*args))


def test_an_error_in_an_iteration_is_that_of_the_text() -> None:
    body = f"""\
@R.function
def loop(i: {I64}, s: R.Tensor((), "float32")) -> R.Tensor((), "float32"):
    if R.less(i, n):
        t = R.add(s, R.take(x, i, axis=0, mode="fast"))
        r: R.Tensor((), "float32") = loop(R.add(i, R.const(1, "int64")), t)
    else:
        r = s
    return r
out = loop(R.const(0, "int64"), R.const(0, "float32"))
return out"""
    texts = []
    for target in ("native", "numpy"):
        run = relaxpy.compile(module(body, X), target)["main"]
        assert float(run(np.array(4), VALUES)) == pytest.approx(VALUES.sum(), abs=1e-6)
        with pytest.raises(RelaxpyError) as caught:
            run(np.array(9), VALUES)
        texts.append(str(caught.value))
        assert float(run(np.array(2), VALUES)) == pytest.approx(VALUES[:2].sum())
    assert texts[0] == texts[1]


ENDLESS = f"""\
@R.function
def loop(s: {state()}) -> {state()}:
    if R.less(R.min(s), R.const(9, "float32")):
        r: {state()} = loop(R.sin(s))
    else:
        r = s
    return r
out = loop(x)
return out"""


class AlarmError(Exception):
    """What the handler of the test raises."""


@pytest.mark.skipif(os.name != "posix", reason="there are no alarms")
def test_a_signal_ends_a_loop_that_never_ends() -> None:
    run = relaxpy.compile(module(ENDLESS, f"x: {state()}"))["main"]

    def handler(*_: object) -> None:
        raise AlarmError

    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(AlarmError):
            run(VALUES)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_other_threads_run_meanwhile() -> None:
    body, params, _ = PROGRAMS["a state that is computed anew"]
    run = relaxpy.compile(module(body, params))["main"]
    wanted = np.asarray(run(np.array(20000), VALUES))
    found: list[Array] = []
    threads = [
        threading.Thread(target=lambda: found.append(np.asarray(run(np.array(20000), VALUES))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for each in found:
        np.testing.assert_array_equal(each, wanted)
