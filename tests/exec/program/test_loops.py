"""Local functions that call themselves last, as native loops: results, memory, errors, signals."""

import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.program.lower import text
from tests.exec.program.test_outline import native_functions
from tests.ir.relax.texts import module
from tests.rows import sections

Array = np.ndarray[Any, Any]
KERNELS = """
@kernel
def write_row(a: T.handle, i: T.Buffer((), "int64"), row: f32[4]):
    n = T.int64()
    rows = T.match_buffer(a, (n, 4), "float32")
    for k in range(4):
        rows[i[()], k] = row[k]

@kernel
def increase(x: f32[4]):
    for k in range(4):
        x[k] = x[k] + T.float32(1)
"""


def load(*_: Any) -> None:
    """What loads the Python text of a module, where it may not be needed."""
    raise AssertionError("the text is needed")


VALUES = np.linspace(-1, 1, 4).astype("float32")
COUNTS = [np.array(k) for k in (3, 0, 1, 70, -2)]
#: The arguments of programs that are not `n` of `COUNTS` and `x` of `VALUES`.
ARGUMENTS = {
    "rows of a symbolic number": [
        (n, np.arange(4 * m, dtype="float32").reshape(m, 4)) for n in COUNTS for m in (5, 9)
    ],
    "a loop within a loop": [(np.array(k), VALUES) for k in (3, 0, 12)],
}
LOOPS = sections("""
--- a state that is computed anew
def main(n: i64, x: f32[4]):
    def loop(i: i64, s: f32[4]) -> f32[4]:
        more = R.less(i, n)
        if more:
            t = R.tanh(s + x)
            j = i + 1
            r: f32[4] = loop(j, t)
        else:
            r = s
        return r
    out = loop(R.const(0, "int64"), x)
    return out
--- the last iteration is the branch for true
def main(n: i64, x: f32[4]):
    def loop(i: i64, s: f32[4]) -> f32[4]:
        done = R.greater_equal(i, n)
        if done:
            r = R.negative(s)
        else:
            t = s * x
            r: f32[4] = loop(i + 1, t)
        return r
    out = loop(R.const(0, "int64"), x)
    return (out, out + x)
--- states change places
def main(n: i64, x: f32[4]):
    def loop(i: i64, a: f32[4], b: f32[4], c: f32[4]) -> R.Tuple(f32[4], f32[4]):
        if i < n:
            j = i + 1
            r: R.Tuple(f32[4], f32[4]) = loop(j, b, c, a - b)
        else:
            r = (a, b + c)
        return r
    out = loop(R.const(0, "int64"), x, R.exp(x), R.negative(x))
    return out
--- rows written in place
def main(n: i64, x: f32[4]):
    rows = R.zeros((5, 4), "float32")
    def loop(i: i64, s: f32[4], rows: f32[5, 4]) -> R.Tuple(f32[4], f32[5, 4]):
        if i < R.minimum(n, R.const(5, "int64")):
            t = s + x
            more = R.call_tir_inplace(cls.write_row, (rows, i, t), [0], f32[5, 4])
            j = i + 1
            r: R.Tuple(f32[4], f32[5, 4]) = loop(j, t, more)
        else:
            r = (s, rows)
        return r
    out = loop(R.const(0, "int64"), x, rows)
    return out
--- states that begin as constants
def main(n: i64, x: f32[4]):
    def loop(i: i64, a: f32[4], b: f32[4]) -> R.Tuple(f32[4], f32[4]):
        if i < n:
            c = R.call_tir_inplace(cls.increase, (a,), [0], f32[4])
            r: R.Tuple(f32[4], f32[4]) = loop(i + 1, c, b + x)
        else:
            r = (a, b)
        return r
    out = loop(R.const(0, "int64"), R.zeros((4,), "float32"), R.ones((4,), "float32"))
    again = loop(R.const(1, "int64"), R.zeros((4,), "float32"), x)
    return (out, again)
--- rows of a symbolic number
def main(n: i64, x: f32[m, 4]):
    rows = R.full((m, 4), R.const(7, "float32"), "float32")
    def loop(i: i64, s: f32[4], rows: f32[m, 4]) -> f32[m, 4]:
        if i < R.minimum(n, R.const(5, "int64")):
            t = s + R.take(x, i, axis=0)
            more = R.call_tir_inplace(cls.write_row, (rows, i, t), [0], f32[m, 4])
            r: f32[m, 4] = loop(i + 1, t, more)
        else:
            r = rows
        return r
    out = loop(R.const(0, "int64"), R.zeros((4,), "float32"), rows)
    return out
--- what is written in place is no result
def main(n: i64, x: f32[4]):
    start = R.exp(x)
    def loop(i: i64, a: f32[4], b: f32[4]) -> f32[4]:
        if i < n:
            c = R.call_tir_inplace(cls.increase, (a,), [0], f32[4])
            r: f32[4] = loop(i + 1, c, c * b)
        else:
            r = b
        return r
    out = loop(R.const(0, "int64"), start, x)
    return R.tanh(out)
--- a branch within, and a state that stays
def main(n: i64, x: f32[4]):
    def loop(i: i64, s: f32[4], w: f32[4]) -> R.Tuple(f32[4], f32[4]):
        if i < n:
            if R.equal(R.floor_mod(i, R.const(2, "int64")), R.const(0, "int64")):
                t = s + w
            else:
                t = s * x
            r: R.Tuple(f32[4], f32[4]) = loop(i + 1, t, w)
        else:
            r = (s, w)
        return r
    out = loop(R.const(0, "int64"), x, R.exp(x))
    return out
--- a loop within a loop
def main(n: i64, x: f32[4]):
    def outer(i: i64, s: f32[4]) -> f32[4]:
        if i < n:
            def inner(j: i64, t: f32[4]) -> f32[4]:
                if j < i:
                    r2: f32[4] = inner(j + 1, t * x)
                else:
                    r2 = t
                return r2
            u = inner(R.const(0, "int64"), s)
            r: f32[4] = outer(i + 1, u + s)
        else:
            r = s
        return r
    out = outer(R.const(0, "int64"), x)
    return out
--- two loops, one within a branch
def main(n: i64, x: f32[4]):
    def loop(i: i64, s: f32[4]) -> f32[4]:
        if i < n:
            r: f32[4] = loop(i + 1, R.sin(s))
        else:
            r = s
        return r
    first = loop(R.const(0, "int64"), x)
    if n < 2:
        second = loop(R.const(-3, "int64"), R.exp(first))
    else:
        second = R.negative(x)
    return (first, second)
--- two calls
def main(n: i64, x: f32[4]):
    def loop(i: i64, s: f32[4]) -> f32[4]:
        j = i + 1
        if i < n:
            if R.equal(i, R.const(1, "int64")):
                r: f32[4] = loop(j, R.exp(s))
            else:
                r: f32[4] = loop(j, R.sin(s))
        else:
            r = s
        return r
    out = loop(R.const(0, "int64"), x)
    return out
--- two ends and two calls, which change other states
def main(n: i64, x: f32[4]):
    def loop(i: i64, a: f32[4], b: f32[4]) -> R.Tuple(f32[4], f32[4]):
        j = i + 1
        if i < n:
            if R.equal(i, R.const(2, "int64")):
                c = a * x
                if R.less(R.max(c), R.const(-5, "float32")):
                    r = (c, b)
                else:
                    r: R.Tuple(f32[4], f32[4]) = loop(j, b, a)
            else:
                r: R.Tuple(f32[4], f32[4]) = loop(j, R.sin(a), b)
        else:
            if R.greater(n, R.const(3, "int64")):
                r = (R.tanh(b), R.exp(a))
            else:
                r = (R.cos(a), R.sin(b))
        return r
    out = loop(R.const(0, "int64"), x, R.exp(x))
    return out
""")
OTHERS = sections("""
--- a state that grows
def main(n: i64, x: f32[4]):
    def loop(i: i64, s: f32[k, 4]) -> R.Tensor("float32", ndim=2):
        k = T.int64()
        if i < n:
            t = R.concat([s, R.expand_dims(x, 0)], axis=0)
            r: R.Tensor("float32", ndim=2) = loop(i + 1, t)
        else:
            r: R.Tensor("float32", ndim=2) = s
        return r
    out = loop(R.const(0, "int64"), R.expand_dims(x, 0))
    return out
--- a state that is a result twice
def main(n: i64, x: f32[4]):
    def loop(i: i64, s: f32[4]) -> R.Tuple(f32[4], f32[4]):
        if i < n:
            r: R.Tuple(f32[4], f32[4]) = loop(i + 1, R.exp(s))
        else:
            r = (s, s)
        return r
    out = loop(R.const(0, "int64"), x)
    return out
--- a call that is not the last
def main(n: i64, x: f32[4]):
    def down(i: i64, s: f32[4]) -> f32[4]:
        if i < n:
            q: f32[4] = down(i + 1, s)
            r = q + x
        else:
            r = s
        return r
    out = down(R.const(0, "int64"), x)
    return out
""")

