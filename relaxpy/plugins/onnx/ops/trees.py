"""Ensembles of decision trees of the domain ai.onnx.ml."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from relaxpy.ir.core.dtype import Array
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, Tuple, const
from relaxpy.plugins.importing.tensors import as_dtype, dtype_of, literal, shape_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.context import CLASSICAL as DOMAIN, Context, converter
from relaxpy.plugins.onnx.ops.classical import class_labels, labels, posttransformed, rows_of
from relaxpy.support.dataclass import dataclass

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ = range(len(_MODES))
_MEMBER = len(_MODES)


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
    #: For each node the weights of what it votes for, NaN for what it does not.
    weights: Array
    #: The sets of the nodes that test whether a value is in one.
    members: Mapping[int, Array] = field(default_factory=dict)

    @property
    def is_leaf(self) -> Array:
        itself = np.arange(len(self.yes))
        return np.logical_and(self.yes == itself, self.no == itself)

    @property
    def depth(self) -> int:
        """The number of steps after which every walk is in a leaf.

        Errors:
            UnsupportedError: a walk never ends.
        """
        front, steps, inner = np.unique(self.roots), 0, ~self.is_leaf
        while (front := front[inner[front]]).size:
            front = np.unique([self.yes[front], self.no[front]])
            steps += 1
            if steps > len(self.yes):
                raise UnsupportedError("the branches of a tree are cyclic")
        return steps

    def folded(self, cx: Context, x: Expr, aggregate: str) -> Expr:
        """The votes of the leaves of all trees as one: (observations, votes).

        Trees have no part in what they do not vote for; it is 0 if no tree votes for it.
        """
        fold, none = _FOLDS[aggregate]
        leaves = self.weights[self.yes == np.arange(len(self.yes))]
        scores = cx.emit(fold(self.votes(cx, x, none), axis=[1]))
        if none == 0 or not np.isnan(leaves).any():
            return scores
        return cx.emit(R.where(R.isinf(scores), const(0, dtype_of(scores)), scores))

    def votes(self, cx: Context, x: Expr, none: float) -> Expr:
        """The weights of the leaf of each tree: (observations, trees, votes)."""
        forest, dtype = self.without_sets(), _computed_in(x)
        x = cx.emit(as_dtype(x, dtype))
        nodes, has_negatives = forest.half_lines(dtype)
        if has_negatives:
            both = cx.emit(R.stack(Tuple((x, cx.emit(R.negative(x)))), axis=2))
            x = cx.emit(R.reshape(both, (shape_of(x)[0], -1)))
        roots = literal(self.roots.astype(nodes.dtype))
        leaf = cx.emit(R.tree_leaves(x, literal(nodes), roots, forest.depth))
        weights = np.where(np.isnan(self.weights), self.weights.dtype.type(none), self.weights)
        return cx.emit(R.take(literal(weights), leaf, axis=0))

    def without_sets(self) -> _Forest:
        """The same trees without tests whether a value is one of several, or is not.

        These become nodes that search the value: the new ones are the last.
        """
        special = np.flatnonzero(np.logical_and(self.mode >= _EQ, ~self.is_leaf)).tolist()
        if not special:
            return self
        columns = (self.feature, self.limit, self.mode, self.yes, self.no, self.nan)
        nodes = [*zip(*(column.tolist() for column in columns), strict=True)]

        def test(at: int, members: list[Any], yes: int, no: int) -> None:
            """Test at a node, and at new ones, whether a value, which may be NaN, is a member."""
            feature, half = nodes[at][0], len(members) // 2
            if not members:
                nodes[at] = feature, -math.inf, _LT, yes, no, False
                return
            first = len(nodes)
            nodes.append(nodes[at])
            if not half:
                nodes[at] = feature, members[0], _LEQ, first, no, False
                nodes[first] = feature, members[0], _LT, no, yes, False
                return
            nodes.append(nodes[at])
            nodes[at] = feature, members[half - 1], _LEQ, first, first + 1, False
            test(first, members[:half], yes, no)
            test(first + 1, members[half:], yes, no)

        for k in special:
            feature, limit, mode, yes, no, nan = nodes[k]
            sorted_members = np.unique(self.members.get(k, limit))
            members = sorted_members[~np.isnan(sorted_members)].tolist()
            if mode == _NEQ:
                test(k, members, no, yes)
            elif nan:
                nodes.append(nodes[k])
                nodes[k] = feature, math.inf, _LEQ, len(nodes) - 1, yes, False
                test(len(nodes) - 1, members, yes, no)
            else:
                test(k, members, yes, no)
        feature, limit, mode, yes, no, nan = (
            np.array(column, old.dtype)
            for column, old in zip(zip(*nodes, strict=True), columns, strict=True)
        )
        return _Forest(feature, limit, mode, yes, no, nan, self.roots, self.weights)

    def half_lines(self, dtype: str) -> tuple[Array, bool]:
        """The nodes of `R.tree_leaves`, and whether some test negatives of features.

        Then the features are 2 k, and their negatives 2 k + 1. There, no NaN passes a test. So a
        node that NaN passes tests the contrary, and one that tests whether a value is above a limit
        tests the negative. A value below a limit is at most the number before the limit.
        """
        inner, limit = ~self.is_leaf, self.limit.astype(dtype)
        nan = np.logical_and(self.nan, inner)
        negative = np.logical_and(inner, (self.mode <= _LT) == nan)
        strict = ((self.mode == _LT) | (self.mode == _GT)) != nan
        bound = np.where(negative, -limit, limit)
        below = np.nextafter(bound, bound.dtype.type(-math.inf))
        below[np.isneginf(bound)] = np.nan
        bound = np.where(strict, below, bound)
        bound = np.where(np.isnan(limit), np.where(nan, math.inf, math.nan), bound).astype(dtype)
        # Leaves may have any feature, which walks that have ended read.
        feature, index = np.where(inner, self.feature, 0), np.dtype(f"int{bound.itemsize * 8}")
        if negative.any():
            feature = 2 * feature + negative
        after = np.where(nan, self.yes, self.no), np.where(nan, self.no, self.yes)
        columns = (feature.astype(index), bound.view(index), *(a.astype(index) for a in after))
        return np.stack(columns, 1), bool(negative.any())


def _numbers(attributes: dict[str, Any], name: str, dtype: str) -> Array:
    """The numbers of an attribute, which may be a tensor of another name."""
    tensor = attributes.get(f"{name}_as_tensor")
    numbers = attributes.get(name, ()) if tensor is None else tensor
    return np.asarray(numbers, dtype).reshape(-1)


def _joined(aggregate: str, targets: int) -> Callable[[Any, Any], Any]:
    """How several weights of one leaf for one target become one: as those of several trees do.

    The specification is silent about a single target: ONNX Runtime reads its first weight, on
    which leaves of decision paths count.
    """
    if targets == 1:
        return lambda first, _: first
    joins: dict[str, Callable[[Any, Any], Any]] = {"MIN": min, "MAX": max}
    return joins.get(aggregate, operator.add)


def _forest(
    attributes: dict[str, Any],
    kind: str,
    outputs: int,
    dtype: str,
    joined: Callable[[Any, Any], Any],
) -> _Forest:
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
    roots = [k for k in itself if k not in entered]
    if {trees[k] for k in roots} != set(trees):
        raise UnsupportedError("the branches of a tree are cyclic")
    weights = np.full((len(ids), outputs), np.nan, dtype)
    for tree, node, vote, weight in zip(
        attributes[f"{kind}_treeids"],
        attributes[f"{kind}_nodeids"],
        attributes[f"{kind}_ids"],
        _numbers(attributes, f"{kind}_weights", dtype),
        strict=True,
    ):
        if (tree, node) not in places or not 0 <= vote < outputs:
            raise UnsupportedError(f"{kind}_ids names a node or an output that there is not")
        at = places[tree, node], vote
        weights[at] = weight if np.isnan(weights[at]) else joined(weights[at], weight)
    nan = attributes.get("nodes_missing_value_tracks_true") or [0] * len(ids)
    return _Forest(
        np.array(attributes["nodes_featureids"], np.int64),
        _numbers(attributes, "nodes_values", dtype),
        np.array([0 if m == "LEAF" else _MODES.index(m) for m in modes], np.int64),
        np.array(yes, np.int64),
        np.array(no, np.int64),
        np.array(nan, bool),
        np.array(roots, np.int64),
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
    "nodes_values_as_tensor",
)
_IGNORED = (*_NODES, "nodes_hitrates", "nodes_hitrates_as_tensor")


_BASE = ("base_values", "base_values_as_tensor")


def _votes_of(kind: str) -> list[str]:
    names = ("ids", "nodeids", "treeids", "weights", "weights_as_tensor")
    return [f"{kind}_{name}" for name in names]


def _computed_in(x: Expr) -> str:
    """The datatype of bounds and sums, which float32 would round if observations are float64."""
    return "float64" if dtype_of(x) == "float64" else "float32"


def _scores(cx: Context, scores: Expr, attributes: dict[str, Any]) -> Expr:
    """The scores of trees and the base values."""
    base = _numbers(attributes, "base_values", dtype_of(scores))
    return scores + literal(base) if base.size else scores


#: How the votes of trees become one, and that of a tree without one.
_FOLDS = {
    "AVERAGE": (R.mean, 0),
    "SUM": (R.sum, 0),
    "MIN": (R.min, math.inf),
    "MAX": (R.max, -math.inf),
}
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@converter(
    "TreeEnsembleRegressor",
    domain=DOMAIN,
    ignored=[*_IGNORED, *_BASE, *_votes_of("target")],
    admitted={"aggregate_function": _FOLDS},
)
def tree_ensemble_regressor(
    cx: Context,
    x: Expr,
    *,
    aggregate_function: str = "SUM",
    n_targets: int = 1,
    post_transform: str = "NONE",
) -> Expr:
    attributes, dtype = dict(cx.node.attributes), _computed_in(x)
    joined = _joined(aggregate_function, n_targets)
    forest = _forest(attributes, "target", n_targets, dtype, joined)
    folded = forest.folded(cx, rows_of(cx, x, dtype), aggregate_function)
    scores = _scores(cx, folded, attributes)
    return posttransformed(cx, cx.emit(as_dtype(scores, "float32")), post_transform)


@converter(
    "TreeEnsembleClassifier", domain=DOMAIN, ignored=[*_IGNORED, *_BASE, *_votes_of("class")]
)
def tree_ensemble_classifier(
    cx: Context,
    x: Expr,
    *,
    classlabels_int64s: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    post_transform: str = "NONE",
) -> list[Expr]:
    names = class_labels(cx, classlabels_int64s, classlabels_strings)
    classes = len(classlabels_strings or classlabels_int64s)
    attributes, dtype = dict(cx.node.attributes), _computed_in(x)
    voted = set(attributes["class_ids"])
    single = classes == 2 and len(voted) == 1
    if single:
        attributes["class_ids"] = [0] * len(attributes["class_ids"])
        base = _numbers(attributes, "base_values", dtype)
        attributes["base_values_as_tensor"] = base[min(min(voted), len(base) - 1) :][:1]
    joined = _joined("SUM", classes)
    forest = _forest(attributes, "class", 1 if single else classes, dtype, joined)
    scores = _scores(cx, forest.folded(cx, rows_of(cx, x, dtype), "SUM"), attributes)
    # One score is the sum of shares, none of them negative, or of margins.
    margins = bool(np.any(_numbers(attributes, "class_weights", dtype) < 0))
    bound = 0.5 if single and not margins else 0
    label, found = labels(cx, names, cx.emit(scores), post_transform, margins=margins, bound=bound)
    return [label, as_dtype(found, "float32")]


@converter("TreeEnsemble", domain=DOMAIN, since=5, ignored=["nodes_hitrates"])
def tree_ensemble(
    cx: Context,
    x: Expr,
    *,
    aggregate_function: int = 1,
    leaf_targetids: Sequence[int],
    leaf_weights: Array,
    membership_values: Array | None = None,
    n_targets: int = 1,
    nodes_falseleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    nodes_featureids: Sequence[int],
    nodes_missing_value_tracks_true: Sequence[int] = (),
    nodes_modes: Array,
    nodes_splits: Array,
    nodes_trueleafs: Sequence[int],
    nodes_truenodeids: Sequence[int],
    post_transform: int = 0,
    tree_roots: Sequence[int],
) -> Expr:
    inner, leaves, dtype = len(nodes_featureids), len(leaf_targetids), dtype_of(x)
    itself = np.arange(inner, inner + leaves)

    def successors(is_leaf: Sequence[int], ids: Sequence[int]) -> Array:
        after = np.array(ids) + np.where(np.array(is_leaf) != 0, inner, 0)
        return np.concatenate([after, itself]).astype(np.int64)

    def padded(values: Any, kind: str) -> Array:
        return np.concatenate([np.asarray(values), np.zeros(leaves)]).astype(kind)

    yes = successors(nodes_trueleafs, nodes_truenodeids)
    no = successors(nodes_falseleafs, nodes_falsenodeids)
    modes = padded(nodes_modes, "int64")
    targets, roots = np.array(leaf_targetids), np.array(tree_roots, np.int64)
    for name, values, bound in (
        ("nodes_truenodeids", yes, inner + leaves),
        ("nodes_falsenodeids", no, inner + leaves),
        ("tree_roots", roots, inner),
        ("leaf_targetids", targets, n_targets),
        ("nodes_modes", modes, _MEMBER + 1),
        ("aggregate_function", np.array([aggregate_function]), len(_FOLDS)),
        ("post_transform", np.array([post_transform]), len(_TRANSFORMS)),
    ):
        if values.size and not 0 <= values.min() <= values.max() < bound:
            raise UnsupportedError(f"{name} names what there is not: the bound is {bound}")
    weights = np.full((inner + leaves, n_targets), np.nan, dtype)
    weights[itself, targets] = np.asarray(leaf_weights)
    forest = _Forest(
        padded(nodes_featureids, "int64"),
        padded(nodes_splits, dtype),
        modes,
        yes,
        no,
        padded(nodes_missing_value_tracks_true or np.zeros(inner), "bool"),
        roots,
        weights,
        _members(modes, membership_values),
    )
    scores = forest.folded(cx, x, list(_FOLDS)[aggregate_function])
    return posttransformed(cx, scores, _TRANSFORMS[post_transform])


def _members(modes: Array, values: Array | None) -> dict[int, Array]:
    """The sets of the nodes that test whether a value is in one."""
    nodes = np.flatnonzero(modes == _MEMBER).tolist()
    if not nodes:
        return {}
    every = np.zeros(0) if values is None else np.asarray(values)
    sets = np.split(every, np.flatnonzero(np.isnan(every)))[: len(nodes)]
    if len(sets) < len(nodes):
        raise UnsupportedError(f"membership_values has {len(sets)} sets, expected {len(nodes)}")
    return dict(zip(nodes, sets, strict=True))
