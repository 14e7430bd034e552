"""What users see of an error from their own code, or about it, beneath a program."""

import linecache
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError, UnknownPackedFuncError
from relaxpy.runtime import ShapeTuple
from relaxpy.script import from_source, ir as I, relax as R

TARGETS = pytest.mark.parametrize("target", ["native", "numpy", "reference"])
X = np.zeros((2, 2), "float32")


@I.ir_module
class Calls:
    @R.function(pure=False)
    def main(x: R.Tensor):
        y = R.call_packed("test.fails", x, sinfo_args=R.Object)
        return y

    @R.function(pure=False)
    def outer(x: R.Tensor):
        y = Calls.main(x)
        return y

    @R.function(pure=False)
    def inverse(x: R.Tensor):
        y = R.call_packed("test.inverse", x, sinfo_args=R.Object)
        return y

    @R.function(pure=False)
    def length(x: R.Tensor):
        y = R.call_packed("test.length", R.prim_value(3), sinfo_args=R.Object)
        return y

    @R.function(pure=False)
    def in_context(x: R.Tensor):
        y = R.call_builtin_with_ctx("test.length", (x,), sinfo_args=R.Object)
        return y

    @R.function(pure=False)
    def nobody(x: R.Tensor):
        y = R.call_packed("test.nobody", x, sinfo_args=R.Object)
        return y

    @R.function
    def nobody_pure(x: R.Tensor):
        y = R.call_pure_packed("test.nobody", x, sinfo_args=R.Object)
        return y

    @R.function(pure=False)
    def nobody_dps(x: R.Tensor((2, 2), "float32")):
        y = R.call_dps_packed("test.nobody", (x,), out_sinfo=R.Tensor((2, 2), "float32"))
        return y


@R.function(pure=False)
def alone(x: R.Tensor):
    y = R.call_packed("test.fails", x, sinfo_args=R.Object)
    return y


def fails(x: object) -> None:
    raise OSError("lost")


@pytest.fixture(autouse=True)
def packed() -> Iterator[None]:
    functions = {"test.fails": fails, "test.inverse": np.linalg.inv, "test.length": len}
    for name, function in functions.items():
        relaxpy.register_func(name, function)
    yield
    for name in functions:
        relaxpy.runtime.remove_global_func(name)


def lines(run: Callable[[], object], error: type[Exception]) -> list[str]:
    """The lines that a traceback shows below that which runs something."""
    with pytest.raises(error) as caught:
        run()
    found = []
    for frame, number in list(traceback.walk_tb(caught.value.__traceback__))[2:]:
        file = frame.f_code.co_filename
        assert not file.startswith(str(Path(relaxpy.__file__).parent))
        found.append(linecache.getline(file, number).strip())
    return found


def test_errors_of_packed_functions_show_their_frames_and_the_programs_lines() -> None:
    ex = relaxpy.compile(Calls)
    vm = relaxpy.VirtualMachine(ex)
    vm.set_input("main", X)
    end = ["y = packed_test_fails(x)", 'raise OSError("lost")']
    runs = (lambda: ex["main"](X), lambda: ex(X), lambda: vm.invoke_stateful("main"))
    for run in (*runs, lambda: alone(X)):
        assert lines(run, OSError) == end
    assert lines(lambda: ex["outer"](X), OSError) == ["y = main(x)", *end]
    assert lines(lambda: ex["length"](X), TypeError) == ["y = packed_test_length(3)"]
    assert len(lines(lambda: ex["in_context"](X), TypeError)) == 1
    inverse = lines(lambda: ex["inverse"](X), np.linalg.LinAlgError)
    assert inverse[0] == "y = packed_test_inverse(x)"
    assert "LinAlgError" in inverse[-1]


def test_on_the_reference_target_they_show_the_users_frames() -> None:
    ex = relaxpy.compile(Calls, "reference")
    assert lines(lambda: ex["outer"](X), OSError) == ['raise OSError("lost")']
    assert lines(lambda: ex["length"](X), TypeError) == []


