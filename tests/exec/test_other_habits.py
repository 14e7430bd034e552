"""What users of TVM, NumPy and PyTorch write first: a result, or an error with a hint."""

import copy
import pickle
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError, RelaxpyError, UnknownAttributeError
from relaxpy.script import relax as R
from tests.ir.relax.texts import module

ONES = np.ones(4, "float32")

MLP = module("""
def main(x: f32[4], w: f32[4]):
    return x + w

@private
def other(x: f32[4]):
    return x
""")


class Plain:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return x


class TvmTarget:
    """What `tvm.target.Target("llvm")` looks like."""

    kind = "llvm"

    def __repr__(self) -> str:
        return "llvm -keys=cpu"


EX = relaxpy.compile(MLP)
VM = relaxpy.VirtualMachine(EX)

CALL = 'relaxpy.compile(mod)["main"](...)'
NO_TARGET = "programs run on the CPU"
REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "MLP(x, w)": (lambda: MLP(ONES, ONES), TypeError, CALL),
    "MLP(x, w, x)": (lambda: MLP(ONES, ONES, ONES), TypeError, CALL),
    "MLP(x=x)": (lambda: MLP(x=ONES, w=ONES), TypeError, CALL),
    "MLP.main": (lambda: MLP.main, AttributeError, 'mod["main"]'),
    "MLP.other": (lambda: MLP.other, AttributeError, 'mod["other"]'),
    "MLP.forward": (lambda: MLP.forward, AttributeError, "mod(x)"),
    "MLP.functons": (lambda: MLP.functons, AttributeError, "did you mean 'functions'?"),
    "R.py_module": (lambda: R.py_module, AttributeError, "decorate the class with @I.ir_module"),
    "ex.profile(repeats)": (
        lambda: EX.profile(ONES, ONES, repeats=3),
        TypeError,
        "did you mean 'repeat'?",
    ),
    "compile(targt)": (
        lambda: relaxpy.compile(MLP, targt="numpy"),
        TypeError,
        "did you mean 'target'?",
    ),
    "compile(gpu)": (lambda: relaxpy.compile(MLP, "gpu"), ValueError, NO_TARGET),
    "ex.main": (lambda: EX.main, AttributeError, 'ex["main"]'),
    "ex.run": (lambda: EX.run, AttributeError, "ex(x)"),
    "ex.reports": (lambda: EX.reports, AttributeError, "did you mean 'report'?"),
    "vm.main": (lambda: VM.main, AttributeError, 'vm["main"]'),
    "vm.invoke": (lambda: VM.invoke, AttributeError, 'vm["main"]'),
    "vm.set_inputs": (lambda: VM.set_inputs, AttributeError, "did you mean 'set_input'?"),
    "vm['man']": (lambda: VM["man"], KeyError, "did you mean 'main'?"),
    "compile(Plain)": (lambda: relaxpy.compile(Plain), TypeError, "@I.ir_module class Plain"),
    "compile(lambda)": (lambda: relaxpy.compile(lambda x: x), TypeError, "@R.function"),
    "compile('def ...')": (lambda: relaxpy.compile("def"), TypeError, "from_source(text)"),
    "a pass of a class": (lambda: relax.transform.LegalizeOps()(Plain), TypeError, "@I.ir_module"),
    "VirtualMachine(MLP)": (lambda: relaxpy.VirtualMachine(MLP), TypeError, "compile the module"),
    "Executable(MLP)": (lambda: relaxpy.Executable(MLP), TypeError, "compile the module"),
    "Executable(ex)": (lambda: relaxpy.Executable(EX), TypeError, "it is an executable already"),
    "ex['main'](list)": (lambda: EX["main"]([1, 2, 3, 4], ONES), RuntimeError, "numpy.asarray"),
    "float64": (lambda: EX["main"](np.ones(4), ONES), RuntimeError, '.astype("float32")'),
    **{
        f"{build.__name__} {target}": (partial(build, MLP, target), ValueError, NO_TARGET)
        for target in ("cuda", "vulkan -keys=gpu", TvmTarget())
        for build in (relaxpy.compile, relax.build)
    },
    "target nunpy": (lambda: relaxpy.compile(MLP, "nunpy"), ValueError, "did you mean 'numpy'?"),
}


@pytest.mark.parametrize("attempt", REFUSED)
def test_a_first_attempt_is_refused_with_what_to_write(attempt: str) -> None:
    run, kind, hint = REFUSED[attempt]
    with pytest.raises(kind) as caught:
        run()
    assert isinstance(caught.value, RelaxpyError)
    assert hint in (caught.value.diagnostic.hint or "")


def test_executables_and_machines_run_main_and_list_their_functions() -> None:
    assert EX(ONES, ONES).tolist() == VM(ONES, ONES).tolist() == VM(x=ONES, w=ONES).tolist()
    assert list(EX) == list(VM) == ["main"]
    assert len(EX) == 1
    assert "main" in VM
    assert "other" not in VM
    VM.save_function("main", "saved", ONES, ONES)
    assert list(VM) == ["saved", "main"]
    assert VM["saved"]().tolist() == [2] * 4


@pytest.mark.parametrize("value", [MLP, EX, VM], ids=["module", "executable", "machine"])
def test_attributes_that_python_looks_for_are_missed_as_python_expects(value: object) -> None:
    assert not hasattr(value, "__array__")
    assert not hasattr(value, "_repr_latex_")
    with pytest.raises(AttributeError) as caught:
        value.__array_interface__  # noqa: B018
    assert not isinstance(caught.value, UnknownAttributeError)
    assert copy.copy(value) is not None


def test_copies_and_pickles_of_modules_have_their_functions() -> None:
    again = pickle.loads(pickle.dumps(MLP))
    relaxpy.ir.assert_structural_equal(again, MLP)
    assert copy.deepcopy(MLP) is not MLP


def test_a_module_without_functions_says_so() -> None:
    with pytest.raises(MisuseError, match="its functions are none"):
        relaxpy.IRModule()(ONES)


def test_arguments_that_a_function_does_not_take_are_shown_with_its_signature() -> None:
    with pytest.raises(TypeError) as caught:
        relaxpy.load_executable()  # type: ignore[call-arg]
    assert isinstance(caught.value, MisuseError)
    assert "load_executable() missing 1 required positional argument: 'path'" in str(caught.value)
    assert "note: its signature is load_executable(path, *, native_code=False)" in str(caught.value)
    assert "relaxpy.load_executable()" in str(caught.value)  # the line of the call
    assert [entry.path for entry in caught.traceback][-1].name == "test_other_habits.py"


def test_an_error_of_a_user_function_stays() -> None:
    def oracle(x: object, w: object) -> None:
        oracle(1, 2, 3)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given") as caught:
        relaxpy.testing.check_targets(MLP, oracle=oracle)
    assert not isinstance(caught.value, RelaxpyError)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: relaxpy.load_executable("nothing.rxp"), FileNotFoundError),
        (lambda: EX.save("nothing/model.rxp"), FileNotFoundError),
        (lambda: EX.profile(ONES, ONES, trace="nothing/trace.json"), FileNotFoundError),
        (lambda: relaxpy.testing.check_targets(MLP, oracle=lambda x, w: x), AssertionError),
        (lambda: relaxpy.testing.assert_allclose(ONES, 2 * ONES), AssertionError),
    ],
)
def test_errors_of_files_and_assertions_have_no_frames_of_relaxpy(call, kind) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert {entry.path.name for entry in caught.traceback} == {"test_other_habits.py"}
