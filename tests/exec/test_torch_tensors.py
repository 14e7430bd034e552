"""Tensors of torch: read everywhere as their data, and returned where an argument is one.

Each test runs with a stand-in for torch, and with torch itself where it is installed.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy import relax, relay, runtime
from relaxpy.errors import FunctionSignatureError, MisuseError, RelaxpyError, RuntimeCheckError
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import spec
from relaxpy.relax.training import SetupTrainer, Trainer
from relaxpy.relax.training.loss import MSELoss
from relaxpy.relax.training.optimizer import SGD
from relaxpy.script import from_source, relax as R

DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "int8", "int64", "uint8", "bool"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
)


class StandIn:
    """A tensor with those methods of torch's that relaxpy calls, which refuse what torch's do."""

    def __init__(self, array: Any, *, requires_grad: bool = False, device: str = "cpu") -> None:
        self.array, self.requires_grad, self.device = array, requires_grad, device

    @property
    def dtype(self) -> str:
        return f"torch.{self.array.dtype.name}"

    def detach(self) -> "StandIn":
        return StandIn(self.array, device=self.device)

    def resolve_neg(self) -> "StandIn":
        return self

    def view(self, dtype: str) -> "StandIn":
        return StandIn(self.array.view(getattr(ml_dtypes, dtype, dtype)))

    def numpy(self) -> Any:
        if self.requires_grad or self.device != "cpu" or hasattr(ml_dtypes, self.array.dtype.name):
            raise RuntimeError("Can't call numpy()")
        return self.array

    def __dlpack__(self) -> Any:
        raise BufferError("unsupported")

    __array__ = numpy


StandIn.__module__ = "torch"


class Torch:
    """How tests make tensors and look at them."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.kind: type = getattr(module, "Tensor", StandIn)

    def tensor(self, array: Any, *, requires_grad: bool = False) -> Any:
        if self.kind is StandIn:
            return StandIn(array, requires_grad=requires_grad)
        bits = hasattr(ml_dtypes, array.dtype.name)
        plain = array.view(f"int{8 * array.itemsize}") if bits else array
        tensor = self.module.from_numpy(plain)
        tensor = tensor.view(getattr(self.module, array.dtype.name)) if bits else tensor
        return tensor.requires_grad_(requires_grad)

    def array(self, tensor: Any) -> Any:
        """The elements, by their bits if NumPy lacks the datatype."""
        if self.kind is StandIn:
            return tensor.array
        name = str(tensor.dtype).removeprefix("torch.")
        if hasattr(ml_dtypes, name):
            bits = f"uint{8 * tensor.element_size()}"
            return tensor.view(getattr(self.module, bits)).numpy().view(getattr(ml_dtypes, name))
        return tensor.numpy()


@pytest.fixture(params=["stand-in", "torch"])
def torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Torch:
    if request.param == "torch":
        return Torch(pytest.importorskip("torch"))
    module: Any = ModuleType("torch")
    module.from_numpy = StandIn
    for name in ("int16", "uint8", *(name for name in DTYPES if hasattr(ml_dtypes, name))):
        setattr(module, name, name)
    monkeypatch.setitem(sys.modules, "torch", module)
    return Torch(module)


def values(dtype: str) -> Any:
    return np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, dtype, dtype))


def same(x: Any, y: Any) -> bool:
    """Whether two arrays have equal datatypes, shapes and bytes."""
    return x.dtype == y.dtype and x.shape == y.shape and bool(x.tobytes() == y.tobytes())


def program(dtype: str) -> Any:
    return from_source(f"""
@R.function
def main(x: R.Tensor((2, 3), "{dtype}")):
    return x, (R.permute_dims(x), R.shape_of(x))
""")


def jitted(dtype: str) -> Any:
    class Model(nn.Module):
        def forward(self, x: nn.Tensor) -> Any:
            return x, (nn.permute_dims(x),)

    return Model().jit({"forward": {"x": spec.Tensor([2, 3], dtype)}})["forward"]