def test_all_frames_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXPY_FULL_TRACEBACK", "1")
    with pytest.raises(OSError, match="lost") as caught:
        relaxpy.compile(Calls)["main"](X)
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert names.count("__call__") >= 2


def test_a_fault_of_relaxpy_keeps_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaxpy.exec.api.executable.user_argument", None)
    with pytest.raises(TypeError, match="not callable") as caught:
        relaxpy.compile(Calls)["main"](3)
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert frames[1:] == ["__call__", "_converted_call", "_converted", "<genexpr>"]


@TARGETS
@pytest.mark.rule("EV-13")
@pytest.mark.parametrize("name", ["nobody", "nobody_pure", "nobody_dps"])
def test_an_unknown_packed_function_is_located_in_the_program(target: str, name: str) -> None:
    ex = relaxpy.compile(Calls, target)
    with pytest.raises(UnknownPackedFuncError) as caught:
        ex[name](X)
    span = caught.value.diagnostic.span
    assert span is not None
    assert span.source.line(span.line).strip().startswith("y = R.call_")
    assert span.file == __file__


SIZES = """
@I.ir_module
class Sizes:
    @T.prim_func(private=True)
    def divide(A: T.Buffer((3,), "int32"), B: T.Buffer((3,), "int32")):
        for i in range(3):
            with T.block("b"):
                vi = T.axis.spatial(3, i)
                B[vi] = T.truncdiv(T.int32(7), A[vi])
            #   ^ division by zero

    @R.function
    def kernel(x: R.Tensor((3,), "int32")):
        y = R.call_tir(Sizes.divide, (x,), out_sinfo=R.Tensor((3,), "int32"))
        return y

    @R.function
    def result(x: R.Shape(["n"])):
        n = T.int64()
        return R.shape([7 // n])
        #      ^ division by zero

    @R.function
    def scalar(x: R.Shape(["n"])):
        n = T.int64()
        y = R.prim_value((n + 1) * 9223372036854775807 * 4)
        #   ^ outside the range of int64
        return y

    @R.function
    def parameter(x: R.Shape(["n"]), y: R.Shape(["7 // n"])):
        #                            ^ division by zero
        return x

    @R.function
    def annotated(x: R.Shape(["n"])) -> R.Shape(["7 // n"]):
    #   ^ division by zero
        return R.match_cast(x, R.Shape(ndim=1))

    @R.function
    def cast(x: R.Shape(["n"])):
        n = T.int64()
        y = R.match_cast(x, R.Shape([7 // n]))
        #                ^ division by zero
        return y

    @R.function
    def branch(x: R.Shape(["n"])):
        n = T.int64()

        @R.function
        def inner(c: R.Tensor((), "bool")):
            if c:
                a = R.shape([n])
                b = R.shape([n // n])
                #   ^ division by zero
            else:
                b = R.shape([n])
            return b

        y = inner(R.const(True))
        return y
"""


@TARGETS
@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@pytest.mark.rule("PX-3", "PX-9")
@pytest.mark.parametrize(
    "name", ["kernel", "result", "scalar", "parameter", "annotated", "cast", "branch"]
)
def test_wrong_arithmetic_is_found_where_it_stands(target: str, name: str) -> None:
    lines = SIZES.split("\n")
    text = "def divide(" if name == "kernel" else f"def {name}("
    begin = next(k for k, line in enumerate(lines) if text in line)
    marked = next(k for k in range(begin, len(lines)) if "# " in lines[k] and "^" in lines[k])
    column = lines[marked].index("^") + 1
    message = lines[marked].partition("^ ")[2]
    module = from_source(SIZES)
    args = {"kernel": (np.array([1, 0, 1], "int32"),), "parameter": (ShapeTuple([0]),) * 2}
    with pytest.raises(RuntimeCheckError, match=message) as caught:
        relaxpy.compile(module, target=target)[name](*args.get(name, (ShapeTuple([0]),)))
    span = caught.value.diagnostic.span
    assert span is not None
    assert (span.line, span.column) == (marked, column)
    if name == "kernel" and target == "numpy":
        assert caught.value.diagnostic.notes == ("called at <string>:14:13",)
