"""Classical models of the domain ai.onnx.ml: linear models, scalers, encoders, vector machines."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence

import numpy as np

from relaxpy.ir.core.dtype import Array
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, StringImm, Tuple, const
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.sequences import PREFIX
from relaxpy.plugins.importing.tensors import literal, reshaped, scalar, shape_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.context import CLASSICAL as DOMAIN, OBJECT, Context, converter


def rows_of(cx: Context, x: Expr, dtype: str = "float32") -> Expr:
    """The operand as a matrix of a datatype, with an observation in each row."""
    matrix = x if tensors.rank_of(x) == 2 else R.reshape(x, (1, -1))
    return cx.emit(tensors.as_dtype(matrix, dtype))


def vector(values: Sequence[float]) -> Expr:
    return tensors.literal(np.array(values, np.float32))


@converter("Scaler", domain=DOMAIN)
def scaler(
    cx: Context, x: Expr, *, offset: Sequence[float] = (0.0,), scale: Sequence[float] = (1.0,)
) -> Expr:
    return (tensors.as_dtype(x, "float32") - vector(offset)) * vector(scale)


@converter("Normalizer", domain=DOMAIN, admitted={"norm": ("MAX", "L1", "L2")})
def normalizer(cx: Context, x: Expr, *, norm: str = "MAX") -> Expr:
    data = cx.emit(tensors.as_dtype(x, "float32"))
    if norm == "MAX":
        size = R.max(data, axis=[-1], keepdims=True)
    elif norm == "L1":
        size = R.sum(R.abs(data), axis=[-1], keepdims=True)
    else:
        size = R.sqrt(R.sum(data * data, axis=[-1], keepdims=True))
    bound = cx.emit(size)
    return data / R.where(R.equal(bound, tensors.scalar(0, data)), tensors.scalar(1, data), bound)


@converter("Binarizer", domain=DOMAIN)
def binarizer(cx: Context, x: Expr, *, threshold: float = 0.0) -> Expr:
    return R.astype(x > tensors.scalar(threshold, x), tensors.dtype_of(x))


@converter("Imputer", domain=DOMAIN)
def imputer(
    cx: Context,
    x: Expr,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Expr:
    if tensors.is_float(x):
        new: Expr = tensors.literal(np.array(imputed_value_floats, tensors.dtype_of(x)))
        nan = np.isnan(replaced_value_float)
        is_old = R.isnan(x) if nan else R.equal(x, tensors.scalar(replaced_value_float, x))
    else:
        new = tensors.literal(np.array(imputed_value_int64s, tensors.dtype_of(x)))
        is_old = R.equal(x, tensors.scalar(replaced_value_int64, x))
    return R.where(is_old, new, x)


@converter("OneHotEncoder", domain=DOMAIN, strings=True)
def one_hot_encoder(
    cx: Context,
    x: Expr,
    *,
    cats_int64s: Sequence[int] = (),
    cats_strings: Sequence[str] = (),
    zeros: int = 1,
) -> Expr:
    if cx.has_strings(x) != bool(cats_strings):
        raise UnsupportedError("the categories and the operand are not both strings or numbers")
    categories = class_labels(cx, cats_int64s, cats_strings)
    whole = R.expand_dims(R.astype(x, "int64"), -1)
    hits = R.astype(R.equal(whole, categories), "float32")
    if zeros:
        return hits
    hits = cx.emit(hits)
    found = cx.emit(cx.within(R.max(hits, axis=[-1], keepdims=True), "known categories", 1))
    return hits * found


@converter("ArrayFeatureExtractor", domain=DOMAIN, strings=True)
def array_feature_extractor(cx: Context, x: Expr, y: Expr) -> Expr:
    found = R.take(x, R.reshape(y, (-1,)), axis=-1)
    return R.reshape(found, (1, -1)) if tensors.rank_of(x) == 1 else found


@converter("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(cx: Context, *x: Expr, inputdimensions: Sequence[int] = ()) -> Expr:
    return R.concat(Tuple(tuple(rows_of(cx, part) for part in x)), 1)


@converter("LabelEncoder", domain=DOMAIN, strings=True)
def label_encoder(
    cx: Context,
    x: Expr,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Array | None = None,
    keys_floats: Sequence[float] = (),
    keys_int64s: Sequence[int] = (),
    keys_strings: Sequence[str] = (),
    keys_tensor: Array | None = None,
    values_floats: Sequence[float] = (),
    values_int64s: Sequence[int] = (),
    values_strings: Sequence[str] = (),
    values_tensor: Array | None = None,
) -> Expr:
    given = keys_strings or keys_floats or keys_int64s
    keys = np.asarray(keys_tensor if keys_tensor is not None else given)
    if values_tensor is not None:
        values = np.asarray(values_tensor)
        unused = "_Unused" if values.dtype == object else -0.0 if values.dtype.kind == "f" else -1
        default = np.asarray(unused if default_tensor is None else default_tensor).reshape(())
    elif values_strings:
        values, default = np.array(values_strings, object), np.array(default_string, object)
    elif values_floats:
        values, default = np.array(values_floats, np.float32), np.array(default_float)
    else:
        values, default = np.array(values_int64s, np.int64), np.array(default_int64)
    if not keys.size:
        raise UnsupportedError("it has no keys")
    if (keys.dtype.kind in "OU") != cx.has_strings(x):
        raise UnsupportedError("the keys and the operand are not both strings or both numbers")
    place = _place_of(cx, x, keys.reshape(-1))
    if values.dtype == object:
        texts = [*values.reshape(-1).tolist(), default.item()]
        return cx.strings(R.take(cx.importer.strings.constant(texts, [len(texts)]), place, 0))
    return R.take(tensors.literal(np.append(values, default.astype(values.dtype))), place, 0)


def _place_of(cx: Context, x: Expr, keys: Array) -> Expr:
    """The place of each element among the keys, which is their number for all others."""
    if cx.has_strings(x):
        codes = cx.importer.strings.codes(keys.tolist())
        places = np.full(max(codes) + 2, len(keys))
        places[codes[::-1]] = np.arange(len(keys))[::-1]
        beyond = const(len(places) - 1, "int64")
        return cx.emit(R.take(tensors.literal(places), R.minimum(x, beyond), 0))
    equal = R.equal(R.expand_dims(x, -1), tensors.literal(keys.astype(tensors.dtype_of(x))))
    if tensors.is_float(x) and np.isnan(keys.astype(np.float64)).any():
        nan = R.logical_and(R.isnan(R.expand_dims(x, -1)), tensors.literal(np.isnan(keys)))
        equal = R.logical_or(equal, nan)
    hit = cx.emit(R.astype(equal, "int32"))
    first = R.argmax(hit, axis=-1)
    none = R.full((), const(len(keys), "int64"), "int64")
    return cx.emit(R.where(R.equal(R.max(hit, axis=[-1]), const(0, "int32")), none, first))


@converter("CategoryMapper", domain=DOMAIN, strings=True)
def category_mapper(
    cx: Context,
    x: Expr,
    *,
    cats_int64s: Sequence[int] = (),
    cats_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Expr:
    if cx.has_strings(x):
        return label_encoder(
            cx, x, keys_strings=cats_strings, values_int64s=cats_int64s, default_int64=default_int64
        )
    return label_encoder(
        cx, x, keys_int64s=cats_int64s, values_strings=cats_strings, default_string=default_string
    )


def posttransformed(cx: Context, scores: Expr, transform: str) -> Expr:
    match transform:
        case "NONE":
            return scores
        case "LOGISTIC":
            return R.sigmoid(scores)
        case "SOFTMAX":
            return R.nn.softmax(scores, -1)
        case "SOFTMAX_ZERO":
            is_some = R.not_equal(scores, tensors.scalar(0, scores))
            some = R.astype(is_some, tensors.dtype_of(scores))
            parts = cx.emit(R.nn.softmax(scores, -1) * some)
            return parts / R.sum(parts, axis=[-1], keepdims=True)
        case "PROBIT":
            return _probit(cx, scores)
        case _:
            raise UnsupportedError(f"post_transform {transform!r} is not imported")


def _probit(cx: Context, p: Expr) -> Expr:
    """The root of 2 times the inverse error function at 2 p - 1, by Winitzki's formula.

    Its relative error is below 0.4 %; ONNX Runtime computes the same.
    """
    a = 0.147
    above = cx.emit(2 * p - 1)
    log = cx.emit(R.log(1 - above * above))
    half = cx.emit(tensors.scalar(2 / (math.pi * a), p) + tensors.scalar(0.5, p) * log)
    inner = R.sqrt(half * half - tensors.scalar(1 / a, p) * log)
    root = R.sqrt(2 * (inner - half))
    return R.where(above < tensors.scalar(0, p), -cx.emit(root), root)


@converter("ZipMap", domain=DOMAIN)
def zip_map(
    cx: Context,
    x: Expr,
    *,
    classlabels_int64s: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
) -> Expr:
    """Relax has no maps: a packed function makes them, which only a result of the model can be."""
    keys = json.dumps(list(classlabels_int64s or classlabels_strings))
    return R.call_pure_packed(f"{PREFIX}maps", rows_of(cx, x), StringImm(keys), sinfo_args=[OBJECT])


def by_features(values: Sequence[float], x: Expr, rows: int | None = None) -> Array:
    """Numbers in rows with one for each feature of observations.

    There are as many `rows` if the number of features is symbolic.

    Errors:
        UnsupportedError: neither number is known.
    """
    width = tensors.shape_of(x)[1]
    if isinstance(width, int):
        return np.array(values, np.float32).reshape(-1, width)
    if rows is None:
        raise UnsupportedError("the number of features is symbolic")
    return np.array(values, np.float32).reshape(rows, -1)


def products(x: Expr, weights: Array, intercepts: Sequence[float] = ()) -> Expr:
    """The product of each observation and each row of weights, plus a number for each row."""
    scores = R.matmul(x, tensors.literal(weights.T.copy()))
    return scores + vector(intercepts) if intercepts else scores


def class_labels(cx: Context, numbers: Sequence[int], texts: Sequence[str]) -> Expr:
    """The labels of classes, which are numbers or strings.

    Errors:
        UnsupportedError: there are none.
    """
    if not numbers and not texts:
        raise UnsupportedError("it has no labels")
    if texts:
        return cx.importer.strings.constant(texts, [len(texts)])
    return tensors.literal(np.array(numbers, np.int64))


@converter("LinearRegressor", domain=DOMAIN)
def linear_regressor(
    cx: Context,
    x: Expr,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Expr:
    weights = np.array(coefficients, np.float32).reshape(targets, -1)
    return posttransformed(cx, products(rows_of(cx, x), weights, intercepts), post_transform)


def labels(
    cx: Context,
    names: Expr,
    scores: Expr,
    transform: str,
    *,
    margins: bool = False,
    bound: float = 0,
) -> list[Expr]:
    """The labels (of `names`) with the highest scores, and the scores.

    A single score s is that of a binary classifier: the second class above `bound`. LOGISTIC makes
    probabilities of it; else the scores are 1 - s and s, or -s and s if they are `margins`.
    """
    count = tensors.shape_of(scores)[1]
    if count == 1 and tensors.shape_of(names) == [2]:
        is_second = R.squeeze(scores > tensors.scalar(bound, scores), [1])
        score = cx.emit(R.sigmoid(scores) if transform == "LOGISTIC" else scores)
        whole = tensors.scalar(0 if margins and transform != "LOGISTIC" else 1, score)
        both = R.concat(Tuple((cx.emit(whole - score), score)), 1)
        label = R.take(names, R.astype(is_second, "int64"), 0)
        return [cx.as_strings(label, names), both]
    label = R.take(names, R.argmax(scores, axis=1), 0)
    return [cx.as_strings(label, names), posttransformed(cx, scores, transform)]


@converter("LinearClassifier", domain=DOMAIN, ignored=["multi_class"])
def linear_classifier(
    cx: Context,
    x: Expr,
    *,
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
) -> list[Expr]:
    names = class_labels(cx, classlabels_ints, classlabels_strings)
    data = rows_of(cx, x)
    rows = len(intercepts) or len(classlabels_strings or classlabels_ints)
    weights = by_features(coefficients, data, rows)
    scores = cx.emit(products(data, weights, intercepts))
    return labels(cx, names, scores, post_transform)


def _kernel(cx: Context, x: Expr, vectors: Array, kind: str, params: Sequence[float]) -> Expr:
    """The kernel function of each row of `x` and each of the vectors."""
    gamma, shift, degree = params or (0.0, 0.0, 0.0)
    if kind == "RBF":
        # |x|² - 2xv + |v|² would cancel for rows far from 0 and be NaN for infinite ones.
        apart = R.expand_dims(x, 1) - literal(vectors.astype(np.float32))
        return R.exp(R.sum(apart * apart, axis=[2]) * scalar(-gamma, x))
    linear = cx.emit(products(x, vectors))
    if kind == "LINEAR":
        return linear
    inner = linear * scalar(gamma, x) + scalar(shift, x)
    return R.tanh(inner) if kind == "SIGMOID" else inner ** scalar(degree, x)


_KERNELS = {"kernel_type": ("LINEAR", "POLY", "RBF", "SIGMOID")}


@converter("SVMRegressor", domain=DOMAIN, admitted=_KERNELS)
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
    data = rows_of(cx, x)
    weights = np.array(coefficients, np.float32)
    if n_supports:
        vectors = by_features(support_vectors, data, n_supports)
        found = _kernel(cx, data, vectors, kernel_type, kernel_params)
        sums = R.matmul(found, literal(weights.reshape(-1, 1)))
    else:
        sums = _kernel(cx, data, weights.reshape(1, -1), kernel_type, kernel_params)
    scores = cx.emit(sums + vector(rho[:1]))
    if one_class:
        inside = scores > 0
        return R.where(inside, scalar(1, scores), scalar(-1, scores))
    return posttransformed(cx, scores, post_transform)


@converter("SVMClassifier", domain=DOMAIN, admitted=_KERNELS)
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
    data = rows_of(cx, x)
    names = class_labels(cx, classlabels_ints, classlabels_strings)
    margins = post_transform == "NONE"
    if not vectors_per_class:
        weights = by_features(coefficients, data)
        sums = _kernel(cx, data, weights, kernel_type, kernel_params)
        scores = cx.emit(sums + vector(rho[:1]))
        return labels(cx, names, scores, post_transform, margins=margins)
    count = len(vectors_per_class)
    pairs = list(itertools.combinations(range(count), 2))
    vectors = by_features(support_vectors, data, sum(vectors_per_class))
    found = _kernel(cx, data, vectors, kernel_type, kernel_params)
    weights = _weights_of_pairs(coefficients, vectors_per_class, pairs)
    scores = cx.emit(R.matmul(found, literal(weights)) + vector(rho[: len(pairs)]))
    first = R.astype(scores > 0, "float32")
    second = 1 - first
    wins, losses = (
        np.array([[float(pair[k] == c) for c in range(count)] for pair in pairs], np.float32)
        for k in (0, 1)
    )
    votes = R.matmul(first, literal(wins)) + R.matmul(second, literal(losses))
    label = cx.as_strings(R.take(names, R.argmax(votes, axis=1), 0), names)
    if prob_a:
        line = scores * vector(prob_a) + vector(prob_b)
        sure = R.clip(R.sigmoid(-line), 1e-7, 1 - 1e-7)
        shares = cx.emit(_shares(cx, cx.emit(sure), count, pairs))
        return [label, posttransformed(cx, shares, post_transform)]
    if len(pairs) > 1:
        return [label, posttransformed(cx, scores, post_transform)]
    return [label, labels(cx, names, scores, post_transform, margins=margins)[1]]


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
    table = cx.emit(R.concat([sure, 1 - sure, zero], axis=1))
    source = np.full((count, count), 2 * len(pairs), np.int64)
    for k, (i, j) in enumerate(pairs):
        source[i, j], source[j, i] = k, len(pairs) + k
    beats = cx.emit(reshaped(R.take(table, literal(source.reshape(-1)), 1), (rows, count, count)))
    loses = cx.emit(R.permute_dims(beats, [0, 2, 1]))
    squares = R.sum(loses * loses, axis=[2], keepdims=True)
    diagonal = squares * literal(np.eye(count, dtype=np.float32))
    form = cx.emit(diagonal - beats * loses)
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
        at_begin = ops.compare(tir.EQ, (t - 1) % count, whole(0))
        converged = tir.And(at_begin, errors(t, b, whole(0)) < real(bound))
        return tir.Or(state(t - 1, b, count) > real(0.5), converged)

    def changed(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        k = (t - 1) % count
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
