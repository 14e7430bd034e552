"""Support vector machines of the domain ai.onnx.ml."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import Array, literal, reshaped, scalar, shape_of
from relaxpy.plugins.onnx.context import Context
from relaxpy.plugins.onnx.ops import classical
from relaxpy.plugins.onnx.registry import converter


def _kernel(cx: Context, x: Expr, vectors: Array, kind: str, params: Sequence[float]) -> Expr:
    """The kernel function of each row of `x` and each of the vectors."""
    gamma, shift, degree = params or (0.0, 0.0, 0.0)
    linear = cx.emit(classical.products(x, vectors))
    if kind == "LINEAR":
        return linear
    if kind == "RBF":
        squares = R.sum(R.multiply(x, x), axis=[1], keepdims=True)
        own = classical.vector((vectors.astype(np.float64) ** 2).sum(1).tolist())
        distance = R.subtract(R.add(squares, own), R.multiply(linear, scalar(2, x)))
        bounded = R.maximum(distance, scalar(0, x))
        return R.exp(R.multiply(bounded, scalar(-gamma, x)))
    inner = R.add(R.multiply(linear, scalar(gamma, x)), scalar(shift, x))
    return R.tanh(inner) if kind == "SIGMOID" else R.power(inner, scalar(degree, x))


_KERNELS = {"kernel_type": ("LINEAR", "POLY", "RBF", "SIGMOID")}


@converter("SVMRegressor", domain=classical.DOMAIN, admitted=_KERNELS)
def svm_regressor(
    cx: Context,
    x: Expr,
    *,
    coefficients: Sequence[float],
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Sequence[float],
    support_vectors: Sequence[float] = (),
) -> Expr:
    data = classical.rows_of(cx, x)
    weights = np.array(coefficients, np.float32)
    if n_supports:
        vectors = classical.by_features(support_vectors, data, n_supports)
        found = _kernel(cx, data, vectors, kernel_type, kernel_params)
        sums = R.matmul(found, literal(weights.reshape(-1, 1)))
    else:
        sums = _kernel(cx, data, weights.reshape(1, -1), kernel_type, kernel_params)
    scores = cx.emit(R.add(sums, classical.vector(rho[:1])))
    if one_class:
        inside = R.greater(scores, scalar(0, scores))
        return R.where(inside, scalar(1, scores), scalar(-1, scores))
    return classical.posttransformed(cx, scores, post_transform)


@converter("SVMClassifier", domain=classical.DOMAIN, admitted=_KERNELS)
def svm_classifier(
    cx: Context,
    x: Expr,
    *,
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float],
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Sequence[float] = (),
    prob_b: Sequence[float] = (),
    rho: Sequence[float],
    support_vectors: Sequence[float] = (),
    vectors_per_class: Sequence[int] = (),
) -> list[Expr]:
    data = classical.rows_of(cx, x)
    names = classical.class_labels(cx, classlabels_ints, classlabels_strings)
    margins = post_transform == "NONE"
    if not vectors_per_class:
        weights = classical.by_features(coefficients, data)
        sums = _kernel(cx, data, weights, kernel_type, kernel_params)
        scores = cx.emit(R.add(sums, classical.vector(rho[:1])))
        return classical.labels(cx, names, scores, post_transform, margins=margins)
    count = len(vectors_per_class)
    pairs = list(itertools.combinations(range(count), 2))
    vectors = classical.by_features(support_vectors, data, sum(vectors_per_class))
    found = _kernel(cx, data, vectors, kernel_type, kernel_params)
    weights = _weights_of_pairs(coefficients, vectors_per_class, pairs)
    scores = cx.emit(R.add(R.matmul(found, literal(weights)), classical.vector(rho[: len(pairs)])))
    first = R.astype(R.greater(scores, scalar(0, scores)), "float32")
    second = R.subtract(scalar(1, scores), first)
    wins, losses = (
        np.array([[float(pair[k] == c) for c in range(count)] for pair in pairs], np.float32)
        for k in (0, 1)
    )
    votes = R.add(R.matmul(first, literal(wins)), R.matmul(second, literal(losses)))
    label = cx.as_strings(R.take(names, R.argmax(votes, axis=1), 0), names)
    if prob_a:
        line = R.add(R.multiply(scores, classical.vector(prob_a)), classical.vector(prob_b))
        sure = R.clip(R.sigmoid(R.negative(line)), 1e-7, 1 - 1e-7)
        shares = cx.emit(_shares(cx, cx.emit(sure), count, pairs))
        return [label, classical.posttransformed(cx, shares, post_transform)]
    if len(pairs) > 1:
        return [label, classical.posttransformed(cx, scores, post_transform)]
    return [label, classical.labels(cx, names, scores, post_transform, margins=margins)[1]]


def _weights_of_pairs(
    coefficients: Sequence[float], sizes: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> Array:
    """The weights of all vectors (rows) in the decision between each two classes (columns)."""
    every = np.array(coefficients, np.float32).reshape(len(sizes) - 1, sum(sizes))
    ends = np.cumsum([0, *sizes])
    result = np.zeros((sum(sizes), len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        for own, other in ((i, j - 1), (j, i)):
            rows = slice(ends[own], ends[own + 1])
            result[rows, column] = every[other, rows]
    return result


def _shares(cx: Context, sure: Expr, count: int, pairs: Sequence[tuple[int, int]]) -> Expr:
    """The probabilities of the classes, from those that decide between two of them.

    Rule:
        The iteration of Wu, Lin and Weng, Probability Estimates for Multi-class Classification by
        Pairwise Coupling, JMLR 5 (2004), algorithm 2, with the bounds of LIBSVM.
    """
    rows = shape_of(sure)[0]
    zero = R.zeros((rows, 1), "float32")
    table = cx.emit(R.concat([sure, R.subtract(scalar(1, sure), sure), zero], axis=1))
    source = np.full((count, count), 2 * len(pairs), np.int64)
    for k, (i, j) in enumerate(pairs):
        source[i, j], source[j, i] = k, len(pairs) + k
    beats = cx.emit(reshaped(R.take(table, literal(source.reshape(-1)), 1), (rows, count, count)))
    loses = cx.emit(R.permute_dims(beats, [0, 2, 1]))
    squares = R.sum(R.multiply(loses, loses), axis=[2], keepdims=True)
    diagonal = R.multiply(squares, literal(np.eye(count, dtype=np.float32)))
    form = cx.emit(R.subtract(diagonal, R.multiply(beats, loses)))
    return cx.te(_coupled, form, name="coupled")


def _coupled(form: Tensor) -> Tensor:
    """The probabilities p that minimise p Q p for each quadratic form Q.

    A step changes one of them. The last column of the state is 1 once the iteration has converged.
    """
    batch, count, _ = form.shape
    assert isinstance(count, tir.IntImm)
    number = count.value
    steps, bound = number * max(100, number), 0.005 / number

    def whole(value: int) -> PrimExpr:
        return ops.const(value, "int64")

    def real(value: float) -> PrimExpr:
        return ops.const(value, "float32")

    shape = (whole(steps + 1), batch)
    state = te.placeholder((*shape, whole(number + 1)), "float32", "p")
    assert isinstance(state, Tensor)

    def stage(width: int, element: object, name: str) -> Tensor:
        result = te.compute((*shape, whole(width)), element, name=name)  # type: ignore[arg-type]
        assert isinstance(result, Tensor)
        return result

    def gradient(t: PrimExpr, b: PrimExpr, i: PrimExpr) -> PrimExpr:
        j = te.reduce_axis((whole(0), count), "j")
        return reduce.sum(form(b, i, j.var) * state(t - 1, b, j.var), axis=j)

    slopes = stage(number, gradient, "slope")

    def energy(t: PrimExpr, b: PrimExpr, _: PrimExpr) -> PrimExpr:
        j = te.reduce_axis((whole(0), count), "j")
        return reduce.sum(state(t - 1, b, j.var) * slopes(t, b, j.var), axis=j)

    energies = stage(1, energy, "energy")

    def error(t: PrimExpr, b: PrimExpr, _: PrimExpr) -> PrimExpr:
        j = te.reduce_axis((whole(0), count), "j")
        return reduce.max(intrin.abs(slopes(t, b, j.var) - energies(t, b, whole(0))), axis=j)

    errors = stage(1, error, "error")

    def finished(t: PrimExpr, b: PrimExpr) -> PrimExpr:
        at_begin = ops.compare(tir.EQ, ops.floormod(t - 1, count), whole(0))
        converged = tir.And(at_begin, errors(t, b, whole(0)) < real(bound))
        return tir.Or(state(t - 1, b, count) > real(0.5), converged)

    def changed(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        k = ops.floormod(t - 1, count)
        step = (energies(t, b, whole(0)) - slopes(t, b, k)) / form(b, k, k)
        here = tir.Select(ops.compare(tir.EQ, j, k), step, real(0.0))
        moved = (state(t - 1, b, j) + here) / (step + real(1.0))
        value = tir.Select(finished(t, b), state(t - 1, b, j), moved)
        flag = tir.Select(finished(t, b), real(1.0), real(0.0))
        return tir.Select(j < count, value, flag)

    update = stage(number + 1, changed, "p_next")

    def start(_: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        return tir.Select(j < count, real(1.0 / number), real(0.0))

    first = te.compute((whole(1), batch, whole(number + 1)), start, name="first")
    assert isinstance(first, Tensor)
    walked = te.scan(first, update, state, name="couple")
    assert isinstance(walked, Tensor)
    result = te.compute((batch, count), lambda b, j: walked(whole(steps), b, j), name="shares")
    assert isinstance(result, Tensor)
    return result