WRITTEN = sections("""
--- a branch returns it
def main(n: i64, x: f32[4]):
    a = R.exp(x)
    if n < 2:
        y = a
    else:
        y = R.tanh(x)
    z = R.call_tir_inplace(cls.increase, (y,), [0], f32[4])
    return (z, R.negative(a))
--- a branch within a branch returns it
def main(n: i64, x: f32[4]):
    a = R.exp(x)
    if n < 2:
        if n < 1:
            w = R.sin(x)
        else:
            w = a
        y = w
    else:
        y = R.tanh(x)
    z = R.call_tir_inplace(cls.increase, (y,), [0], f32[4])
    return (z, R.negative(a))
--- a loop returns it
def main(n: i64, x: f32[4]):
    a = R.exp(x)
    def loop(i: i64, s: f32[4]) -> f32[4]:
        if i < n:
            r: f32[4] = loop(i + 1, R.sin(s))
        else:
            r = s
        return r
    y = loop(R.const(0, "int64"), a)
    z = R.call_tir_inplace(cls.increase, (y,), [0], f32[4])
    return (z, R.negative(a))
--- a loop writes it
def main(n: i64, x: f32[4]):
    a = R.exp(x)
    def loop(i: i64, s: f32[4]) -> f32[4]:
        if i < n:
            t = R.call_tir_inplace(cls.increase, (s,), [0], f32[4])
            r: f32[4] = loop(i + 1, t)
        else:
            r = s
        return r
    y = loop(R.const(0, "int64"), a)
    return (y + x, R.negative(a))
--- a loop has it twice
def main(n: i64, x: f32[4]):
    a = R.exp(x)
    def loop(i: i64, s: f32[4], t: f32[4]) -> f32[4]:
        if i < n:
            u = R.call_tir_inplace(cls.increase, (s,), [0], f32[4])
            r: f32[4] = loop(i + 1, u, t)
        else:
            r = R.negative(t)
        return r
    return loop(R.const(0, "int64"), a, a)
""")


