"""Classical models of the domain ai.onnx.ml: linear models, scalers, encoders, trees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxpy.dataclass import dataclass
from relaxpy.frontend.onnx.context import Context
from relaxpy.frontend.onnx.ops import text
from relaxpy.frontend.onnx.registry import converter
from relaxpy.frontend.shared.tensors import (
    dtype_of,
    is_float,
    literal,
    rank_of,
    scalar,
    shape_of,
    tensor_of,
)
from relaxpy.frontend.shared.unsupported import UnsupportedError
from relaxpy.ir.relax.nodes import Expr, StructInfo, Tuple, const
from relaxpy.ir.relax.op.definition.registry import R

DOMAIN = "ai.onnx.ml"
Array = Any


def _floats(x: Expr) -> Expr:
    return x if dtype_of(x) == "float32" else R.astype(x, "float32")


def _rows(cx: Context, x: Expr) -> Expr:
    """The operand as a matrix of float32 with an observation in each row."""
    matrix = x if rank_of(x) == 2 else R.reshape(x, (1, -1))
    return cx.emit(_floats(matrix))


def _vector(values: Sequence[float]) -> Expr:
    return literal(np.array(values, np.float32))


@converter("Scaler", domain=DOMAIN)
def scaler(
    cx: Context, x: Expr, *, offset: Sequence[float] = (0.0,), scale: Sequence[float] = (1.0,)
) -> Expr:
    return R.multiply(R.subtract(_floats(x), _vector(offset)), _vector(scale))


@converter("Normalizer", domain=DOMAIN)
def normalizer(cx: Context, x: Expr, *, norm: str = "MAX") -> Expr:
    data = cx.emit(_floats(x))
    match norm:
        case "MAX":
            size = R.max(data, axis=[-1], keepdims=True)
        case "L1":
            size = R.sum(R.abs(data), axis=[-1], keepdims=True)
        case "L2":
            size = R.sqrt(R.sum(R.multiply(data, data), axis=[-1], keepdims=True))
        case _:
            raise UnsupportedError(f"norm {norm!r} is not MAX, L1 or L2")
    bound = cx.emit(size)
    return R.divide(data, R.where(R.equal(bound, scalar(0, data)), scalar(1, data), bound))


@converter("Binarizer", domain=DOMAIN)
def binarizer(cx: Context, x: Expr, *, threshold: float = 0.0) -> Expr:
    return R.astype(R.greater(x, scalar(threshold, x)), dtype_of(x))


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
    if is_float(x):
        new: Expr = literal(np.array(imputed_value_floats, dtype_of(x)))
        nan = np.isnan(replaced_value_float)
        is_old = R.isnan(x) if nan else R.equal(x, scalar(replaced_value_float, x))
    else:
        new = literal(np.array(imputed_value_int64s, dtype_of(x)))
        is_old = R.equal(x, scalar(replaced_value_int64, x))
    return R.where(is_old, new, x)


@converter("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(
    cx: Context, x: Expr, *, cats_int64s: Sequence[int] = (), zeros: int = 1
) -> Expr:
    categories = literal(np.array(cats_int64s, np.int64))
    whole = R.expand_dims(R.astype(x, "int64"), -1)
    return R.astype(R.equal(whole, categories), "float32")


@converter("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(cx: Context, x: Expr, y: Expr) -> Expr:
    found = R.take(x, R.reshape(y, (-1,)), axis=-1)
    return R.reshape(found, (1, -1)) if rank_of(x) == 1 else found


@converter("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(cx: Context, *x: Expr, inputdimensions: Sequence[int] = ()) -> Expr:
    return R.concat(Tuple(tuple(_rows(cx, part) for part in x)), 1)


def _labels_info(x: Expr, dtype: str) -> StructInfo:
    """The struct info of labels: of the shape of `x`, unless its elements are strings."""
    return tensor_of(None if text.are_strings(x) else shape_of(x), dtype)


@converter("LabelEncoder", domain=DOMAIN)
def label_encoder(
    cx: Context,
    x: Expr,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Array = None,
    keys_floats: Sequence[float] = (),
    keys_int64s: Sequence[int] = (),
    keys_strings: Sequence[str] = (),
    keys_tensor: Array = None,
    values_floats: Sequence[float] = (),
    values_int64s: Sequence[int] = (),
    values_strings: Sequence[str] = (),
    values_tensor: Array = None,
) -> Expr:
    given = keys_strings or keys_floats or keys_int64s
    keys = np.asarray(keys_tensor if keys_tensor is not None else given)
    if values_tensor is not None:
        values = np.asarray(values_tensor)
        default = np.asarray(0 if default_tensor is None else default_tensor).reshape(())
    elif values_strings:
        values, default = np.array(values_strings, object), np.array(default_string, object)
    elif values_floats:
        values, default = np.array(values_floats, np.float32), np.array(default_float)
    else:
        values, default = np.array(values_int64s, np.int64), np.array(default_int64)
    if not keys.size:
        raise UnsupportedError("it has no keys")
    if keys.dtype.kind in "OU" or values.dtype.kind in "OU":
        rows = [keys.reshape(-1).tolist(), values.reshape(-1).tolist(), default.item()]
        strings = values.dtype.kind in "OU"
        info = text.OBJECT if strings else _labels_info(x, values.dtype.name)
        name = "" if strings else values.dtype.name
        return text.call("labels", info, x, json.dumps(rows), name)
    equal = R.equal(R.expand_dims(x, -1), literal(keys.astype(dtype_of(x))))
    if is_float(x) and np.isnan(keys.astype(np.float64)).any():
        nan = R.logical_and(R.isnan(R.expand_dims(x, -1)), literal(np.isnan(keys)))
        equal = R.logical_or(equal, nan)
    hit = cx.emit(R.astype(equal, "int32"))
    table = literal(np.append(values, default.astype(values.dtype)))
    first = R.argmax(hit, axis=-1)
    none = R.full((), const(len(keys), "int64"), "int64")
    return R.take(table, R.where(R.equal(R.max(hit, axis=[-1]), const(0, "int32")), none, first), 0)


def _post(cx: Context, scores: Expr, transform: str) -> Expr:
    match transform:
        case "NONE":
            return scores
        case "LOGISTIC":
            return R.sigmoid(scores)
        case "SOFTMAX":
            return R.nn.softmax(scores, -1)
        case "SOFTMAX_ZERO":
            some = R.astype(R.not_equal(scores, scalar(0, scores)), "float32")
            parts = cx.emit(R.multiply(R.nn.softmax(scores, -1), some))
            return R.divide(parts, R.sum(parts, axis=[-1], keepdims=True))
        case _:
            raise UnsupportedError(f"post_transform {transform!r} is not imported")


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
    weights = np.array(coefficients, np.float32).reshape(targets, -1).T.copy()
    scores = R.matmul(_rows(cx, x), literal(weights))
    return _post(cx, R.add(scores, _vector(intercepts)) if intercepts else scores, post_transform)


def _labels(cx: Context, labels: Sequence[int], scores: Expr, transform: str) -> list[Expr]:
    """The labels of the greatest scores, and the scores; a single score stands for two classes."""
    count = shape_of(scores)[1]
    names = np.array(labels, np.int64)
    if count == 1 and len(labels) == 2:
        half = 0.5 if transform == "LOGISTIC" else 0.0
        score = cx.emit(_post(cx, scores, transform))
        is_second = R.squeeze(R.greater(score, scalar(half, score)), [1])
        other = R.subtract(scalar(1, score), score) if half else R.negative(score)
        both = R.concat(Tuple((cx.emit(other), score)), 1)
        return [R.take(literal(names), R.astype(is_second, "int64"), 0), both]
    place = R.argmax(scores, axis=1)
    return [R.take(literal(names), place, 0), _post(cx, scores, transform)]


@converter("LinearClassifier", domain=DOMAIN, ignored=["multi_class"])
def linear_classifier(
    cx: Context,
    x: Expr,
    *,
    classlabels_ints: Sequence[int] = (),
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
) -> list[Expr]:
    data = _rows(cx, x)
    width = shape_of(data)[1]
    if not classlabels_ints or not isinstance(width, int):
        raise UnsupportedError("labels that are strings are not imported")
    weights = np.array(coefficients, np.float32).reshape(-1, width).T.copy()
    scores = R.matmul(data, literal(weights))
    scores = cx.emit(R.add(scores, _vector(intercepts)) if intercepts else scores)
    return _labels(cx, classlabels_ints, scores, post_transform)


# -- Trees ------------------------------------------------------------------------------------

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


@dataclass(frozen=True, eq=False)
class _Forest:
    """The nodes of all trees: a leaf is its own successor on both sides."""

    feature: Array
    limit: Array
    mode: Array
    yes: Array
    no: Array
    nan: Array
    roots: Array
    #: For each node the weights of what it votes for.
    weights: Array

    @property
    def depth(self) -> int:
        """The number of steps after which every walk is in a leaf.

        Errors:
            UnsupportedError: a walk never ends.
        """
        front, steps = set(self.roots.tolist()), 0
        inner = self.yes != np.arange(len(self.yes))
        while any(inner[n] for n in front):
            front = {m for n in front for m in (int(self.yes[n]), int(self.no[n]))}
            steps += 1
            if steps > len(self.yes):
                raise UnsupportedError("the branches of a tree are cyclic")
        return steps

    def votes(self, cx: Context, x: Expr) -> Expr:
        """The weights of the leaf of each tree: (observations, trees, votes)."""
        rows = shape_of(x)[0]
        node = R.broadcast_to(literal(self.roots), (rows, len(self.roots)))
        tables = [literal(t) for t in (self.feature, self.limit, self.yes, self.no, self.nan)]
        modes = sorted(set(self.mode.tolist()))
        for _ in range(self.depth):
            at = cx.emit(node)
            feature, limit, yes, no, nan = (cx.emit(R.take(t, at, axis=0)) for t in tables)
            value = cx.emit(R.gather_elements(x, feature, axis=1))
            tests = [_test(_MODES[m], value, limit) for m in modes]
            goes = tests[0]
            for m, test in zip(modes[1:], tests[1:], strict=True):
                mode = R.take(literal(self.mode), at, axis=0)
                goes = R.where(R.equal(mode, const(m, "int64")), test, goes)
            if self.nan.any():
                goes = R.logical_or(goes, R.logical_and(R.isnan(value), nan))
            node = R.where(goes, yes, no)
        return cx.emit(R.take(literal(self.weights), cx.emit(node), axis=0))


def _test(mode: str, value: Expr, limit: Expr) -> Expr:
    compare = {
        "BRANCH_LEQ": R.less_equal,
        "BRANCH_LT": R.less,
        "BRANCH_GTE": R.greater_equal,
        "BRANCH_GT": R.greater,
        "BRANCH_EQ": R.equal,
        "BRANCH_NEQ": R.not_equal,
    }
    result: Expr = compare[mode](value, limit)
    return result


def _forest(attributes: dict[str, Any], kind: str, outputs: int) -> _Forest:
    """The trees of a regressor or classifier; the attributes of `kind` say what leaves vote for."""
    trees, ids = attributes["nodes_treeids"], attributes["nodes_nodeids"]
    places = {pair: k for k, pair in enumerate(zip(trees, ids, strict=True))}
    modes = attributes["nodes_modes"]
    unknown = [m for m in modes if m not in _MODES and m != "LEAF"]
    if unknown:
        raise UnsupportedError(f"nodes of the mode {unknown[0]!r} are not imported")
    itself = list(range(len(ids)))

    def next_of(name: str) -> list[int]:
        after = attributes[name]
        try:
            return [k if modes[k] == "LEAF" else places[trees[k], after[k]] for k in itself]
        except (KeyError, IndexError):
            raise UnsupportedError(f"{name} names a node that there is not") from None

    yes, no = next_of("nodes_truenodeids"), next_of("nodes_falsenodeids")
    entered = {m for k, pair in enumerate(zip(yes, no, strict=True)) for m in pair if m != k}
    weights = np.zeros((len(ids), outputs), np.float32)
    for tree, node, vote, weight in zip(
        attributes[f"{kind}_treeids"],
        attributes[f"{kind}_nodeids"],
        attributes[f"{kind}_ids"],
        attributes[f"{kind}_weights"],
        strict=True,
    ):
        if (tree, node) not in places or not 0 <= vote < outputs:
            raise UnsupportedError(f"{kind}_ids names a node or an output that there is not")
        weights[places[tree, node], vote] += weight
    nan = attributes.get("nodes_missing_value_tracks_true") or [0] * len(ids)
    return _Forest(
        np.array(attributes["nodes_featureids"], np.int64),
        np.array(attributes["nodes_values"], np.float32),
        np.array([0 if m == "LEAF" else _MODES.index(m) for m in modes], np.int64),
        np.array(yes, np.int64),
        np.array(no, np.int64),
        np.array(nan, bool),
        np.array([k for k in itself if k not in entered], np.int64),
        weights,
    )


_NODES = (
    "nodes_falsenodeids",
    "nodes_featureids",
    "nodes_missing_value_tracks_true",
    "nodes_modes",
    "nodes_nodeids",
    "nodes_treeids",
    "nodes_truenodeids",
    "nodes_values",
)
_IGNORED = (*_NODES, "nodes_hitrates")


def _votes_of(kind: str) -> list[str]:
    return [f"{kind}_{name}" for name in ("ids", "nodeids", "treeids", "weights")]


@converter("TreeEnsembleRegressor", domain=DOMAIN, ignored=[*_IGNORED, *_votes_of("target")])
def tree_ensemble_regressor(
    cx: Context,
    x: Expr,
    *,
    aggregate_function: str = "SUM",
    base_values: Sequence[float] = (),
    n_targets: int = 1,
    post_transform: str = "NONE",
) -> Expr:
    forest = _forest(dict(cx.node.attributes), "target", n_targets)
    votes = forest.votes(cx, _rows(cx, x))
    fold = {"SUM": R.sum, "AVERAGE": R.mean, "MIN": R.min, "MAX": R.max}[aggregate_function]
    scores = fold(votes, axis=[1])
    return _post(cx, R.add(scores, _vector(base_values)) if base_values else scores, post_transform)


@converter("TreeEnsembleClassifier", domain=DOMAIN, ignored=[*_IGNORED, *_votes_of("class")])
def tree_ensemble_classifier(
    cx: Context,
    x: Expr,
    *,
    base_values: Sequence[float] = (),
    classlabels_int64s: Sequence[int] = (),
    post_transform: str = "NONE",
) -> list[Expr]:
    if not classlabels_int64s:
        raise UnsupportedError("labels that are strings are not imported")
    attributes = dict(cx.node.attributes)
    single = len(classlabels_int64s) == 2 and len(set(attributes["class_ids"])) == 1
    if single:
        attributes["class_ids"] = [0] * len(attributes["class_ids"])
    forest = _forest(attributes, "class", 1 if single else len(classlabels_int64s))
    scores = R.sum(forest.votes(cx, _rows(cx, x)), axis=[1])
    scores = cx.emit(R.add(scores, _vector(base_values)) if base_values else scores)
    if not single:
        return _labels(cx, classlabels_int64s, scores, post_transform)
    # One probability, or a margin that LOGISTIC makes one.
    score = cx.emit(_post(cx, scores, post_transform))
    is_second = R.squeeze(R.greater(score, scalar(0.5, score)), [1])
    both = R.concat(Tuple((cx.emit(R.subtract(scalar(1, score), score)), score)), 1)
    names = literal(np.array(classlabels_int64s, np.int64))
    return [R.take(names, R.astype(is_second, "int64"), 0), both]
