"""AppendLoss, SetupTrainer and Trainer."""

import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import (
    MisuseError,
    RelaxpyError,
    StructInfoError,
    TransformError,
    UnknownNameError,
)
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import spec
from relaxpy.relax.frontend.weights import open_weights, save_weights
from relaxpy.relax.training import AppendLoss, SetupTrainer, Trainer
from relaxpy.relax.training.loss import CrossEntropyLoss, L1Loss, MSELoss
from relaxpy.relax.training.optimizer import SGD, Adam
from relaxpy.script import relax as R
from tests.ir.relax.texts import graph, module

SCALAR = relax.TensorStructInfo((), "float32")


@R.function
def sum_of_both(a: R.Tensor(("k",), "float32"), b: R.Tensor(("k",), "float32")):
    with R.dataflow():
        gv = R.sum(R.add(a, b))
        R.output(gv)
    return gv


def test_results_that_the_loss_does_not_take_are_returned() -> None:
    Before = graph("""
    def main(x: f32[n]):
        gv = R.exp(x)
        gv1 = R.negative(x)
        gv2 = R.sin(x)
        return (gv, gv1, gv2)
    """)
    After = graph("""
    def main_loss(x: f32[n]):
        lv = R.exp(x)
        lv1 = R.negative(x)
        gv2 = R.sin(x)
        lv3 = R.add(lv, lv1)
        loss = R.sum(lv3)
        return (loss, gv2)
    """)
    found = AppendLoss("main", sum_of_both, 2)(Before)
    assert_structural_equal(found["main_loss"], After["main_loss"])
    assert found["main"] is Before["main"]
    main = Before.get_global_var("main")
    for name in ("trained", relax.GlobalVar("trained")):
        renamed = AppendLoss(main, sum_of_both, 2, new_func_name=name)(Before)
        assert renamed["trained"].attrs["global_symbol"] == "trained"


def test_the_sizes_of_the_loss_are_those_of_the_model() -> None:
    Model = graph("""
    def main(x: f32[n]):
        gv = R.concat((x, x))
        return gv
    """)
    found = AppendLoss("main", sum_of_both)(Model)["main_loss"]
    x, targets = found.params
    n = x.struct_info.shape.values[0]
    assert relaxpy.arith.Analyzer().can_prove_equal(targets.struct_info.shape.values[0], 2 * n)


Two = module("""
def main(x: f32[3]):
    with R.dataflow():
        gv = R.exp(x)
        gv1 = R.negative(x)
    return (gv, (gv, gv1))

def ordinary(x: f32[3]):
    gv = R.exp(x)
    return gv

def one(x: f32[3]):
    with R.dataflow():
        gv = R.exp(x)
    return gv
""")


@R.function
def vector(a: R.Tensor((3,), "float32")):
    with R.dataflow():
        gv = R.exp(a)
        R.output(gv)
    return gv


@R.function
def of_doubles(a: R.Tensor((3,), "float64")):
    with R.dataflow():
        gv = R.sum(a)
        R.output(gv)
    return gv


@pytest.mark.parametrize(
    ("name", "loss", "count", "error", "message"),
    [
        ("main", sum_of_both, 1, TransformError, "a variable or a tuple of variables"),
        ("ordinary", sum_of_both, 1, TransformError, "ordinary is not one DataflowBlock"),
        ("one", vector, 1, TransformError, "a loss is a float of rank 0"),
        ("one", of_doubles, 1, StructInfoError, "float64"),
        ("one", sum_of_both, 2, TransformError, "returns 1 result"),
        ("one", vector, 0, TransformError, "no 0 to pass"),
        ("none", sum_of_both, 1, UnknownNameError, "no function 'none'"),
        ("one", 3, 1, MisuseError, "loss_function is a Function"),
        (3, sum_of_both, 1, MisuseError, "func_name is a string or a GlobalVar"),
    ],
)
def test_losses_that_do_not_fit(name, loss, count, error, message) -> None:
    with pytest.raises(error, match=message):
        AppendLoss(name, loss, count)(Two)


def test_a_loss_replaces_no_function() -> None:
    vector = relax.TensorStructInfo((3,), "float32")
    loss = L1Loss()(vector, vector)
    once = AppendLoss("one", loss)(Two)
    for again in (AppendLoss("one", loss), AppendLoss("main", loss, new_func_name="one_loss")):
        with pytest.raises(TransformError, match="has a function one_loss already"):
            again(once)
    with pytest.raises(MisuseError, match="new_func_name is a string or a GlobalVar"):
        AppendLoss("one", loss, new_func_name=3)


