"""Models of `nn` that run: their results against NumPy."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, RuntimeCheckError
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import Tensor, op, spec
from relaxpy.runtime import ShapeTuple

RNG = np.random.default_rng(0)


def filled(model: nn.Module) -> dict[str, Any]:
    """Set all parameters to random values; return these by path."""
    for param in model.parameters():
        param.data = RNG.standard_normal(param.shape).astype(param.dtype)
    return {path: param.data for path, param in model.named_parameters()}


def run(model: nn.Module, *args: Any, **inputs: Any) -> Any:
    """The result of `forward`."""
    return model.jit({"forward": inputs})["forward"](*args)


def test_a_network_computes_what_numpy_does() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.layers = nn.ModuleList([nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)])
            self.norm = nn.LayerNorm(3, eps=1e-3)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.layers(x))

    net = Net()
    p = filled(net)
    x = RNG.standard_normal((5, 4)).astype("float32")
    h = np.maximum(x @ p["layers.0.weight"].T + p["layers.0.bias"], 0)
    y = h @ p["layers.2.weight"].T + p["layers.2.bias"]
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-3)
    expected = y * p["norm.weight"] + p["norm.bias"]
    result = run(net, x, x=spec.Tensor(["n", 4], "float32"))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def windows(x: Any, size: int, step: int) -> Any:
    """The windows of `size` x `size` elements in the last two axes, as two further axes."""
    found = np.lib.stride_tricks.sliding_window_view(x, (size, size), (-2, -1))
    return found[..., ::step, ::step, :, :]


def test_a_network_for_images_takes_the_state_of_one_of_pytorch() -> None:
    net = nn.Sequential(
        nn.Conv2D(3, 4, 3, bias=False),
        nn.BatchNorm2D(4, eps=1e-3),
        nn.MaxPool2D(3, stride=2, padding=1),
        nn.AvgPool2D(2, stride=1, padding=1),
        nn.AdaptiveAvgPool2D((2, 1)),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.BatchNorm1D(8, affine=False),
    )
    p = {path: abs(value) + 0.5 for path, value in filled(net).items()}
    with pytest.raises(KeyError, match=r"unexpected \[.2\.extra.\]"):
        net.load_state_dict(p | {"2.extra": np.array(3)})
    net.load_state_dict(p | {"1.num_batches_tracked": np.array(3), "7.num_batches_tracked": 1})
    x = RNG.standard_normal((2, 3, 10, 10)).astype("float32")
    y = np.einsum("bchwij,ocij->bohw", windows(x, 3, 1), p["0.weight"])

    def normal(x: Any, layer: int, eps: float) -> Any:
        mean, var = (p[f"{layer}.running_{name}"] for name in ("mean", "var"))
        mean, var = (s.reshape((-1, *(1 for _ in x.shape[2:]))) for s in (mean, var))
        return (x - mean) / np.sqrt(var + eps)

    weight, bias = (p[f"1.{name}"][:, None, None] for name in ("weight", "bias"))
    y = normal(y, 1, 1e-3) * weight + bias
    around = ((0, 0), (0, 0), (1, 1), (1, 1))
    y = windows(np.pad(y, around, constant_values=-np.inf), 3, 2).max((-2, -1))
    y = windows(np.pad(y, around), 2, 1).mean((-2, -1))
    y = np.stack([y[:, :, :3], y[:, :, 2:]], axis=2).mean((-2, -1))
    expected = normal(y.reshape(2, 8), 7, 1e-5)
    result = run(net, x, x=spec.Tensor(["n", 3, 10, 10], "float32"))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["plain", "packed"])
def test_caches_keep_their_rows_between_calls(mode: str, capsys: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.scale = nn.Parameter((2,))
            self.keys = nn.KVCache(1, [2])
            self.values = nn.KVCache(1, [2])

        def forward(self, x: Tensor, total: Any) -> Any:
            self.keys.append(x)
            self.values.append(x * self.scale)
            nn.print_(x)
            return self.keys.view(total), self.values.view(total)

    model = Model()
    scale = filled(model)["scale"]
    modes = {"param_mode": mode, "effect_mode": mode}
    inputs = {"x": spec.Tensor(["n", 2], "float32"), "total": int, "$": modes}
    forward = model.jit({"forward": inputs}, debug=True)["forward"]
    rows = RNG.standard_normal((6, 2)).astype("float32")
    for start, end in ((0, 1), (1, 3), (3, 6)):
        keys, values = forward(rows[start:end], end)
        np.testing.assert_array_equal(keys, rows[:end])
        np.testing.assert_allclose(values, rows[:end] * scale, rtol=1e-6)
    assert "test_nn_model.py:" in capsys.readouterr().out
    with pytest.raises(RuntimeCheckError, match=r"rows of shape \(7, 2\), expected \(9, 2\)"):
        forward(rows[:1], 9)
    with pytest.raises(RuntimeCheckError, match=r"argument total is an integer, found 1.5"):
        forward(rows[:1], 1.5)
    with pytest.raises(RuntimeCheckError, match="takes 2 arguments, found 1"):
        forward(rows[:1])


class Recent(nn.Module):
    def __init__(self) -> None:
        self.scale = nn.Parameter((2,))
        self.rows = nn.KVCache(1, [2])

    def forward(self, x: Tensor, total: Any) -> Tensor:
        self.rows.append(x * self.scale)
        return self.rows.view(total)


def test_a_compiled_model_does_what_an_executable_does(tmp_path: Any) -> None:
    model = Recent()
    model.scale.data = np.ones(2, "float32")
    row = np.array([[1, 2]], "float32")
    for mode in ("plain", "packed"):
        inputs = {"x": spec.Tensor([1, 2], "float32"), "total": int}
        compiled = model.jit({"forward": {**inputs, "$": {"effect_mode": mode}}})
        assert compiled(row, 1).tolist() == [[1, 2]]
        for profile in (
            compiled.profile(row, 2, repeat=2),
            compiled.profile(row, 2, function="forward"),
        ):
            assert {r.calls for r in profile if r.name == "forward"} == {1}
        assert compiled(row * 3, total=2).tolist() == [[1, 2], [3, 6]]
        compiled.reset()
        assert compiled["forward"](row, 1).tolist() == [[1, 2]]
    assert list(compiled) == ["forward"]
    assert "forward" in compiled
    assert "1 parameter, with a state" in repr(compiled)
    assert "forward(x: Tensor([1, 2], 'float32'), total: int)" in repr(compiled)
    assert compiled.source == compiled.executable.source
    assert {r.kernel for r in compiled.report()} == {r.kernel for r in compiled.executable.report()}
    compiled.save(tmp_path / "model.rxp")
    loaded = relaxpy.load_executable(tmp_path / "model.rxp")
    effects = loaded["_initialize_effect"]()
    result, _ = loaded["forward"](row, ShapeTuple([1]), effects)
    assert result.tolist() == [[1, 2]]
    with pytest.raises(AttributeError, match=r'functions are items: model\["forward"\]'):
        compiled.forward(row, 1)
    with pytest.raises(KeyError, match="no method 'backward'"):
        compiled.profile(row, 1, function="backward")
    with pytest.raises(RuntimeCheckError, match="takes 2 arguments, found 1"):
        compiled.profile(row)


@pytest.mark.parametrize("mode", ["plain", "packed"])
def test_weights_of_a_compiled_model_are_copies(mode: str) -> None:
    model, weight = nn.Linear(2, 3, bias=False), np.ones((3, 2), "float32")
    model.weight.data = weight
    method = {"x": spec.Tensor([1, 2], "float32"), "$": {"param_mode": mode}}
    compiled = model.jit({"forward": method})
    assert [param.name_hint for param in compiled.executable["forward"].signature.params] == ["x"]
    weight[:] = model.weight.data[:] = 7
    x = np.ones((1, 2), "float32")
    assert compiled(x).tolist() == [[2, 2, 2]]
    assert model.jit({"forward": method})(x).tolist() == [[14, 14, 14]]


METHODS: dict[str, Callable[[Any], Any]] = {
    "integer": lambda x: x[0],
    "second axis": lambda x: x[:, 0],
    "from the end": lambda x: x[..., -1],
    "slices": lambda x: x[1:, None, ::2, -2:],
    "new axis": lambda x: x[None],
    "integers": lambda x: x[:, -1, 1],
    "without the last": lambda x: x[..., :-1],
    "beyond the end": lambda x: x[:9, 1:9],
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(-1, keepdims=True),
    "max": lambda x: x.max(axis=(0, 1)),
    "min": lambda x: x.min(2),
    "T": lambda x: x.T,
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dims", [[2, 3, 4], ["a", "b", 4]])
def test_methods_and_indices_are_those_of_arrays(method: str, dims: list[Any]) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return METHODS[method](x)

    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    expected = METHODS[method](x)
    result = run(Model(), x, x=spec.Tensor(dims, "float32"))
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected)


def test_methods_of_pytorch_rearrange_elements() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            assert (x.dim(), x.size(1), len(x.size())) == (3, 3, 3)
            return (
                (x.view(2, -1), x.view([6, 4]), x.flatten(1), x.transpose(-1, 0)),
                (x.permute(1, 2, 0), x.unsqueeze(1).squeeze(), x.sum(dim=1, keepdim=True)),
            )

    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    first, second = run(Model(), x, x=spec.Tensor([2, 3, 4], "float32"))
    expected = (x.reshape(2, -1), x.reshape(6, 4), x.reshape(2, -1), x.swapaxes(-1, 0))
    expected += (x.transpose(1, 2, 0), x, x.sum(1, keepdims=True))
    for result, value in zip((*first, *second), expected, strict=True):
        np.testing.assert_array_equal(result, value)


def test_caches_of_two_models_are_two() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.cache = nn.KVCache(4, [1])

        def forward(self, x: Tensor, total: Any) -> Tensor:
            self.cache.append(x)
            return self.cache.view(total)

    inputs = {"forward": {"x": spec.Tensor([1, 1], "float32"), "total": int}}
    one, other = Model().jit(inputs), Model().jit(inputs)
    ones = np.ones((1, 1), "float32")
    one["forward"](ones, 1)
    assert other["forward"](ones * 2, 1).tolist() == [[2]]


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("size", [6, 7])
def test_timesteps_are_sines_and_cosines(size: int, flip: bool) -> None:
    times = np.array([0, 1, 10], "float32")
    half = size // 2
    angles = times[:, None] * np.exp(-np.log(10000) * np.arange(half) / (half - 1))
    waves = [np.cos(angles), np.sin(angles)] if flip else [np.sin(angles), np.cos(angles)]
    expected = np.concatenate([*waves, np.zeros((3, size % 2))], axis=1)
    result = run(nn.Timesteps(size, flip), times, x=spec.Tensor([3], "float32"))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_attention_mixes_positions() -> None:
    layer = nn.Attention(4, heads=2, dim_head=3)
    p = filled(layer)
    x = RNG.standard_normal((1, 5, 4)).astype("float32")
    q, k, v = ((x @ p[f"to_{n}.weight"].T).reshape(5, 2, 3) for n in "qkv")
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(3)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    mixed = np.einsum("hij,jhd->ihd", weights, v).reshape(5, 6)
    expected = mixed @ p["to_out.0.weight"].T + p["to_out.0.bias"]
    result = run(layer, x, hidden_states=spec.Tensor([1, 5, 4], "float32"))
    np.testing.assert_allclose(result[0], expected, rtol=1e-4, atol=1e-5)


def test_embeddings_are_rows() -> None:
    layer = nn.Embedding("count", 3)
    layer.weight = nn.Parameter((7, 3))
    table = filled(layer)["weight"]
    indices = np.array([[1, 6], [0, 1]])
    result = run(layer, indices, x=spec.Tensor([2, 2], "int64"))
    np.testing.assert_array_equal(result, table[indices])


def sampled(prob: Any, top_p: float, top_k: int, u: float) -> int:
    """The element that a uniform sample chooses among the most probable ones."""
    order = np.argsort(-prob, kind="stable")
    total, kept = np.float32(0), []
    for element in order[:top_k]:
        kept.append(element)
        total += prob[element]
        if total >= np.float32(top_p):
            break
    sums = np.cumsum(prob[kept]) / total
    return int(kept[min(int((u >= sums).sum()), len(kept) - 1)])


def test_samples_come_from_the_most_probable_elements() -> None:
    class Sampler(nn.Module):
        def forward(self, prob: Tensor, p: Tensor, k: Tensor, u: Tensor, rows: Tensor) -> Any:
            order = op.argsort(prob, descending=True, dtype="int64")
            ranked = op.sort(prob, descending=True)
            chosen = op.sample_top_p_top_k_from_sorted_prob(ranked, order, p, k, u, rows)
            return chosen, op.renormalize_top_p_top_k_prob(prob, ranked, p, k)

    prob = RNG.random((3, 8)).astype("float32")
    prob /= prob.sum(1, keepdims=True)
    top_p, top_k = np.array([[0.5], [0.9], [2]], "float32"), np.array([[8], [3], [8]])
    u = RNG.random((20, 1)).astype("float32")
    rows = RNG.integers(0, 3, (20, 1))
    inputs = {
        "prob": spec.Tensor(["r", "v"], "float32"),
        "p": spec.Tensor(["r", 1], "float32"),
        "k": spec.Tensor(["r", 1], "int64"),
        "u": spec.Tensor(["n", 1], "float32"),
        "rows": spec.Tensor(["n", 1], "int64"),
    }
    chosen, kept = run(Sampler(), prob, top_p, top_k, u, rows, **inputs)
    for row, sample, result in zip(rows[:, 0], u[:, 0], chosen[:, 0], strict=True):
        p, k = top_p[row, 0], int(top_k[row, 0])
        assert result == sampled(prob[row], p, k, sample)
    np.testing.assert_allclose(kept.sum(1), 1, rtol=1e-5)
    assert (kept[1] > 0).sum() <= 3
    assert (kept[2] > 0).all()


def test_multinomial_samples_choose_by_running_sums() -> None:
    class Sampler(nn.Module):
        def forward(self, prob: Tensor, u: Tensor) -> Tensor:
            return op.multinomial_from_uniform(prob, u)

    prob = np.array([[0.2, 0.3, 0.5], [0.3, 0.4, 0.3]], "float32")
    u = np.array([[0.4], [0.9]], "float32")
    inputs = {"prob": spec.Tensor([2, 3], "float32"), "u": spec.Tensor([2, 1], "float32")}
    assert run(Sampler(), prob, u, **inputs).tolist() == [[1], [2]]


def test_external_functions_run_as_registered() -> None:
    def scale(x: Any, factor: int, out: Any) -> None:
        out[:] = x * factor

    relaxpy.register_func("tests.nn.scale", scale, override=True)

    class Model(nn.Module):
        def __init__(self) -> None:
            self.extern = nn.ExternModule({"tests.nn.scale": lambda x, k: x})

        def forward(self, x: Tensor) -> Any:
            nn.add_extern(self.extern)
            y = op.extern("tests.nn.scale", [x, 2], Tensor.placeholder(x.shape, x.dtype))
            return self.extern["tests.nn.scale"](y, 3)

    x = np.arange(3, dtype="float32")
    assert run(Model(), x, x=spec.Tensor(["n"], "float32")).tolist() == [0, 6, 12]


def test_tuples_are_passed_and_returned() -> None:
    class Model(nn.Module):
        def forward(self, pair: Any) -> Any:
            return pair[0] + pair[1], (op.reshape(pair[0], (pair[2], -1)),)

    x = spec.Tensor([4], "float32")
    ones = np.ones(4, "float32")
    total, (matrix,) = run(Model(), [ones, ones, np.int64(2)], pair=(x, x, int))
    assert total.tolist() == [2, 2, 2, 2]
    assert matrix.shape == (2, 2)
    with pytest.raises(RuntimeCheckError, match="a sequence of 3 values"):
        run(Model(), [ones], pair=(x, x, int))


def test_results_are_tensors_of_torch_if_arguments_are(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        def __init__(self, array: Any) -> None:
            self.array = array

        def detach(self) -> Any:
            return self

        cpu = resolve_neg = detach

        def numpy(self) -> Any:
            return self.array

    Fake.__module__ = "torch"
    torch = ModuleType("torch")
    torch.from_numpy = Fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    inputs = {"forward": {"x": spec.Tensor([2], "float32")}}
    ones = np.ones(2, "float32")
    by_argument = nn.ReLU().jit(inputs)["forward"]
    assert isinstance(by_argument(Fake(ones)), Fake)
    assert isinstance(by_argument(ones), np.ndarray)
    assert isinstance(nn.ReLU().jit(inputs, out_format="torch")["forward"](ones), Fake)
    numpy = nn.ReLU().jit(inputs, out_format="numpy")["forward"]
    assert isinstance(numpy(Fake(ones)), np.ndarray)


def test_models_that_cannot_run_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {"forward": {"x": spec.Tensor(["n", 2], "float32")}}
    with pytest.raises(MisuseError, match="parameters have no value: weight, bias"):
        nn.Linear(2, 2).jit(inputs)
    with pytest.raises(MisuseError, match="models run on cpu:0, found device cuda:0"):
        nn.ReLU().jit(inputs, device="cuda")
    with pytest.raises(MisuseError, match='out_format is "numpy" or "torch"'):
        nn.ReLU().jit(inputs, out_format="jax")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MisuseError, match="needs torch, which is not installed"):
        nn.ReLU().jit(inputs, out_format="torch")
    with pytest.raises(KeyError, match="the model has no method 'backward'"):
        nn.ReLU().jit(inputs)["backward"]


def test_arguments_of_methods_may_be_passed_by_name() -> None:
    class Model(nn.Module):
        def main(self, x: Tensor, y: Tensor) -> Tensor:
            return x / y

    vector = spec.Tensor([2], "float32")
    method = Model().jit({"main": {"x": vector, "y": vector}})["main"]
    x, y = np.float32([1, 2]), np.float32([4, 8])
    for found in (method(x, y=y), method(y=y, x=x)):
        np.testing.assert_array_equal(found, [0.25, 0.25])
    with pytest.raises(RuntimeCheckError, match="takes 2 arguments, found 1"):
        method(y=y)
    for names in ({"x": x}, {"z": y}):
        with pytest.raises(RuntimeCheckError, match=r"has no parameter '.' that is not"):
            method(x, **names)