def assert_equal(found: Any, wanted: Any) -> None:
    """Fail if tensors, or tuples of tensors, differ."""
    if not isinstance(wanted, tuple):
        found, wanted = (found,), (wanted,)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LOOPS)
def test_loops_have_the_values_of_the_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mod = module(LOOPS[name] + KERNELS)
    assert "main" in native_functions(mod, monkeypatch)
    native = relaxpy.compile(mod, "native")["main"]
    oracle = relaxpy.compile(mod, "reference")["main"]
    monkeypatch.setattr(text, "text_of", load)
    for args in ARGUMENTS.get(name, [(count, VALUES) for count in COUNTS]):
        given = [arg.copy() for arg in args]
        assert_equal(native(*args), oracle(*args))
        for before, arg in zip(given, args, strict=True):
            np.testing.assert_array_equal(before, arg)


@pytest.mark.parametrize("name", OTHERS)
def test_functions_that_are_no_native_loops(name: str) -> None:
    mod = module(OTHERS[name])
    native, oracle = (relaxpy.compile(mod, target)["main"] for target in ("native", "reference"))
    for count in COUNTS[:3]:
        assert_equal(native(count, VALUES), oracle(count, VALUES))


@pytest.mark.parametrize("name", WRITTEN)
def test_a_tensor_is_written_by_another_name(name: str) -> None:
    mod = module(WRITTEN[name] + KERNELS)
    native, oracle = (relaxpy.compile(mod, target)["main"] for target in ("native", "reference"))
    for count in COUNTS[:3]:
        assert_equal(native(count, VALUES), oracle(count, VALUES))


def test_an_error_in_an_iteration_is_that_of_the_text() -> None:
    mod = module("""
    def main(n: i64, x: f32[4]):
        def loop(i: i64, s: f32) -> f32:
            if i < n:
                t = s + R.take(x, i, axis=0, mode="fast")
                r: f32 = loop(i + 1, t)
            else:
                r = s
            return r
        out = loop(R.const(0, "int64"), R.const(0, "float32"))
        return out
    """)
    messages = []
    for target in ("native", "numpy"):
        run = relaxpy.compile(mod, target)["main"]
        assert float(run(np.array(4), VALUES)) == pytest.approx(VALUES.sum(), abs=1e-6)
        with pytest.raises(RelaxpyError) as caught:
            run(np.array(9), VALUES)
        messages.append(str(caught.value))
        assert float(run(np.array(2), VALUES)) == pytest.approx(VALUES[:2].sum())
    assert messages[0] == messages[1]


ENDLESS = """
def main(x: f32[4]):
    def loop(s: f32[4]) -> f32[4]:
        if R.min(s) < R.const(9, "float32"):
            r: f32[4] = loop(R.sin(s))
        else:
            r = s
        return r
    out = loop(x)
    return out
"""


class AlarmError(Exception):
    """What the handler of the test raises."""


@pytest.mark.skipif(os.name != "posix", reason="there are no alarms")
def test_a_signal_ends_a_loop_that_never_ends() -> None:
    run = relaxpy.compile(module(ENDLESS))["main"]

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
    run = relaxpy.compile(module(LOOPS["a state that is computed anew"]))["main"]
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