#: y = x @ w + b, and a state that counts the calls.
Regression = module("""
I.module_attrs({"param_num": 2, "state_num": 1})

def backbone(x: f32[n, 3], w: f32[3, 2], b: f32[2], calls: f32):
    with R.dataflow():
        y = R.add(R.matmul(x, w), b)
        calls_new = R.add(calls, R.const(1, "float32"))
    return (y, calls_new)
""")


def prepared(loss: Any, optimizer: Any, **options: Any) -> IRModule:
    n = relaxpy.tir.Var("n", "int64")
    out = relax.TensorStructInfo((n, 2), "float32")
    return SetupTrainer(loss, optimizer, [out, out], **options)(Regression)


@functools.cache
def compiled() -> tuple[IRModule, relaxpy.Executable]:
    mod = prepared(MSELoss(), Adam(0.05))
    return mod, relaxpy.compile(mod)


def trainer(*, zeros: bool = True) -> Trainer:
    mod, executable = compiled()
    return Trainer(mod, relax.VirtualMachine(executable), None, zeros)


def test_a_regression_finds_its_weights() -> None:
    random = np.random.default_rng(0)
    w, b = random.standard_normal((3, 2)), random.standard_normal(2)
    trained = trainer()
    losses = []
    for step in range(600):
        x = random.standard_normal((16 if step % 2 else 5, 3)).astype("float32")
        losses.append(trained.update(x, (x @ w + b).astype("float32")))
    assert losses[-1] < 1e-4 * losses[0]
    found = trained.export_params()
    np.testing.assert_allclose(found["w"], w, atol=1e-2)
    np.testing.assert_allclose(found["b"], b, atol=1e-2)
    assert trained.export_states()["calls"] == 600
    np.testing.assert_allclose(trained.predict(x), x @ w + b, atol=0.1)
    other = trainer(zeros=False)
    other.load_params(found)
    other.load_states([np.float32(0)])
    np.testing.assert_array_equal(other.predict(x), trained.predict(x))


def pairs(steps: int) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(1)
    inputs = [random.standard_normal((4, 3)).astype("float32") for _ in range(steps)]
    return [(x, x[:, :2] - x[:, 1:]) for x in inputs]


def test_fit_updates_by_each_pair_in_each_epoch(tmp_path: Path) -> None:
    data, by_hand, trained = pairs(3), trainer(), trainer()
    expected = [np.mean([by_hand.update(x, y) for x, y in data]) for _ in range(4)]
    seen: list[int] = []
    history = trained.fit(data, epochs=4, callbacks=[lambda h: seen.append(h.epochs)])
    np.testing.assert_allclose(history.losses, expected, rtol=1e-6)
    assert seen == [1, 2, 3, 4]
    assert len(history.seconds) == history.epochs == 4
    stopped = trainer().fit(data, 4, callbacks=[lambda h: np.bool_(h.epochs < 2)])
    assert stopped.losses == history.losses[:2]


def test_an_interrupted_fit_is_resumed_from_the_last_whole_epoch(tmp_path: Path) -> None:
    whole = trainer()
    expected = whole.fit(pairs(3), 4)
    path = tmp_path / "line.safetensors"

    class Interrupted(list[Any]):
        epochs = 0

        def __iter__(self) -> Any:
            self.epochs += 1
            yield from self[:2]
            if self.epochs == 3:
                raise KeyboardInterrupt
            yield from self[2:]

    with pytest.raises(KeyboardInterrupt):
        trainer().fit(Interrupted(pairs(3)), 4, checkpoint=path, resume=True)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    resumed = trainer()
    history = resumed.fit(pairs(3), 4, checkpoint=path, resume=True)
    assert history.losses == expected.losses
    for name, value in whole.export_params().items():
        np.testing.assert_array_equal(resumed.export_params()[name], value)
    assert resumed.fit(pairs(3), 4, checkpoint=path, resume=True).epochs == 4


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([], {}, "data is empty"),
        (iter(pairs(1)), {"epochs": 2}, "data is an iterator"),
        (3, {}, "data is an iterable of pairs"),
        ([np.ones(3)], {}, "found ndarray"),
        (pairs(1), {"epochs": -1}, "epochs is 0, 1, 2"),
        (pairs(1), {"epochs": 1.5}, "epochs is 0, 1, 2"),
        (pairs(1), {"resume": True}, "resume needs"),
    ],
)
def test_data_that_fit_does_not_take(data: Any, options: Any, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        trainer().fit(data, **options)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("run.ckpt", MisuseError),
        ("", MisuseError),
        (3, MisuseError),
        ("nowhere/run.safetensors", FileNotFoundError),
        ("folder.safetensors", PermissionError),
    ],
)
def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_first_step(
    name: Any, error: type[Exception], tmp_path: Path
) -> None:
    (tmp_path / "folder.safetensors").mkdir()
    path, trained = tmp_path / name if isinstance(name, str) else name, trainer()
    with pytest.raises(error):
        trained.fit(pairs(1), checkpoint=path)
    assert trained.export_states()["calls"] == 0


