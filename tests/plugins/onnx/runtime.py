"""ONNX Runtime as the oracle of models."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import relaxpy
from relaxpy.relax.frontend.onnx import from_onnx
from tests.rows import targets

ort = pytest.importorskip("onnxruntime")
Feed = Mapping[str, Any]


def agree(found: Any, expected: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Shapes and datatypes are the same, texts and what is in lists too, and numbers are close."""
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            agree(a, b, rtol, atol)
        return
    assert (np.shape(found), np.asarray(found).dtype) == (expected.shape, expected.dtype)
    if expected.dtype == object:
        assert np.asarray(found).tolist() == expected.tolist()
    else:
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def results(proto: onnx.ModelProto) -> Callable[[Feed], list[Any]]:
    """What ONNX Runtime returns, whose one thread rounds the states of sequences in one way."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(proto.SerializeToString(), options)
    return lambda feed: session.run(None, dict(feed))


def check(
    proto: onnx.ModelProto,
    *feeds: Feed,
    oracle: Callable[[onnx.ModelProto], Callable[[Feed], list[Any]]] = results,
    also: tuple[str, ...] = (),
    compare: Callable[[Any, Any], None] = agree,
) -> None:
    """Compare all calls by one executable of a target, or of two; `also` names further targets."""
    evaluate = oracle(proto)
    mod = from_onnx(proto)
    for target in (*targets(str(proto)), *also):
        main = relaxpy.compile(mod, target)["main"]
        for feed in feeds:
            expected = evaluate(feed)
            found = main(*(tuple(x) if isinstance(x, list) else x for x in feed.values()))
            compare(found if len(expected) > 1 else (found,), expected)