WAYS: dict[str, Callable[[str], Any]] = {
    "ex": lambda dtype: relaxpy.compile(program(dtype), "numpy")["main"],
    "native": lambda dtype: relaxpy.compile(program(dtype))["main"],
    "reference": lambda dtype: relaxpy.compile(program(dtype), "reference")["main"],
    "vm": lambda dtype: relaxpy.VirtualMachine(relaxpy.compile(program(dtype), "numpy"))["main"],
    "decorated": program,
    "jit": jitted,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
def test_results_are_of_torch_if_an_argument_is(torch: Torch, way: str, dtype: str) -> None:
    call, x = WAYS[way](dtype), values(dtype)
    direct, (turned, *_) = call(torch.tensor(x))
    assert isinstance(direct, torch.kind)
    assert isinstance(turned, torch.kind)
    assert same(torch.array(direct), x)
    assert np.shares_memory(torch.array(direct).view("uint8"), x.view("uint8"))
    assert same(torch.array(turned), x.T.copy())
    direct, (turned, *_) = call(x)
    kind = runtime.Tensor if way in ("vm", "jit") else np.ndarray
    assert type(turned) is kind
    assert same(np.asarray(turned), x.T.copy())


@pytest.mark.parametrize("way", WAYS)
def test_tensors_that_require_gradients_are_their_data(torch: Torch, way: str) -> None:
    x = values("float32")
    direct, _ = WAYS[way]("float32")(torch.tensor(x, requires_grad=True))
    assert not direct.requires_grad
    assert same(torch.array(direct), x)


def bound(value: Any) -> Any:
    func = program(str(value.dtype).removeprefix("torch."))
    mod = relaxpy.IRModule({"main": func})
    return relaxpy.compile(relax.transform.BindParams("main", {"x": value})(mod), "numpy")()[0]


READERS: dict[str, Callable[[Any], Any]] = {
    "const": lambda x: relax.const(x, str(x.dtype).removeprefix("torch.")).data,
    "R.const": lambda x: R.const(x, str(x.dtype).removeprefix("torch.")).data,
    "Constant": lambda x: relax.Constant(x).data,
    "relay.const": lambda x: relay.Constant(x).data,
    "tensor": lambda x: np.asarray(runtime.tensor(x)),
    "from_dlpack": lambda x: np.asarray(runtime.from_dlpack(x)),
    "BindParams": bound,
    "save_param_dict": lambda x: np.asarray(
        runtime.load_param_dict(runtime.save_param_dict({"x": x}))["x"]
    ),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_are_read_in_every_datatype(torch: Torch, reader: str, dtype: str) -> None:
    x = values(dtype)
    requires_grad = dtype in ("float32", "bfloat16")
    if reader == "save_param_dict" and dtype.startswith("float8"):
        pytest.skip("the format has no such datatype")
    assert same(READERS[reader](torch.tensor(x, requires_grad=requires_grad)), x)
    assert same(READERS[reader](torch.tensor(np.asfortranarray(x))), x)


@pytest.mark.parametrize("reader", [*READERS, "argument", "parameter"])
def test_tensors_on_other_devices_are_refused(reader: str) -> None:
    read = {
        **READERS,
        "argument": lambda x: relaxpy.compile(program("float32"), "numpy")["main"](x),
        "parameter": lambda x: setattr(nn.Parameter([2, 3], "float32"), "data", x),
    }[reader]
    with pytest.raises(RelaxpyError, match=r"it is on cuda:0; tensor.cpu\(\) is in main memory"):
        read(StandIn(values("float32"), device="cuda:0"))


class Model(nn.Module):
    def __init__(self) -> None:
        self.layers = nn.ModuleList([nn.Linear(3, 2), nn.Linear(2, 4)])


def state(torch: Torch, dtype: str = "float32") -> dict[str, Any]:
    shapes = [(name, param.shape) for name, param in Model().named_parameters()]
    numpy = getattr(ml_dtypes, dtype, dtype)
    return {name: torch.tensor(np.ones(shape, numpy)) for name, shape in shapes}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2"])
def test_a_state_of_torch_is_loaded(torch: Torch, dtype: str) -> None:
    model = Model()
    model.to(dtype)
    assert model.load_state_dict(state(torch, dtype)) == ([], [])
    assert {str(param.data.dtype) for param in model.parameters()} == {dtype}  # type: ignore[union-attr]


def test_an_error_names_all_parameters_that_do_not_fit(torch: Torch) -> None:
    model = Model()
    wrong = state(torch)
    wrong["layers.0.bias"] = torch.tensor(np.ones((3, 3), "float32"))
    wrong["layers.1.weight"] = torch.tensor(np.ones((4, 2), ml_dtypes.bfloat16))
    with pytest.raises(MisuseError) as caught:
        model.load_state_dict(wrong)
    text = str(caught.value)
    assert (
        "parameter layers.0.bias: a parameter of shape (2,) cannot have a value of shape (3, 3)"
        in text
    )
    assert (
        "parameter layers.1.weight: a parameter of float32 cannot have a value of bfloat16" in text
    )
    assert "layers.0.weight" not in text
    assert all(param.data is None for param in model.parameters())
    with pytest.raises(MisuseError) as caught:
        model.load_state_dict(state(torch, "bfloat16"))
    assert "value.to(torch.float32)" in str(caught.value)
    assert 'model.to("bfloat16")' in str(caught.value)


def test_a_trainer_takes_and_returns_tensors(torch: Torch) -> None:
    @R.function
    def backbone(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 1), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y

    mod = relaxpy.IRModule({"backbone": backbone}).with_attrs({"param_num": 1, "state_num": 0})
    out = R.Tensor((2, 1), "float32")
    mod = SetupTrainer(MSELoss(), SGD(0.1), [out, out])(mod)
    trainer = Trainer(mod, relaxpy.VirtualMachine(relaxpy.compile(mod, "numpy")))
    trainer.load_params([torch.tensor(np.ones((3, 1), "float32"), requires_grad=True)])
    x, y = np.ones((2, 3), "float32"), np.zeros((2, 1), "float32")
    assert isinstance(trainer.predict(torch.tensor(x)), torch.kind)
    loss = trainer.update(torch.tensor(x), torch.tensor(y))
    assert torch.array(loss) == 9
    assert isinstance(trainer.update(x, y), np.ndarray)
    assert isinstance(trainer.export_params()["w"], np.ndarray)


def test_what_torch_cannot_provide_is_an_error_that_says_why() -> None:
    torch = pytest.importorskip("torch")
    sparse = torch.eye(3).to_sparse()
    with pytest.raises(FunctionSignatureError, match="to_dense"):
        relaxpy.compile(program("float32"), "numpy")["main"](sparse)


def test_elements_that_torch_negates_when_it_reads_them() -> None:
    torch = pytest.importorskip("torch")
    x = torch.complex(torch.ones(2, 3), torch.ones(2, 3)).conj().imag
    assert x.is_neg()
    _, (transposed, _) = relaxpy.compile(program("float32"), "numpy")["main"](x)
    assert transposed.tolist() == [[-1, -1]] * 3
    assert relax.const(x).data.numpy().tolist() == x.tolist()
    clear = from_source(
        """
@T.prim_func
def clear(x: T.Buffer((2, 3))):
    for i, j in T.grid(2, 3):
        x[i, j] = T.float32(0)
"""
    )
    with pytest.raises(RuntimeCheckError, match="the memory of buffer x is read-only"):
        relaxpy.compile(clear, "numpy")["clear"](x)


def test_an_operand_is_refused_with_what_to_write(torch: Torch) -> None:
    operand = torch.tensor(np.ones((2, 2), "float32"))
    with pytest.raises(MisuseError, match="expected a Relax expression, found") as caught:
        R.add(relax.Var("x", R.Tensor((2, 2), "float32")), operand)
    message, hint = caught.value.diagnostic.message, caught.value.diagnostic.hint
    assert ("value of type" in message) == ("\n" in repr(operand))
    assert "Tensor a value" not in message
    assert hint == "relax.const(array) is a constant"
