"""BasePyModule: graph functions, kernels and Python functions that call each other."""

import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, tir
from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.relax.base_py_module import BasePyModule
from relaxpy.relax.relax_to_pyfunc_converter import RelaxToPyFuncConverter
from relaxpy.script import ir as I, relax as R, tir as T

X = np.arange(5, dtype="float32")


@I.ir_module
class Module(BasePyModule):
    @I.pyfunc
    def doubled(self, x):
        return self.call_tir(self.add, [x, x], out_sinfo=R.Tensor((5,), "float32"))

    @I.pyfunc
    def parts(self, x, at=2):
        return x[:at], x[at:]

    @I.pyfunc
    @staticmethod
    def fails(x):
        raise ValueError("no way")

    @T.prim_func(private=True)
    def add(
        A: T.Buffer((5,), "float32"), B: T.Buffer((5,), "float32"), C: T.Buffer((5,), "float32")
    ):
        for i in range(5):
            C[i] = A[i] + B[i]

    @R.function
    def main(x: R.Tensor((5,), "float32")) -> R.Tensor((5,), "float32"):
        a = R.call_py_func("doubled", (x,), out_sinfo=R.Tensor((5,), "float32"))
        b = R.call_py_func("parts", a, out_sinfo=[R.Tensor((2,), "float32"), R.Tensor(ndim=1)])
        return R.match_cast(R.concat([b[1], b[0]]), R.Tensor((5,), "float32"))

    @R.function(pure=False)
    def direct(x: R.Tensor((5,), "float32")) -> R.Object:
        f = Module.doubled
        return (Module.doubled(x), f(x))

    @R.function
    def failing(x: R.Tensor((5,), "float32")):
        return R.call_py_func("fails", (x,), out_sinfo=R.Object)


WANTED = [4, 6, 8, 0, 2]


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_programs_call_python_functions_of_their_module(target: str) -> None:
    instance = Module(target=target)
    np.testing.assert_array_equal(instance.main(X), WANTED)
    for found in instance.direct(X):
        np.testing.assert_array_equal(found, 2 * X)
    np.testing.assert_array_equal(relaxpy.compile(Module, target)["main"](X), WANTED)
    with pytest.raises(ValueError, match="no way"):
        instance.failing(X)


def test_a_python_function_of_the_module_comes_before_a_registered_one() -> None:
    relaxpy.register_func("doubled", lambda x: x - 1)
    try:
        np.testing.assert_array_equal(Module().main(X), WANTED)
        np.testing.assert_array_equal(relaxpy.compile(Module)["main"](X), WANTED)
        assert (Module().direct(X)[0] == 2 * X).all()
    finally:
        relaxpy.exec.runtime.registry.remove_global_func("doubled")


def test_instances_are_apart() -> None:
    first, second = Module(), Module()
    first.add_python_function("doubled", lambda x: -x)
    np.testing.assert_array_equal(first.main(X), [-2, -3, -4, 0, -1])
    np.testing.assert_array_equal(second.main(X), WANTED)


def test_functions_are_methods() -> None:
    instance = BasePyModule(Module, "cpu")
    np.testing.assert_array_equal(instance.doubled(X), 2 * X)
    assert len(instance.parts(X, at=1)[1]) == 4
    out = np.zeros(5, "float32")
    instance.add(X, X, out)
    np.testing.assert_array_equal(out, 2 * X)
    assert instance.list_functions() == {
        "tir": ["add"],
        "relax": ["main", "direct", "failing"],
        "extern": [],
        "python": ["doubled", "parts", "fails"],
    }
    assert instance.get_function("add") is instance.add
    assert instance.get_function("nothing") is None
    assert instance.script() == Module.script()
    assert instance["main"] is Module["main"]
    np.testing.assert_array_equal(instance.relax_vm["main"](X), WANTED)
    with pytest.raises(AttributeError):
        _ = instance.nothing