@pytest.mark.parametrize("states", [0, 2])
def test_names_of_values_are_different(states: int) -> None:
    setup = SetupTrainer(MSELoss(), SGD(0.1), [relax.TensorStructInfo((4, 1), "float32")] * 2)

    def built(*names: str) -> IRModule:
        shapes = [(4, 3), (1,), (3, 2), (2, 1)]
        x, b, w, v = (
            relax.Var(name, relax.TensorStructInfo(shape, "float32"))
            for name, shape in zip(names, shapes, strict=True)
        )
        builder = relax.BlockBuilder()
        with builder.function("backbone", [x, b, w, v]):
            with builder.dataflow():
                y = builder.emit_output(R.add(R.matmul(R.matmul(x, w), v), b))
                new = [builder.emit_output(R.negative(state)) for state in (w, v)]
            builder.emit_func_output(relax.Tuple((y, *new)) if states else y)
        return builder.get().with_attrs({"param_num": 3 - states, "state_num": states})

    assert setup(built("x", "x", "w", "v")).attrs["input_num"] == 1
    with pytest.raises(TransformError, match="two parameters of backbone have the name 'w'"):
        setup(built("x", "b", "w", "w"))


def test_a_label_out_of_range_is_an_error_of_the_loss() -> None:
    mod = module("""
I.module_attrs({"param_num": 1, "state_num": 0})

def backbone(x: f32[n, 3], w: f32[3, 2]):
    with R.dataflow():
        y = R.matmul(x, w)
    return y
""")
    n = relaxpy.tir.Var("n", "int64")
    scores, labels = (
        relax.TensorStructInfo((n, 2), "float32"),
        relax.TensorStructInfo((n,), "int64"),
    )
    mod = SetupTrainer(CrossEntropyLoss(), SGD(0.1), [scores, labels])(mod)
    trained = Trainer(mod, relaxpy.compile(mod))
    message = "nll_loss: index 2 is outside dimension 1 of buffer log_probabilities, .* size 2"
    with pytest.raises(RelaxpyError, match=message):
        trained.update(np.ones((2, 3), "float32"), np.array([1, 2]))


def test_one_step_of_gradient_descent() -> None:
    mod = prepared(L1Loss("sum"), SGD(0.5), legalize=False)
    assert mod.attrs["input_num"] == 1
    trained = Trainer(mod, relaxpy.compile(mod))
    x = np.array([[1, 2, 3]], "float32")
    assert trained.update([x], [np.array([[1, -1]], "float32")]) == 2
    found = trained.export_params()
    np.testing.assert_array_equal(found["b"], [0.5, -0.5])
    np.testing.assert_array_equal(found["w"], x.T * [[0.5, -0.5]])


def test_parameters_between_limits() -> None:
    trained = trainer(zeros=False)
    trained.xavier_uniform_init_params(seed=1)
    w = trained.export_params()["w"]
    assert w.dtype == "float32"
    assert 0 < np.abs(w).max() <= np.sqrt(6 / 5)
    trained.xaiver_uniform_init_params(seed=1)
    np.testing.assert_array_equal(trained.export_params()["w"], w)


