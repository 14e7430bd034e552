import pickle
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import (
    MisuseError,
    PackedFuncError,
    RuntimeCheckError,
    UnknownNameError,
    UnknownPackedFuncError,
)
from relaxpy.exec.api.vm import VirtualMachine
from relaxpy.exec.runtime import registry
from relaxpy.exec.runtime.registry import (
    get_global_func,
    is_registered_pure,
    list_global_func_names,
    register_func,
    remove_global_func,
)
from relaxpy.ir.module import IRModule
from relaxpy.script import relax as R

X = np.ones(2, "float32")


@pytest.fixture(autouse=True)
def names() -> Iterator[None]:
    get_global_func("test.unknown", allow_missing=True)  # a missing name loads the builtins
    before = dict(registry._functions)
    yield
    for name in list_global_func_names():
        if name not in before:
            remove_global_func(name)


def identity(x: object) -> object:
    return x


def test_a_function_is_found_under_its_name() -> None:
    assert register_func("test.identity", identity) is identity
    assert get_global_func("test.identity") is identity
    assert "test.identity" in list_global_func_names()


def test_register_func_decorates() -> None:
    @register_func("test.decorated")
    def decorated() -> int:
        return 1

    assert get_global_func("test.decorated") is decorated

    @register_func
    def test_own_name() -> int:
        return 2

    assert get_global_func("test_own_name") is test_own_name


def test_a_taken_name_needs_override() -> None:
    register_func("test.twice", identity)
    with pytest.raises(PackedFuncError, match=r"'test\.twice' is already registered") as caught:
        register_func("test.twice", len)
    assert isinstance(caught.value, ValueError)
    register_func("test.twice", len, override=True)
    assert get_global_func("test.twice") is len


@pytest.mark.rule("EV-13")
def test_an_unknown_name_is_refused_with_close_names() -> None:
    register_func("test.identity", identity)
    with pytest.raises(UnknownPackedFuncError, match=r"no packed function .* 'test\.identty'") as e:
        get_global_func("test.identty")
    assert "did you mean 'test.identity'?" in str(e.value)
    assert isinstance(e.value, (KeyError, PackedFuncError))
    assert isinstance(e.value, UnknownNameError)
    assert get_global_func("test.identty", allow_missing=True) is None
    with pytest.raises(UnknownPackedFuncError, match=r"\['f'\]"):
        get_global_func(["f"])  # type: ignore[call-overload]


def test_a_removed_function_is_gone() -> None:
    register_func("test.gone", identity)
    remove_global_func("test.gone")
    with pytest.raises(UnknownPackedFuncError):
        remove_global_func("test.gone")


@pytest.mark.rule("PU-4")
def test_a_function_may_be_registered_as_pure() -> None:
    register_func("test.pure", identity, pure=True)
    register_func("test.impure", identity)
    assert is_registered_pure("test.pure")
    assert not is_registered_pure("test.impure")
    register_func("test.pure", identity, override=True)
    assert not is_registered_pure("test.pure")


@pytest.mark.parametrize(
    ("name", "func"), [(3, identity), ("", identity), ("test.x", 5), (partial(identity), None)]
)
def test_misuse_is_named(name: object, func: object) -> None:
    with pytest.raises(MisuseError, match="packed function") as caught:
        register_func(name, func)  # type: ignore[call-overload]
    assert isinstance(caught.value, TypeError)


class LimitError(Exception):
    """An error of a user's own, whose `__init__` takes more than a message."""

    def __init__(self, limit: int, *, unit: str) -> None:
        super().__init__(f"more than {limit} {unit}")
        self.limit = limit


class MeasuredError(KeyError):
    __slots__ = ("measure",)


class StrictError(Exception):
    def __new__(cls, first: object) -> "StrictError":
        return super().__new__(cls, first)


def failing(error: Exception) -> Callable[[object], object]:
    """A packed function that raises `error`."""

    def fail(x: object) -> object:
        raise error

    return fail


@R.function(pure=False)
def run_failing(x: R.Tensor):
    y = R.call_packed("test.failing", x, sinfo_args=R.Object)
    return y


def measured() -> MeasuredError:
    error = MeasuredError("key")
    error.measure = 3
    return error


