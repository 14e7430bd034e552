"""Recurrent layers under `torch.compile`, whose states are walked by one kernel."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import relaxpy

torch: Any = pytest.importorskip("torch")
from relaxpy.plugins.torch import dynamo  # noqa: E402
from relaxpy.relax.frontend.torch import relax_dynamo  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning"),
]
LAYERS = [
    (torch.nn.LSTM, {"bidirectional": True, "batch_first": True}),
    (torch.nn.LSTM, {"proj_size": 2, "bias": False}),
    (torch.nn.GRU, {"bidirectional": True, "num_layers": 2, "dropout": 0.5}),
    (torch.nn.RNN, {"bias": False, "bidirectional": True}),
    (torch.nn.RNN, {"nonlinearity": "relu"}),
]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many kernels each graph has that is compiled."""
    found: list[int] = []

    def compile_module(mod: Any, *args: Any, **options: Any) -> Any:
        found.append(mod.script().count("R.call_tir"))
        return relaxpy.compile(mod, *args, **options)

    monkeypatch.setattr(dynamo, "compile_module", compile_module)
    return found


def states_of(layer: Any, batch: int) -> Any:
    """First states of a layer that are not zeros."""
    count = layer.num_layers * (1 + layer.bidirectional)
    widths = [getattr(layer, "proj_size", 0) or layer.hidden_size]
    widths += [layer.hidden_size] if isinstance(layer, torch.nn.LSTM) else []
    states = [torch.randn(count, batch, width, requires_grad=True) for width in widths]
    return tuple(states) if len(states) > 1 else states[0]


@pytest.mark.parametrize(("kind", "options"), LAYERS)
def test_layers_and_their_gradients_have_a_kernel_for_all_steps(kind, options, kernels) -> None:
    torch.manual_seed(0)
    layer = kind(4, 3, **options)
    compiled = torch.compile(copy.deepcopy(layer), backend=relax_dynamo(target="numpy"))
    x, states = torch.randn(5, 5, 4, requires_grad=True), states_of(layer, 5)
    inputs = [x, *(states if isinstance(states, tuple) else [states])]
    torch._dynamo.reset()
    found = []
    for model in (layer, compiled):
        torch.manual_seed(1)  # of dropout
        y, last = model(x, states)
        leaves = [y, *(last if isinstance(last, tuple) else [last])]
        loss = sum((leaf * torch.arange(leaf.numel()).view_as(leaf)).sum() for leaf in leaves)
        found.append([*leaves, *torch.autograd.grad(loss, [*inputs, *model.parameters()])])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
    walks = layer.num_layers * (1 + layer.bidirectional)
    assert kernels == [walks, walks]


def test_a_layer_is_part_of_one_graph_with_the_kernels_of_the_exported_program(kernels) -> None:
    words, layer = torch.nn.Embedding(9, 4), torch.nn.GRU(4, 3, batch_first=True)
    model = torch.nn.Sequential(words, layer).eval()
    x = torch.randint(0, 9, (2, 5))
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=relax_dynamo(target="numpy"))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    assert kernels == [relaxpy.load(model, args=(x,)).script().count("R.call_tir")]


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_layers_within_autocast_have_the_datatypes_of_pytorch(kind) -> None:
    layer, x = kind(4, 3), torch.randn(5, 2, 4)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend=relax_dynamo(target="numpy"))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(x), layer(x), rtol=0.05, atol=0.02)


def test_functions_of_layers_take_options_by_name() -> None:
    layer, x, first = torch.nn.GRU(4, 3), torch.randn(5, 2, 4), torch.randn(1, 2, 3)
    options = {"has_biases": True, "num_layers": 1, "dropout": 0.0, "train": False}
    options |= {"bidirectional": False, "batch_first": False}

    def model(x: Any) -> Any:
        return torch.gru(x, first, list(layer.parameters()), **options)

    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(model, backend=relax_dynamo(target="numpy"))(x)
        torch.testing.assert_close(found, model(x))


def test_sequences_have_at_least_one_element() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(torch.nn.LSTM(4, 3), backend=relax_dynamo(target="numpy"))
    with pytest.raises(RuntimeError, match="Expected sequence length to be larger than 0"):
        compiled(torch.ones(0, 2, 4))