def test_values_that_are_missing_or_wrong() -> None:
    x = np.zeros((1, 3), "float32")
    trained = trainer(zeros=False)
    with pytest.raises(RuntimeError, match="param w has no value yet"):
        trained.predict(x)
    trained.zero_init_params()
    with pytest.raises(RuntimeError, match="state calls has no value yet"):
        trained.update(x, x)
    trained.zero_init_states()
    with pytest.raises(ValueError, match="takes 1 input, found 2"):
        trained.predict(x, x)
    with pytest.raises(ValueError, match="takes 1 target, found 2"):
        trained.update(x, [x, x])
    with pytest.raises(ValueError, match="no param 'v'"):
        trained.load_params({"v": x})
    with pytest.raises(ValueError, match="has 2 params, found 1 values"):
        trained.load_params([x])
    with pytest.raises(MisuseError, match="a list or a dict"):
        trained.load_states(3)  # type: ignore[arg-type]
    np.testing.assert_array_equal(trained.export_params()["b"], np.zeros(2))


def test_values_of_another_shape_or_datatype_are_refused() -> None:
    trained = trainer()
    w = np.ones((3, 2), "float32")
    trained.load_params({"w": w})
    for wrong in (w.T, w.astype("float64"), w[0], 1):
        with pytest.raises(MisuseError, match=r"param w is R.Tensor\(\(3, 2\).*, found"):
            trained.load_params({"b": np.ones(2, "float32"), "w": wrong})
    found = trained.export_params()
    np.testing.assert_array_equal(found["w"], w)
    np.testing.assert_array_equal(found["b"], np.zeros(2))
    with pytest.raises(MisuseError, match="state calls is"):
        trained.load_states([np.zeros(3, "float32")])


def test_values_are_copied() -> None:
    trained = trainer()
    w = np.ones((3, 2), "float32")
    trained.load_params({"w": w})
    w[:] = 2
    found = trained.export_params()
    np.testing.assert_array_equal(found["w"], np.ones((3, 2)))
    found["w"][:] = 3
    trained.export_states()["calls"][...] = 3
    np.testing.assert_array_equal(trained.export_params()["w"], np.ones((3, 2)))
    assert trained.export_states()["calls"] == 0


def test_a_checkpoint_of_another_training_changes_nothing(tmp_path: Path) -> None:
    trained, path = trainer(), tmp_path / "training.safetensors"
    trained.update(np.ones((1, 3), "float32"), np.ones((1, 2), "float32"))
    trained.save_checkpoint(path, step=3, order=np.arange(4))
    stored = dict(open_weights(path))
    before = trained.export_params()
    assert before["b"].any()
    (optimizer,) = (name for name in stored if name == "optimizer.0")
    w, state = stored["param.w"], stored[optimizer]
    for change, message in (
        ({"param.w": None}, "has no param 'w'"),
        ({"state.calls": None}, "has no state 'calls'"),
        ({"param.v": w}, "no param 'v'"),
        ({"param.w": w.T}, r"param w is R.Tensor\(\(3, 2\).*, found"),
        ({"state.calls": w}, "state calls is"),
        ({optimizer: None}, "the state of another optimizer"),
        ({"optimizer.99": state}, "the state of another optimizer"),
        ({"optimizer.x": state}, "the state of another optimizer"),
        ({optimizer: state.astype("float64")}, "the state of another optimizer"),
        ({"weight": w}, "is not a checkpoint: it has a tensor 'weight'"),
    ):
        other = {**stored, "param.b": np.zeros(2, "float32"), **change}
        save_weights(path, {name: value for name, value in other.items() if value is not None})
        with pytest.raises((MisuseError, UnknownNameError), match=message):
            trained.load_checkpoint(path)
        np.testing.assert_array_equal(trained.export_params()["b"], before["b"])
    save_weights(path, stored)
    again = trainer(zeros=False)
    progress = again.load_checkpoint(path)
    assert progress["step"] == 3
    np.testing.assert_array_equal(progress["order"], np.arange(4))
    for name, value in before.items():
        np.testing.assert_array_equal(again.export_params()[name], value)
    with pytest.raises(FileNotFoundError):
        again.load_checkpoint(tmp_path / "other.safetensors")
    with pytest.raises(MisuseError, match="expected the name of a file"):
        again.save_checkpoint(tmp_path / "training.npz")