ERRORS = [
    ValueError("negative"),
    OSError(2, "No such file", "model.bin"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    LimitError(3, unit="rows"),
    measured(),
    StrictError("first"),
    StopIteration(4),
    ZeroDivisionError(),
    MemoryError("the model is too large"),
    RecursionError("a tree too deep"),
    ExceptionGroup("several", [ValueError("first"), KeyError("second")]),
]


@pytest.mark.rule("EV-19")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("raised", ERRORS, ids=lambda e: type(e).__name__)
def test_what_a_packed_function_raises_is_a_packed_func_error_of_its_class(raised, target) -> None:
    register_func("test.failing", failing(raised), override=True)
    with pytest.raises(PackedFuncError) as caught:
        relaxpy.compile(IRModule({"run_failing": run_failing}), target)(X)
    error = caught.value
    assert error.failure is raised
    assert "packed function 'test.failing' raised" in str(error)
    assert str(raised) in str(error)
    assert "R.call_packed" in str(error), "the line of the program is shown"
    assert isinstance(error, type(raised))
    for name in ("args", "errno", "filename", "reason", "limit", "measure", "value", "exceptions"):
        assert getattr(error, name, None) == getattr(raised, name, None)
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert frames[-1] == "fail", "the innermost frame is the user's"


class WordlessError(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise LookupError("no words")


@pytest.mark.rule("EV-19")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_failure_without_a_text_is_told_by_its_class(target: str) -> None:
    register_func("test.failing", failing(WordlessError()), override=True)
    with pytest.raises(PackedFuncError, match="raised WordlessError: <its text: LookupError>") as e:
        relaxpy.compile(IRModule({"run_failing": run_failing}), target)(X)
    assert isinstance(e.value, WordlessError)


@pytest.mark.rule("EV-19")
def test_a_recursion_of_a_packed_function_is_told_as_its_own_through_each_call() -> None:
    register_func("test.failing", failing(RecursionError("a tree too deep")), override=True)
    vm = VirtualMachine(relaxpy.compile(IRModule({"run_failing": run_failing})))
    vm.set_input("run_failing", X)
    with pytest.raises(PackedFuncError, match=r"'test\.failing' raised RecursionError: a tree"):
        vm.invoke_stateful("run_failing")


@pytest.mark.rule("EV-19")
def test_what_is_not_a_failure_passes_as_it_is() -> None:
    @R.function(pure=False)
    def outer(x: R.Tensor):
        y = R.call_packed("test.inner", x, sinfo_args=R.Object)
        return y

    for raised in (KeyboardInterrupt(), SystemExit(3), RuntimeCheckError("too small", rule="MC-2")):
        register_func("test.inner", failing(raised), override=True)  # type: ignore[arg-type]
        with pytest.raises(type(raised)) as caught:
            relaxpy.compile(IRModule({"outer": outer}))(X)
        assert caught.value is raised


def test_a_failure_travels_by_pickle() -> None:
    register_func("test.failing", failing(OSError(2, "No such file")), override=True)
    with pytest.raises(PackedFuncError) as caught:
        relaxpy.compile(IRModule({"run_failing": run_failing}))(X)
    twin = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(twin, OSError)
    assert isinstance(twin, PackedFuncError)
    assert (twin.errno, str(twin)) == (2, str(caught.value))


BEFORE_ANY_COMPILATION = """
import numpy as np, relaxpy
relaxpy.register_func("vm.builtin.copy", lambda x: x + 1)
assert callable(relaxpy.get_global_func("vm.builtin.register_py_func"))
mod = relaxpy.script.from_source('''
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32")):
    return R.call_packed("vm.builtin.copy", x, sinfo_args=[R.Tensor((2,), "float32")])
''')
print(mod(np.zeros(2, "float32")))
"""


def test_builtins_are_found_and_replaced_before_any_compilation() -> None:
    found = subprocess.run(
        [sys.executable, "-c", BEFORE_ANY_COMPILATION], capture_output=True, text=True, check=False
    )
    assert (found.stdout, found.stderr) == ("[1. 1.]\n", "")


def test_samples_are_categories_of_their_rows() -> None:
    sample = relaxpy.get_global_func("vm.builtin.multinomial_from_uniform")
    prob = np.array([[0.25, 0.75], [0.5, 0.5], [0.0, 1.0]], "float32")
    uniform = np.array([[0.2], [0.5], [1.0]], "float32")
    np.testing.assert_array_equal(sample(prob, uniform), [[0], [1], [1]])


def test_tokens_are_chosen_by_their_probabilities() -> None:
    logits = np.log(np.array([[[0.1, 0.4, 0.2, 0.3]]])).astype("float32")
    by_prob, by_logits = (
        relaxpy.get_global_func(f"vm.builtin.sample_top_p_from_{name}")
        for name in ("prob", "logits")
    )
    # Of the three that 0.75 takes, in falling order, the shares are 4, 3 and 2 of 9.
    for top_p, u, token in (
        *((0.75, *pair) for pair in ((0, 1), (0.43, 1), (0.45, 3), (0.76, 3), (0.79, 2), (1, 2))),
        *((1.0, *pair) for pair in ((0.39, 1), (0.71, 2), (0.89, 2), (0.91, 0), (1, 0))),
        *((top_p, 0.99, 1) for top_p in (0, 0.3)),
    ):
        assert by_prob(np.exp(logits), top_p, u) == by_logits(logits, 1.0, top_p, u) == token
    # Twice the temperature: shares are square roots.
    shares = np.sqrt([0.4, 0.3, 0.2, 0.1])
    border = shares[0] / shares.sum()
    assert [by_logits(logits, 2.0, 1.0, border + d) for d in (-1e-3, 1e-3)] == [1, 3]
    assert by_logits(logits[0, 0], 0.0, 1.0, 0.99) == 1
    assert by_prob(np.array([np.nan, 0.5, 0.5], "float32"), 1.0, 0.3) == 1


def test_scores_of_tokens_are_lowered_in_place() -> None:
    repetition, presence, softmax = (
        relaxpy.get_global_func(f"vm.builtin.apply_{name}")
        for name in (
            "repetition_penalty",
            "presence_and_frequency_penalty",
            "softmax_with_temperature",
        )
    )
    logits = np.array([[2, -2, 0, 4]], "float32")
    repetition(logits, np.array([0, 1], "int32"), 2.0)
    np.testing.assert_array_equal(logits, [[1, -4, 0, 4]])
    presence(logits, np.array([[3, 2]], "int32"), np.array([[4, 1]], "int32"), 1.0, 0.5)
    np.testing.assert_array_equal(logits, [[1, -4, -1.5, 1]])
    softmax(logits, 2.0)
    wanted = np.exp([0.5, -2, -0.75, 0.5])
    np.testing.assert_allclose(logits, [wanted / wanted.sum()], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("sample_top_p_from_prob", (np.ones((2, 3), "float32"), 1, 0), "shape (2, 3), expected"),
        ("sample_top_p_from_prob", (np.ones(3), 1, 0), "datatype float64, expected float32"),
        ("sample_top_p_from_prob", (5, 1, 0), "prob is not a tensor"),
        ("sample_top_p_from_prob", (np.full(2, np.nan, "float32"), 1, 0), "no probability is a"),
        ("apply_softmax_with_temperature", (np.ones(3, "float32"), 0), "positive, found 0"),
        (
            "apply_repetition_penalty",
            (np.ones(3, "float32"), np.array([3], "int32"), 2.0),
            "tokens are from 0 to 2, found 3",
        ),
    ],
)
def test_scores_are_one_row_of_numbers(name: str, args: tuple[object, ...], message: str) -> None:
    with pytest.raises(RuntimeCheckError, match=re.escape(message)):
        relaxpy.get_global_func(f"vm.builtin.{name}")(*args)


@pytest.mark.rule("PU-13")
def test_a_copy_is_a_call_with_effects() -> None:
    call = R.call_packed("vm.builtin.copy", relaxpy.relax.const([1.0]), sinfo_args=R.Object)
    assert relaxpy.relax.analysis.contains_impure_call(call)
    assert relaxpy.get_global_func("vm.builtin.copy")(3) == 3
