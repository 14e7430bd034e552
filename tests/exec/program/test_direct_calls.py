"""Calls of packed functions in machine code do what the calls in Python do, for any function."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError, RuntimeCheckError
from relaxpy.exec.machine.fast_paths import DIRECT_CALLS
from relaxpy.exec.runtime.support import CompiledPackedCall
from relaxpy.exec.runtime.users import passing_tensors
from relaxpy.ir.core.tensor import Tensor
from relaxpy.runtime import ShapeTuple
from relaxpy.script import from_source

pytest.importorskip("llvmlite")

X = 'x: R.Tensor((2, 3), "float32")'
N = 'x: R.Tensor(("n", 3), "float32")'
INFO = 'R.Tensor((2, 3), "float32")'
CALLED = {
    "undeclared": f'y = R.call_packed("test.direct", x)\n    return y\n|{X}',
    "object": f'y = R.call_packed("test.direct", x, sinfo_args=R.Object)\n    return y\n|{X}',
    "tensor": f'y = R.call_packed("test.direct", x, sinfo_args={INFO})\n    return y\n|{X}',
    "pure": f'y = R.call_pure_packed("test.pure", x, sinfo_args={INFO})\n    return y\n|{X}',
    "tuple": f'y = R.call_packed("test.direct", (x, x), sinfo_args=R.Object)\n    return y\n|{X}',
    "shape": (
        f'y = R.call_packed("test.direct", x, sinfo_args=R.Shape(ndim=2))\n    return y\n|{X}'
    ),
    "numbers": (
        'y = R.call_packed("test.direct", x, R.prim_value(3), R.str("a"), R.shape([2, 3]), x,'
        f" sinfo_args=R.Object)\n    return y\n|{X}"
    ),
    "dps": f'y = R.call_dps_packed("test.direct", (x,), out_sinfo={INFO})\n    return y\n|{X}',
    "sized": (
        'y = R.call_dps_packed("test.direct", (x,), out_sinfo=R.Tensor((n, 3), "float32"))\n'
        f"    return y\n|{N}"
    ),
    "nested": (
        f'y = R.call_packed("test.direct", R.add(x, x), sinfo_args=R.Object)\n    return y\n|{X}'
    ),
    "many": (
        f'y = R.call_packed("test.direct", {"x, " * 17}sinfo_args=R.Object)\n    return y\n|{X}'
    ),
    "none": f'y = R.call_packed("test.direct", sinfo_args=R.Object)\n    return y\n|{X}',
}


def program(name: str) -> str:
    """The text of a program, which has a kernel."""
    body, param = CALLED[name].split("|")
    sizes = "    n = T.int64()\n" if '"n"' in param else ""
    main = f"@R.function(pure=False)\ndef main({param}):\n{sizes}    {body}"
    return f"{main}\n@R.function\ndef other({X}):\n    return R.exp(x)"


class OwnError(Exception):
    """An exception with its own constructor and text."""

    def __init__(self, number: int, *, extra: str) -> None:
        self.number, self.extra = number, extra

    def __str__(self) -> str:
        return f"own {self.number} {self.extra}"


class Callee:
    def __call__(self, *args: Any) -> Any:
        return args[0] if args else None

    def method(self, *args: Any) -> Any:
        return args[-1] if args else None


def first(*args: Any) -> Any:
    return args[0] if args else None


def fill(*args: Any) -> None:
    for arg in args:
        if isinstance(arg, np.ndarray) and arg.flags.writeable:
            arg[...] = 7


def raising(make: Callable[[], BaseException]) -> Callable[..., Any]:
    def fails(*args: Any) -> Any:
        raise make()

    return fails


def chained(*args: Any) -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise OwnError(2, extra="outer") from error


def handled(*args: Any) -> None:
    try:
        raise KeyError("inner")
    except KeyError:
        raise LookupError("outer") from None


def while_handled(*args: Any) -> None:
    try:
        raise KeyError("inner")
    except KeyError:
        raise LookupError("outer")  # noqa: B904


def array_of(args: tuple[Any, ...]) -> Any:
    return next((arg for arg in args if isinstance(arg, np.ndarray)), np.zeros((2, 3)))


def reshapes(*args: Any) -> None:
    array_of(args).shape = (3, 2)


def adds_axes(*args: Any) -> None:
    x = array_of(args)
    x.shape = (*x.shape, *[1] * 60)


def drops_axes(*args: Any) -> None:
    array_of(args).shape = (6,)


def retypes(*args: Any) -> None:
    array_of(args).dtype = np.int32


def renames(*args: Any) -> None:
    array_of(args).dtype = np.dtype("float32", metadata={"a": 1})


def resizes(*args: Any) -> None:
    array_of(args).resize((5, 5), refcheck=False)


def reshapes_back(*args: Any) -> None:
    x = array_of(args)
    shape = x.shape
    x.shape = (x.size,)
    x.shape = shape


def reshapes_and_fails(*args: Any) -> None:
    array_of(args).shape = (3, 2)
    raise ValueError("after")


def replaces(*args: Any) -> Any:
    relaxpy.register_func("test.direct", first, override=True)
    relaxpy.register_func("test.pure", first, override=True, pure=True)
    gc.collect()
    return first(*args)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "first": first,
    "fill": fill,
    "lambda": lambda *args: None,
    "new": lambda *args: np.full((2, 3), 4, np.float32),
    "view": lambda *args: array_of(args)[::-1],
    "other shape": lambda *args: np.zeros((4, 4), np.float32),
    "tensor": lambda *args: np.zeros((2, 3), np.float32).view(Tensor),
    "integer": lambda *args: 3,
    "large": lambda *args: 1 << 80,
    "bool": lambda *args: True,
    "number": lambda *args: np.float32(2.5),
    "list": lambda *args: [1, 2],
    "pair": lambda *args: (array_of(args), 2),
    "sizes": lambda *args: (2, 3),
    "shape tuple": lambda *args: ShapeTuple([2, 3]),
    "text": lambda *args: "text",
    "unit": lambda *args: (),
    "masked": lambda *args: np.ma.masked_array(np.zeros(3), [1, 0, 0]),
    "references": lambda *args: [
        weakref.getweakrefcount(arg) for arg in args if isinstance(arg, np.ndarray)
    ],
    "object": Callee(),
    "method": Callee().method,
    "class": list,
    "partial": functools.partial(first),
    "cached": functools.cache(lambda *args: 3),
    "builtin": len,
    "ufunc": np.negative,
    "inverse": np.linalg.inv,
    "value error": raising(lambda: ValueError("wrong", 3)),
    "own error": raising(lambda: OwnError(1, extra="e")),
    "os error": raising(lambda: OSError(2, "no file", "name")),
    "relaxpy error": raising(lambda: RuntimeCheckError("ours")),
    "interrupt": raising(KeyboardInterrupt),
    "exit": raising(lambda: SystemExit(3)),
    "stop": raising(lambda: StopIteration(4)),
    "memory": raising(MemoryError),
    "recursion": raising(lambda: RecursionError("deep")),
    "chained": chained,
    "handled": handled,
    "while handled": while_handled,
    "reshapes": reshapes,
    "reshapes back": reshapes_back,
    "reshapes and fails": reshapes_and_fails,
    "adds axes": adds_axes,
    "drops axes": drops_axes,
    "retypes": retypes,
    "renames": renames,
    "resizes": resizes,
    "replaces": replaces,
}


def described(value: Any, known: dict[int, str]) -> Any:
    """A value to compare: its type, its elements, and whether it is one of the arguments."""
    if isinstance(value, tuple | list):
        return type(value).__name__, [described(member, known) for member in value]
    if isinstance(value, np.ndarray):
        name = known.get(id(value), "")
        return type(value).__name__, name, value.dtype.name, value.shape, value.tolist()
    return type(value).__name__, repr(value)


def error_of(error: BaseException | None) -> Any:
    """What users see of an error, and of those that it follows from."""
    if error is None:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    lines = [*traceback.format_exception_only(error)]
    text = [f for f in frames.format() if "/relaxpy/exec/runtime/" not in f] + lines
    chain = error_of(error.__cause__), error_of(error.__context__), error.__suppress_context__
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return (
        kinds,
        [*map(repr, error.args)],
        text,
        {k: repr(v) for k, v in vars(error).items()},
        chain,
    )


def outcome(run: Any, function: Callable[..., Any]) -> Any:
    """What a call of a program does with the function."""
    relaxpy.register_func("test.direct", function, override=True)
    relaxpy.register_func("test.pure", function, override=True, pure=True)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    count = sys.getrefcount(x)
    found: Any
    try:
        try:
            raise IndexError("handled outside")
        except IndexError:
            found = described(run(x), {id(x): "x"})
    except BaseException as error:
        found = error_of(error)
    gc.collect()
    return found, described(x, {}), weakref.getweakrefcount(x), sys.getrefcount(x) - count


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    relaxpy.register_func("test.direct", first)
    relaxpy.register_func("test.pure", first, pure=True)
    yield
    for name in ("test.direct", "test.pure"):
        relaxpy.runtime.remove_global_func(name)


@functools.cache
def runs(name: str) -> tuple[Any, Any]:
    """The program with calls in machine code, and in Python."""
    return compiled(program(name))


def compiled(text: str) -> tuple[Any, Any]:
    direct = relaxpy.compile(from_source(text), "native")["main"]
    with DIRECT_CALLS.off():
        return direct, relaxpy.compile(from_source(text), "native")["main"]


@pytest.mark.parametrize("name", CALLED)
def test_any_function_does_the_same(name: str) -> None:
    direct, python = runs(name)
    for title, function in FUNCTIONS.items():
        assert outcome(direct, function) == outcome(python, function), title


@pytest.mark.parametrize("name", CALLED)
def test_in_a_context_that_passes_tensors(name: str) -> None:
    direct, python = runs(name)
    with passing_tensors():
        for title in ("first", "fill", "references", "value error", "reshapes", "resizes"):
            assert outcome(direct, FUNCTIONS[title]) == outcome(python, FUNCTIONS[title]), title
    assert outcome(direct, first) == outcome(python, first)


@pytest.mark.parametrize("name", ["object", "dps", "numbers"])
def test_no_call_keeps_a_reference(name: str) -> None:
    direct, _ = runs(name)
    x = np.ones((2, 3), np.float32)
    for title in ("first", "fill", "new", "pair", "view", "own error", "interrupt", "renames"):
        function = FUNCTIONS[title]
        relaxpy.register_func("test.direct", function, override=True)
        for calls in (1, 300):
            counts = sys.getrefcount(function), sys.getrefcount(np.dtype("float32"))
            for _ in range(calls):
                with contextlib.suppress(BaseException):
                    direct(x)
        gc.collect()
        after = sys.getrefcount(function), sys.getrefcount(np.dtype("float32"))
        assert max(b - a for a, b in zip(counts, after, strict=True)) < 100, title


def frames_of(run: Any, x: Any) -> list[str]:
    """The functions of relaxpy that a call runs in Python."""
    seen: list[str] = []

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call" and str(frame.f_globals.get("__name__")).startswith(
            "relaxpy.exec.runtime"
        ):
            seen.append(frame.f_code.co_name)

    run(x)
    sys.setprofile(note)
    try:
        run(x)
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize("name", sorted(CALLED.keys() - {"many", "shape"}))
def test_no_function_of_relaxpy_makes_the_call(name: str) -> None:
    direct, python = runs(name)
    x = np.ones((2, 3), np.float32)
    assert "call_users" not in frames_of(direct, x)
    assert "call_users" in frames_of(python, x)


def test_a_function_calls_the_program_again() -> None:
    direct, python = runs("dps")

    def results(run: Any) -> list[Any]:
        depths: list[int] = []

        def again(x: Any, out: Any) -> None:
            depths.append(len(depths))
            out[...] = run(x + 1) if len(depths) < 20 else x
            out += 1

        relaxpy.register_func("test.direct", again, override=True)
        return [run(np.ones((2, 3), np.float32)).tolist(), depths]

    assert results(direct) == results(python)


def test_infinite_recursion_is_the_same_error_at_any_depth() -> None:
    def deeper(levels: int, run: Callable[[Any], Any]) -> None:
        if levels:
            deeper(levels - 1, run)
        else:
            run(np.ones((2, 3), np.float32))

    errors = set()
    for run in runs("tensor"):
        relaxpy.register_func("test.direct", lambda x, run=run: run(x), override=True)
        for levels in range(500, 516):  # more than the frames of an iteration
            with pytest.raises(RuntimeCheckError) as caught:
                deeper(levels, run)
            errors.add(str(caught.value))
    assert len(errors) == 1


def test_threads_call_at_once() -> None:
    direct, _ = runs("dps")
    relaxpy.register_func("test.direct", lambda x, out: np.copyto(out, x), override=True)
    wrong: list[int] = []

    def work(number: int) -> None:
        x = np.full((2, 3), number, np.float32)
        wrong.extend(number for _ in range(500) if not (direct(x) == number).all())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_program_outlives_its_executable() -> None:
    executable = relaxpy.compile(from_source(program("tensor")), "native")
    run = executable["main"]
    del executable
    gc.collect()
    x = np.ones((2, 3), np.float32)
    assert run(x) is x


def test_a_missing_function_is_reported() -> None:
    errors = []
    for run in compiled(program("tensor").replace("test.direct", "test.missing")):
        with pytest.raises(RelaxpyError) as caught:
            run(np.ones((2, 3), np.float32))
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("name", ["tensor", "sized"])
def test_nothing_keeps_a_program(name: str) -> None:
    run = relaxpy.compile(from_source(program(name)), "native")["main"]
    run(np.ones((2, 3), np.float32))
    calls = [each for each in gc.get_objects() if type(each) is CompiledPackedCall]
    known = {id(each) for each in calls}
    del calls, run
    gc.collect()
    left = {id(each) for each in gc.get_objects() if type(each) is CompiledPackedCall}
    assert left < known


WITHOUT_LLVMLITE = """
import sys
sys.modules["llvmlite"] = None
import numpy as np, relaxpy
relaxpy.register_func("test.direct", lambda x: x + 1)
loaded = relaxpy.load_executable(sys.argv[1], native_code=True)
frames = set()
sys.setprofile(lambda frame, event, _: frames.add(frame.f_code.co_name))
result = loaded["main"](np.ones((2, 3), "float32"))
sys.setprofile(None)
print(loaded.target, loaded.report().remark, result.tolist(), "call_users" in frames)
"""


def test_a_saved_program_has_the_code_of_its_calls(tmp_path: Path) -> None:
    path = tmp_path / "model.rxp"
    relaxpy.compile(from_source(program("tensor")), "native").save(path)
    environment = {**os.environ, "RELAXPY_CACHE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LLVMLITE, str(path)],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "native  [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]] False\n"
