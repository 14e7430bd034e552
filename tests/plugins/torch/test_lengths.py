"""Sequences of other lengths than the example's, as docs/pytorch.md imports and compiles them."""

import io
import warnings

import numpy as np
import onnx
import pytest
import torch

import relaxpy
from relaxpy.relax.frontend.onnx import from_onnx


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_a_recurrent_layer_has_a_dynamic_length_through_onnx(kind: type[torch.nn.Module]) -> None:
    model = kind(3, 4, batch_first=True).eval()
    file, example = io.BytesIO(), torch.randn(2, 5, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter: it is deprecated, and batches differ
        torch.onnx.export(
            model,
            (example,),
            file,
            dynamo=False,
            input_names=["x"],
            output_names=["y", "state"],
            dynamic_axes={"x": {1: "length"}, "y": {1: "length"}},
        )
    call = relaxpy.compile(from_onnx(onnx.load_from_string(file.getvalue())))["main"]
    for length in (20, 7, 1):
        x = torch.randn(2, length, 3)
        expected = model(x)[0].detach().numpy()
        np.testing.assert_allclose(call(x.numpy())[0], expected, rtol=1e-5, atol=1e-6)


def test_packed_sequences_are_compiled() -> None:
    layer = torch.nn.LSTM(3, 4, batch_first=True).eval()
    rnn = torch.nn.utils.rnn

    def model(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return rnn.pad_packed_sequence(layer(packed)[0], batch_first=True)[0]

    x, lengths = torch.randn(3, 6, 3), torch.tensor([6, 4, 1])
    with torch.no_grad():
        expected = model(x, lengths)
        result = torch.compile(model, backend="relaxpy")(x, lengths)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)