def test_modules_that_are_not_prepared() -> None:
    with pytest.raises(MisuseError, match="no function backbone_loss_adjoint"):
        Trainer(Regression, relaxpy.compile(Regression))
    with pytest.raises(MisuseError, match="expected an IRModule, found 'text'"):
        Trainer("text", relaxpy.compile(Regression))  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="no Relax function 'backbone'"):
        SetupTrainer(MSELoss(), SGD(0.1), [SCALAR, SCALAR])(Two)
    with pytest.raises(TransformError, match="attribute param_num of the module is missing"):
        SetupTrainer(MSELoss(), SGD(0.1), [SCALAR, SCALAR])(Regression.without_attr("param_num"))
    with pytest.raises(TransformError, match="4 parameters, fewer than"):
        SetupTrainer(MSELoss(), SGD(0.1), [SCALAR, SCALAR])(Regression.with_attr("param_num", 4))
    with pytest.raises(TransformError, match="param_num is 0"):
        SetupTrainer(MSELoss(), SGD(0.1), [SCALAR, SCALAR])(Regression.with_attr("param_num", 0))
    with pytest.raises(TransformError, match="attribute param_num of the module is True"):
        SetupTrainer(MSELoss(), SGD(0.1), [SCALAR, SCALAR])(Regression.with_attr("param_num", True))
    with pytest.raises(MisuseError, match="struct infos of predictions and targets"):
        SetupTrainer(MSELoss(), SGD(0.1), [SCALAR])
    with pytest.raises(MisuseError, match="mse_loss has 2 parameters at most, found 3"):
        SetupTrainer(MSELoss(), SGD(0.1), [SCALAR] * 3)(Regression)
    with pytest.raises(MisuseError, match="loss is a Loss"):
        SetupTrainer("mse", SGD(0.1), [SCALAR])  # type: ignore[arg-type]


@pytest.mark.filterwarnings("default")
def test_the_digits_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "examples" / "digits"))
    for name in ("data", "train", "trainer", "numpy_model", "model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import data
    import trainer as example

    digits = data.load()
    trained = example.create()
    curve = example.train(trained, digits, epochs=60)
    assert curve[-1] < 0.05 * curve[0]
    assert example.accuracy(trained, digits.x_test, digits.y_test) >= 0.97


class Perceptron(nn.Module):
    def __init__(self) -> None:
        self.layers = nn.ModuleList([nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)])

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.layers(x)

    def main(self, x: nn.Tensor, y: nn.Tensor) -> nn.Tensor:
        return self.layers(x) + y


VECTORS = spec.Tensor([5, 3], "float32")


@pytest.mark.parametrize(
    "inputs",
    [{"forward": {"x": VECTORS}}, {"main": {"x": VECTORS, "y": spec.Tensor([2], "float32")}}],
)
def test_an_exported_model_is_trained(inputs: Any) -> None:
    mod, params = Perceptron().export_tvm(inputs)
    [[name, method]] = inputs.items()
    out = R.Tensor((5, 2), "float32")
    prepared = SetupTrainer(MSELoss(), SGD(0.1), [out, out])(mod)
    assert (prepared.attrs["param_num"], prepared.attrs["input_num"]) == (4, len(method))
    assert name in mod.functions_by_name
    trainer = Trainer(prepared, relaxpy.compile(prepared, "numpy"))
    trainer.xavier_uniform_init_params(seed=0)
    assert trainer.export_params().keys() == dict(params).keys()
    rng = np.random.default_rng(0)
    args = [rng.random((5, 3)).astype("float32"), np.ones(2, "float32")][: len(method)]
    target = np.ones((5, 2), "float32")
    losses = [float(trainer.update(args, target)) for _ in range(20)]
    assert losses[-1] < losses[0]
    predicted = trainer.predict(*args)
    model = Perceptron()
    model.load_state_dict(trainer.export_params())
    np.testing.assert_allclose(model.jit(inputs)(*args), predicted, rtol=1e-5, atol=1e-6)


def test_several_exported_methods_are_not_a_model_to_train() -> None:
    vector = spec.Tensor([2], "float32")
    methods = {"forward": {"x": VECTORS}, "main": {"x": VECTORS, "y": vector}}
    mod, _ = Perceptron().export_tvm(methods)
    out = R.Tensor((5, 2), "float32")
    with pytest.raises(UnknownNameError, match="no Relax function 'backbone'"):
        SetupTrainer(MSELoss(), SGD(0.1), [out, out])(mod)