def test_open_sizes_are_those_of_the_first_input_of_the_rank() -> None:
    infer = BasePyModule(IRModule({}))._infer_concrete_shape_from_args
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    arrays = [np.zeros(7), np.zeros((2, 3)), np.zeros((4, 5))]
    assert infer([n, m], arrays) == [2, 3]
    assert infer([n, 9], arrays) == [2, 9]
    assert infer([tir.IntImm("int32", 5), 6], in_args=[]) == [5, 6]
    with pytest.raises(ValueError, match="infer concrete output shape: dimension 0, n, is not"):
        infer([n, m], [np.zeros(3)])


def test_python_functions_by_name() -> None:
    instance = Module()
    np.testing.assert_array_equal(instance.call_py_func("doubled", [X]), 2 * X)
    with pytest.raises(ValueError, match="Python function 'nothing' not found"):
        instance.call_py_func("nothing", [X])
    with pytest.raises(MisuseError, match="a Python function is callable"):
        instance.add_python_function("f", 5)
    with pytest.raises(MisuseError, match="expected an IRModule"):
        BasePyModule(5)


@pytest.mark.parametrize(
    "out",
    [
        R.Tensor((10,), "float32"),
        R.Tensor(("n * 2",), "float32"),
        relax.TensorStructInfo((tir.Var("n", "int64") * 2,), "float32"),
        (10,),
        [(10,)],
    ],
)
def test_outputs_of_kernels_are_as_large_as_said_or_as_the_kernel_makes_them(out: object) -> None:
    @T.prim_func
    def twice(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n * 2,), "float32")
        for i in range(n * 2):
            B[i] = A[i // 2]

    instance = BasePyModule(IRModule({"twice": twice}))
    for kernel in (twice, "twice", instance.twice):
        np.testing.assert_array_equal(instance.call_tir(kernel, [X], out), np.repeat(X, 2))
        np.testing.assert_array_equal(instance.call_tir(kernel, [X], out_ty=out), np.repeat(X, 2))
    with pytest.raises(MisuseError, match="struct info of an output with a shape, found None"):
        instance.call_tir("twice", [X])
    with pytest.raises(ValueError, match="the module has no kernel 'once'; it has twice"):
        instance.call_tir("once", [X], out)
    with pytest.raises(MisuseError, match="struct info of an output with a shape"):
        instance.call_tir("twice", [X], R.Object())


def test_packed_functions_write_their_outputs() -> None:
    instance = BasePyModule(IRModule())
    relaxpy.register_func("test.negate", lambda x, out: np.negative(x, out))
    try:
        found = instance.call_dps_packed("test.negate", [X], R.Tensor(("n",), "float32"))
        again = instance.call_dps_packed("test.negate", [X], out_ty=R.Tensor(("n",), "float32"))
    finally:
        relaxpy.exec.runtime.registry.remove_global_func("test.negate")
    np.testing.assert_array_equal(found, -X)
    np.testing.assert_array_equal(again, -X)
    instance.add_python_function("own", lambda x, by: x * by)
    np.testing.assert_array_equal(instance.call_dps_packed("own", [X, 3], None), 3 * X)
    with pytest.raises(ValueError, match=r"test\.nothing"):
        instance.call_dps_packed("test.nothing", [X], R.Tensor((5,)))


class Tensor:
    """As much of a tensor of torch as is used."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data

    shape = property(lambda self: self.data.shape)

    def detach(self) -> "Tensor":
        return self

    cpu = resolve_neg = detach

    def numpy(self) -> np.ndarray:
        return self.data

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.data

    def __getitem__(self, key: object) -> "Tensor":
        return Tensor(self.data[key])


@I.ir_module
class Graph:
    @T.prim_func
    def add(A: T.Buffer((5,), "float32"), B: T.Buffer((5,), "float32"), C: T.Buffer((5,))):
        for i in range(5):
            C[i] = A[i] + B[i]

    @R.function
    def doubled(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return R.add(x, x)

    @R.function
    def main(x: R.Tensor((5,), "float32")) -> R.Tensor((5,), "float32"):
        y = Graph.doubled(x)
        return R.call_tir(Graph.add, (y, x), out_sinfo=R.Tensor((5,), "float32"))


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_relax_function_becomes_one_of_python(target: str) -> None:
    converter = RelaxToPyFuncConverter(Graph)
    converted = converter.convert("doubled")
    assert list(converted.pyfuncs) == ["doubled"]
    assert Graph.pyfuncs == {}
    np.testing.assert_array_equal(converted.pyfuncs["doubled"](X[:3]), X[:3] * 2)
    np.testing.assert_array_equal(BasePyModule(converted, target=target).main(X), X * 3)
    both = converter.convert(["main", "doubled"])
    np.testing.assert_array_equal(both.pyfuncs["main"](X), X * 3)
    assert relax.analysis.well_formed(both)
    with pytest.raises(ValueError, match="Relax function 'add' not found in the module"):
        converter.convert(["add"])
    with pytest.raises(MisuseError, match="expected an IRModule, found int"):
        RelaxToPyFuncConverter(3)  # type: ignore[arg-type]


def test_tensors_of_torch_come_back_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "__module__", "torch")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(from_numpy=Tensor))
    instance = Module()
    for found in (instance.main(Tensor(X)), instance.main(x=Tensor(X))):
        assert isinstance(found, Tensor)
        np.testing.assert_array_equal(found.data, WANTED)
    assert isinstance(instance.main(X), np.ndarray)
    assert isinstance(instance.call_tir("add", [Tensor(X), X], R.Tensor((5,))), Tensor)
    assert isinstance(instance._convert_tvm_to_pytorch([X])[0], Tensor)
    assert instance._convert_pytorch_to_tvm([Tensor(X)])[0] is X


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.call_tir("add", [X, X], (-5,)), "cannot allocate a float32 tensor of shape"),
        (lambda m: m.call_tir("add", X, (5,)), "args is a list of inputs, found a float32 tensor"),
        (lambda m: m.call_py_func("doubled", None), "args is a list of inputs"),
        (lambda m: m.call_py_func(["doubled"], [X]), "not found in the module"),
        (lambda m: m.call_dps_packed("doubled", X, None), "args is a list of inputs"),
        (lambda m: m.call_dps_packed(5, [X], (5,)), "no packed function is registered as 5"),
        (lambda m: m.add_python_function(5, len), "a function cannot be called 5"),
        (lambda m: m.add_python_function("executable", len), "cannot be called 'executable'"),
    ],
)
def test_wrong_arguments_are_told(call: Callable[[BasePyModule], object], message: str) -> None:
    with pytest.raises(RelaxpyError, match=message):
        call(Module())


def test_functions_do_not_take_the_names_of_what_an_instance_keeps() -> None:
    taken = IRModule({"target": Module["add"]})
    with pytest.raises(MisuseError, match="a function of a BasePyModule cannot be called target"):
        BasePyModule(taken)


def test_a_misspelled_function_is_one_of_the_object_and_shown_where_it_stands() -> None:
    program = Module(Module)
    with pytest.raises(AttributeError, match="Module has no attribute 'doublet'") as caught:
        program.doublet(X)
    assert isinstance(caught.value, RelaxpyError)
    assert "did you mean 'doubled'?" in str(caught.value)
    assert "program.doublet(X)" in str(caught.value)
    assert "mod[" not in str(caught.value), "items are functions of the text, which do not run"


def test_packed_functions_get_tensors() -> None:
    def add(a, b, out):
        out[:] = a.numpy() + b

    relaxpy.register_func("test.add_tensors", add, override=True)
    instance = BasePyModule(IRModule(), relaxpy.cpu())
    n = tir.Var("n", "int64")
    found = instance.call_dps_packed(
        "test.add_tensors", [X, 2.5], relax.TensorStructInfo((n,), "float32")
    )
    np.testing.assert_array_equal(found, X + 2.5)
