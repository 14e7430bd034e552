"""Losses as Relax functions."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError, StructInfoError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.training.loss import (
    CategoricalCrossEntropyLoss,
    CrossEntropyLoss,
    L1Loss,
    MSELoss,
)
from relaxpy.script import relax as R

RANDOM = np.random.default_rng(0)
REDUCTIONS = {"mean": np.mean, "sum": np.sum, "none": lambda x: x}


def sinfo(*shape: int, dtype: str = "float64") -> relax.TensorStructInfo:
    return relax.TensorStructInfo(shape, dtype)


def log_softmax(x: Any, axis: int) -> Any:
    return x - np.log(np.exp(x).sum(axis=axis, keepdims=True))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_differences(reduction: str, target: str) -> None:
    p, t = RANDOM.standard_normal((2, 3, 5))
    for loss, power in ((L1Loss, 1), (MSELoss, 2)):
        built = loss(reduction)
        function = relaxpy.compile(built(sinfo(3, 5), sinfo(3, 5)), target=target)[built.name]
        expected = REDUCTIONS[reduction](np.abs(p - t) ** power)
        np.testing.assert_allclose(function(p, t), expected, rtol=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3)])
def test_cross_entropy(reduction: str, weighted: bool, shape: tuple[int, ...]) -> None:
    scores = RANDOM.standard_normal(shape)
    labels = RANDOM.integers(0, 5, (shape[0], *shape[2:]))
    labels[0] = 2
    weights = RANDOM.uniform(0.5, 2, 5)
    built = CrossEntropyLoss(reduction, ignore_index=2)
    given = [weights] if weighted else []
    sinfos = [sinfo(5)] if weighted else []
    function = built(sinfo(*shape), sinfo(*labels.shape, dtype="int64"), *sinfos)
    found = relaxpy.compile(function)[built.name](scores, labels, *given)
    picked = np.take_along_axis(log_softmax(scores, 1), np.expand_dims(labels, 1), 1).squeeze(1)
    factor = (weights[labels] if weighted else 1.0) * (labels != 2)
    losses = -picked * factor
    expected = {
        "none": losses, "sum": losses.sum(), "mean": losses.sum() / np.sum(factor)
    }[reduction]  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_categorical_cross_entropy(reduction: str, dtype: str) -> None:
    scores, weights = RANDOM.standard_normal((4, 5)), RANDOM.uniform(0.5, 2, 5)
    targets = np.eye(5)[[1, 0, 4, 1]].astype(dtype)
    built = CategoricalCrossEntropyLoss(reduction)
    function = built(sinfo(4, 5), sinfo(4, 5, dtype=dtype), sinfo(5))
    found = relaxpy.compile(function)[built.name](scores, targets, weights)
    expected = REDUCTIONS[reduction](-log_softmax(scores, 1) * targets * weights)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_categorical_cross_entropy_without_a_class() -> None:
    scores, targets = RANDOM.standard_normal((4, 5)), np.eye(5, dtype="int64")[[1, 0, 4, 1]]
    built = CategoricalCrossEntropyLoss("sum", ignore_index=1)
    function = built(sinfo(4, 5), sinfo(4, 5, dtype="int64"))
    found = relaxpy.compile(function)[built.name](scores, targets)
    losses = -log_softmax(scores, 1)
    np.testing.assert_allclose(found, losses[1, 0] + losses[2, 4], rtol=1e-12)


def test_the_form_of_a_loss() -> None:
    @R.function
    def cross_entropy_loss(
        predictions: R.Tensor((3, 5), "float32"),
        targets: R.Tensor((3,), "int64"),
        weights: R.Tensor((5,), "float32"),
    ):
        with R.dataflow():
            lv = R.nn.log_softmax(predictions, axis=-1)
            gv = R.nn.nll_loss(lv, targets, weights, reduction="sum", ignore_index=1)
            R.output(gv)
        return gv

    params = [sinfo(3, 5, dtype="float32"), sinfo(3, dtype="int64"), sinfo(5, dtype="float32")]
    found = CrossEntropyLoss("sum", ignore_index=1)(*params)
    assert_structural_equal(found, cross_entropy_loss)
    assert [p.name_hint for p in found.params] == ["predictions", "targets", "weights"]
    own = relax.Var("scores", params[0])
    assert CrossEntropyLoss()(own, params[1]).params[0] is own


def test_the_form_of_a_loss_without_a_class() -> None:
    @R.function
    def categorical_cross_entropy_loss(
        predictions: R.Tensor((3, 5), "float32"), targets: R.Tensor((3, 5), "int64")
    ):
        with R.dataflow():
            logits = R.nn.log_softmax(predictions)
            most_probable = R.argmax(targets, axis=1)
            classes = R.reshape(most_probable, (3,))
            loss = R.nn.nll_loss(logits, classes, reduction="sum", ignore_index=1)
            R.output(loss)
        return loss

    built = CategoricalCrossEntropyLoss("sum", ignore_index=1)
    found = built(sinfo(3, 5, dtype="float32"), sinfo(3, 5, dtype="int64"))
    relaxpy.ir.assert_structural_equal(found, categorical_cross_entropy_loss)


@pytest.mark.parametrize("loss", [L1Loss, MSELoss, CrossEntropyLoss, CategoricalCrossEntropyLoss])
def test_wrong_options(loss: Any) -> None:
    with pytest.raises(MisuseError, match="a reduction is one of mean, sum, none"):
        loss("average")
    with pytest.raises(MisuseError, match="predictions are a Var or struct info"):
        loss()(3, sinfo(3))


@pytest.mark.parametrize(
    ("loss", "most", "message"),
    [
        (L1Loss(), 2, "l1_loss has 2 parameters at most, found 3"),
        (MSELoss(), 2, "mse_loss has 2 parameters at most, found 3"),
        (CrossEntropyLoss(), 3, "from 3 to 4 positional arguments but 5"),
        (CategoricalCrossEntropyLoss(), 3, "from 3 to 4 positional arguments but 5"),
    ],
)
def test_too_many_parameters(loss: Any, most: int, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        loss(*[sinfo(3, 5)] * (most + 1))


def test_wrong_ignore_index() -> None:
    with pytest.raises(MisuseError, match="ignore_index is an int"):
        CrossEntropyLoss(ignore_index=1.5)  # type: ignore[arg-type]


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(StructInfoError):
        MSELoss()(sinfo(3, 5), sinfo(4, 5))
