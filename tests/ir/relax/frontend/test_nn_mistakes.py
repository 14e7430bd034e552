"""Mistakes in models of `nn` are refused with the line of the model, and with what to write."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxpy import IRModule
from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import Tensor, op, spec

X = spec.Tensor([3, 4], "float32")


def exported(forward: Callable[..., Any], **modes: str) -> IRModule:
    """The module of a model with this method, and a cache."""

    class Model(nn.Module):
        def __init__(self) -> None:
            self.cache = nn.KVCache(2, [4])
            self.weight = nn.Parameter([4], "float32")

    Model.main = forward  # type: ignore[attr-defined]
    mod, _ = Model().export_tvm({"main": {"x": X, "$": modes}})
    assert isinstance(mod, IRModule)
    return mod


def column(error: pytest.ExceptionInfo[RelaxpyError], text: str) -> str:
    """The part of the text that begins at the position of an error."""
    span = error.value.diagnostics[0].span
    assert span is not None
    assert span.file == __file__
    line = span.source.line(span.line)
    assert text in line
    return line[span.column - 1 :]


def test_the_position_of_a_mistake_is_the_call_of_the_layer() -> None:
    linear = nn.Linear(5, 2)

    def forward(self: Any, x: Tensor) -> Any:
        x = op.relu(x)
        return linear(x)

    with pytest.raises(RelaxpyError, match="the last dimension of x1 is 4") as caught:
        exported(forward)
    assert column(caught, "return linear(x)").startswith("linear(x)")


@pytest.mark.parametrize(
    ("forward", "text"),
    [
        (lambda self, x: op.tanh(x) + op.ones([5]), "op.tanh(x) + op.ones([5])"),
        (lambda self, x: op.tanh(x) < "1", 'op.tanh(x) < "1"'),
        (lambda self, x: "1" / op.tanh(x), '"1" / op.tanh(x)'),
    ],
)
def test_the_position_of_a_mistake_is_the_operator(forward: Callable[..., Any], text: str) -> None:
    with pytest.raises(RelaxpyError) as caught:
        exported(forward)
    assert column(caught, text).startswith(text)


def test_layers_that_the_model_does_not_contain_are_refused() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.layers = [nn.Linear(4, 4), nn.Linear(4, 2)]

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    with pytest.raises(
        MisuseError, match=r"forward uses .*\(\(4, 4\).* which is no part"
    ) as caught:
        Model().export_tvm({"forward": {"x": X}})
    assert "nn.ModuleList" in str(caught.value)


@pytest.mark.parametrize(
    ("forward", "mode"),
    [
        (lambda self, x: x + self.weight, "param_mode"),
        (lambda self, x: self.cache.append(x) or x, "effect_mode"),
    ],
)
def test_what_a_mode_leaves_out_cannot_be_used(forward: Callable[..., Any], mode: str) -> None:
    with pytest.raises(MisuseError, match=f'"{mode}": "plain"'):
        exported(forward, **{mode: "none"})


def test_numbers_of_numpy_are_operands_and_arrays_are_not() -> None:
    mod = exported(lambda self, x: np.float32(2) * x + np.int64(1) - np.float16(3))
    assert str(mod).count("R.const(") == 3
    for forward in (lambda self, x: x + np.ones(4), lambda self, x: np.ones(4) + x):
        with pytest.raises(MisuseError, match=r"expected an nn.Tensor or a number, found array"):
            exported(forward)
