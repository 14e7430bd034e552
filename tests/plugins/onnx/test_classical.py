"""Classical models of the domain ai.onnx.ml, as ONNX Runtime computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import relaxpy
from relaxpy.plugins.importing.unsupported import OpNotImplemented
from relaxpy.relax.frontend.onnx import from_onnx
from tests.plugins.onnx import runtime
from tests.plugins.onnx.texts import one
from tests.rows import targets

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(11)
X = RNG.standard_normal((7, 4)).astype(np.float32)
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def model(op: str, outputs: list[str], *, version: int = 3, **attributes: Any) -> Any:
    options = {"domain": "ai.onnx.ml", "version": version}
    return one(op, {"x": X}, attributes, outputs, {"x": ["n", 4]}, **options)


def check(proto: Any, observations: Array = X) -> None:
    """Compare with ONNX Runtime for two sizes by one executable."""
    runtime.check(proto, {"x": observations}, {"x": observations[:1]})


KERNELS = [
    {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]},
    {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 0.0]},
    {"kernel_type": "POLY", "kernel_params": [0.5, 1.0, 3.0]},
    {"kernel_type": "SIGMOID", "kernel_params": [0.3, 0.2, 0.0]},
]


@pytest.mark.parametrize(
    ("kernel", "sizes", "sure"),
    [
        *((kernel, [3, 2], False) for kernel in KERNELS),
        (KERNELS[1], [2, 3, 1, 2], False),
        (KERNELS[1], [3, 2], True),
        (KERNELS[0], [2, 3, 1, 2], True),
    ],
)
def test_support_vectors_decide_between_pairs_of_classes(kernel, sizes, sure) -> None:
    classes, count = len(sizes), sum(sizes)
    pairs = classes * (classes - 1) // 2
    attributes: dict[str, Any] = {
        "classlabels_ints": list(range(10, 10 + classes)),
        "coefficients": RNG.standard_normal((classes - 1) * count).tolist(),
        "rho": RNG.standard_normal(pairs).tolist(),
        "support_vectors": RNG.standard_normal(count * 4).tolist(),
        "vectors_per_class": sizes,
        **kernel,
    }
    if sure:
        attributes["prob_a"] = (-RNG.random(pairs) - 0.5).tolist()
        attributes["prob_b"] = RNG.standard_normal(pairs).tolist()
    check(model("SVMClassifier", ["label", "scores"], **attributes))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_decision_between_two_classes_is_transformed(transform: str) -> None:
    attributes = {
        "classlabels_ints": [4, 5],
        "coefficients": RNG.standard_normal(3).tolist(),
        "rho": [0.3],
        "support_vectors": RNG.standard_normal(12).tolist(),
        "vectors_per_class": [2, 1],
        "post_transform": transform,
    }
    check(model("SVMClassifier", ["label", "scores"], **KERNELS[0], **attributes))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_support_vectors_may_be_lines(transform: str) -> None:
    classes = 3
    attributes = {
        "classlabels_ints": list(range(4, 4 + classes)),
        "coefficients": RNG.standard_normal(classes * 4).tolist(),
        "rho": [0.3],
        "kernel_type": "LINEAR",
        "kernel_params": [0.0, 0.0, 0.0],
        "post_transform": transform,
    }
    check(model("SVMClassifier", ["label", "scores"], **attributes))


def test_the_higher_of_two_scores_of_lines_has_the_label() -> None:
    # ONNX Runtime takes the second label if any score is above 0.
    attributes = {"classlabels_ints": [4, 5], "coefficients": np.eye(2, 4).ravel().tolist()}
    proto = model("SVMClassifier", ["label", "scores"], rho=[0.5, 7.0], **attributes)
    x = np.pad([[3, 1], [1, 3], [-3, -1], [-1, -3]], ((0, 0), (0, 2))).astype("float32")
    label, scores = relaxpy.compile(from_onnx(proto))["main"](x)
    right = ReferenceEvaluator(proto).run(None, {"x": x})
    assert label.tolist() == right[0].tolist() == [4, 5, 5, 4]
    np.testing.assert_array_equal(scores, right[1])


def grown(
    depth: int, trees: int, kinds: list[str], votes: int, prefix: str, weights: int = 1
) -> dict[str, Any]:
    """Trees of the operators before version 5, of random bounds, modes and weights.

    They are whole, and every other one is less deep. A leaf has so many `weights` for each of its
    votes.
    """
    rows: dict[str, list[Any]] = {}

    def add(**values: Any) -> None:
        for name, value in values.items():
            rows.setdefault(name, []).append(value)

    for tree in range(trees):
        inner = 2 ** (depth - tree % 2) - 1
        for node in range(2 * inner + 1):
            is_leaf = node >= inner
            add(
                nodes_treeids=tree,
                nodes_nodeids=node,
                nodes_featureids=node % 2 * 101 - 2 if is_leaf else int(RNG.integers(4)),
                nodes_modes="LEAF" if is_leaf else str(RNG.choice(kinds)),
                nodes_values=0.0 if is_leaf else float(RNG.choice(X.reshape(-1))),
                nodes_truenodeids=0 if is_leaf else 2 * node + 1,
                nodes_falsenodeids=0 if is_leaf else 2 * node + 2,
                nodes_missing_value_tracks_true=0 if is_leaf else int(RNG.integers(2)),
            )
            for vote in [*range(votes if is_leaf else 0)] * weights:
                add(**{f"{prefix}_treeids": tree, f"{prefix}_nodeids": node, f"{prefix}_ids": vote})
                add(**{f"{prefix}_weights": float(np.float32(RNG.standard_normal()))})
    return rows


def tensors_of(attributes: dict[str, Any], kind: str, dtype: str) -> dict[str, Any]:
    """The attributes, with tensors of a datatype as bounds, weights and base values."""
    names = ("nodes_values", f"{kind}_weights", "base_values")
    result = {name: value for name, value in attributes.items() if name not in names}
    for name in names:
        values = np.array(attributes.get(name) or [], dtype)
        # Bounds of float64 have digits that float32 has not.
        values = values if dtype == "float32" or name != names[0] else values * (1 + 1e-9)
        if values.size:
            result[f"{name}_as_tensor"] = numpy_helper.from_array(values)
    return result


def near(bounds: list[float], dtype: str) -> Array:
    """Observations of four features at bounds, and beside them by less than float32 tells apart.

    Some are NaN, infinite or a zero.
    """
    numbers = np.array([b for b in bounds if b], "float32").astype("float64")
    beside = np.concatenate([numbers * (1 + step) for step in (0, 1e-9, -1e-9, 2e-9, 1e-6)])
    special = [] if "int" in dtype else [np.nan, np.inf, -np.inf, 0.0, -0.0] * 8
    return np.resize(RNG.permutation([*beside, *special]), (48, 4)).astype(dtype)


@pytest.mark.each_choice
@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *(("target", dtype) for dtype in ("float32", "float64")),
        *(("class", dtype) for dtype in ("float32", "float64", "int64", "int32")),
    ],
)
def test_trees_compare_in_the_datatype_of_observations(kind, dtype, tensors) -> None:
    attributes = grown(3, 4, MODES, 3, kind) | {"base_values": [0.5, 1.0, -1.0]}
    if "int" in dtype:
        attributes["nodes_values"] = np.rint(attributes["nodes_values"]).tolist()
    x = near([5 * b if "int" in dtype else b for b in attributes["nodes_values"]], dtype)
    if tensors:
        attributes = tensors_of(attributes, kind, "float64" if dtype == "float64" else "float32")
    if kind == "target":
        proto = model("TreeEnsembleRegressor", ["y"], n_targets=3, **attributes)
    else:
        attributes |= {"classlabels_int64s": [7, 8, 9], "post_transform": "SOFTMAX_ZERO"}
        proto = model("TreeEnsembleClassifier", ["label", "scores"], **attributes)
    code = helper.np_dtype_to_tensor_dtype(x.dtype)
    proto.graph.input[0].type.tensor_type.elem_type = code
    check(proto, x)


MODES = [f"BRANCH_{mode}" for mode in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")]


@pytest.mark.parametrize(
    ("fold", "kinds", "votes", "base"),
    [
        ("SUM", MODES, 1, []),
        ("SUM", MODES[:1], 1, [0.5]),
        ("AVERAGE", MODES, 3, [0.5, 1.0, -1.0]),
        ("MIN", MODES, 1, [0.5]),
        ("MAX", MODES[:1], 3, []),
    ],
)
def test_trees_predict_numbers(fold: str, kinds: list[str], votes: int, base: list[float]) -> None:
    attributes = grown(3, 5, kinds, votes, "target")
    more = {"aggregate_function": fold, "n_targets": votes, "base_values": base or None}
    check(model("TreeEnsembleRegressor", ["y"], **attributes, **more))


@pytest.mark.parametrize("votes", [1, 2])
@pytest.mark.parametrize("fold", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_leaves_with_several_weights_for_a_target_predict_numbers(fold: str, votes: int) -> None:
    attributes = grown(2, 3, MODES, votes, "target", weights=3)
    more = {"aggregate_function": fold, "n_targets": votes}
    check(model("TreeEnsembleRegressor", ["y"], **attributes, **more))


@pytest.mark.each_choice
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize(
    ("votes", "classes", "positive", "base"),
    [(1, 2, False, []), (1, 2, True, [0.3]), (1, 2, True, []), (3, 3, False, [1.0, 0.0, 0.5])],
)
def test_trees_choose_classes(transform, positive, votes, classes, base) -> None:
    attributes = grown(2, 3, MODES, votes, "class")
    if positive:
        attributes["class_weights"] = [abs(weight) / 4 for weight in attributes["class_weights"]]
    attributes["classlabels_int64s"] = list(range(7, 7 + classes))
    more = {"post_transform": transform, "base_values": base or None}
    check(model("TreeEnsembleClassifier", ["label", "scores"], **attributes, **more))


@pytest.mark.each_choice
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("base", [[], [0.25], [0.25, -0.5]])
@pytest.mark.parametrize("ids", ["both", "mixed", "one"])
def test_trees_choose_of_two_classes(ids: str, base: list[float], transform: str) -> None:
    """ONNX Runtime has the label 1 of votes for both, whatever the labels are."""
    attributes = grown(2, 3, MODES, 1 if ids == "one" else 2, "class")
    if ids == "mixed":  # leaves vote for one class, the other, or both
        pairs = range(0, len(attributes["class_ids"]), 2)
        kept = [k + n for k in pairs for n in [[0], [1], [0, 1]][RNG.integers(3)]]
        attributes |= {
            name: [attributes[name][k] for k in kept]
            for name in attributes
            if name.startswith("class_")
        }
    if ids == "one":  # shares, of which the other class has the rest
        attributes["class_weights"] = [abs(weight) / 9 for weight in attributes["class_weights"]]
    attributes |= {"base_values": base or None, "classlabels_int64s": [7, 8]}

    def expected(transform: str) -> Any:
        proto = model("TreeEnsembleClassifier", ["y", "z"], post_transform=transform, **attributes)
        return proto, *ReferenceEvaluator(proto).run(None, {"x": X})

    proto, label, scores = expected(transform)
    if ids == "one":
        share = expected("NONE")[2][:, 1]
        label = np.where(share > 0.5, 8, 7)
    for target in targets(str(proto)):
        found = relaxpy.compile(from_onnx(proto), target)["main"](X)
        np.testing.assert_array_equal(found[0], label)
        if ids != "one" or transform == "NONE":
            np.testing.assert_allclose(found[1], scores, rtol=1e-4, atol=1e-5)


def test_a_class_for_which_no_leaf_votes_has_the_score_0() -> None:
    """ONNX Runtime has another class here, whose score is negative."""
    attributes = grown(2, 3, MODES, 3, "class")
    kept = [k for k, voted in enumerate(attributes["class_ids"]) if voted != 1]
    votes = {name: [attributes[name][k] for k in kept] for name in attributes if "class_" in name}
    votes["class_weights"] = [-abs(weight) for weight in votes["class_weights"]]
    more = {**attributes, **votes, "classlabels_int64s": [7, 8, 9]}
    proto = model("TreeEnsembleClassifier", ["y", "z"], **more)
    label, scores = ReferenceEvaluator(proto).run(None, {"x": X})
    assert set(label) == {8}
    found = relaxpy.compile(from_onnx(proto), "numpy")["main"](X)
    np.testing.assert_array_equal(found[0], label)
    np.testing.assert_allclose(found[1], scores, rtol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "supports", "one_class"),
    [*((kernel, 5, 0) for kernel in KERNELS), (KERNELS[0], 0, 0), (KERNELS[1], 5, 1)],
)
def test_support_vectors_predict_numbers(kernel, supports, one_class) -> None:
    attributes: dict[str, Any] = {
        "coefficients": RNG.standard_normal(supports or 4).tolist(),
        "rho": [0.2],
        "n_supports": supports,
        "one_class": one_class,
        "support_vectors": RNG.standard_normal(supports * 4).tolist() or [0.0],
        **kernel,
    }
    check(model("SVMRegressor", ["y"], **attributes))


def test_radial_kernels_take_differences_of_rows_far_from_zero() -> None:
    rows = (1000 + RNG.standard_normal((5, 4))).astype(np.float32)
    attributes = {"coefficients": [1.0, 2.0, 3.0, 4.0, 5.0], "rho": [0.2], "n_supports": 5}
    attributes |= {"support_vectors": (rows + 0.25).ravel().tolist(), **KERNELS[1]}
    rows[0, 1] = np.inf
    check(model("SVMRegressor", ["y"], **attributes), rows)


@pytest.mark.parametrize(
    "keys", [{"classlabels_int64s": [3, 5, 7, 9]}, {"classlabels_strings": [*"abcd"]}]
)
def test_maps_of_probabilities_are_dictionaries(keys: dict[str, Any]) -> None:
    proto = model("ZipMap", ["y"], **keys)
    for target in ("native", "numpy"):
        main = relaxpy.compile(from_onnx(proto), target)["main"]
        for x in (X, X[:1], X[:0]):
            [expected] = runtime.results(proto)({"x": x})
            assert list(main(x)) == expected


FLAGS = np.array([[1, 0, 2, -1], [0, 0, 0, 0], [3, 1, 1, 5]])
WORDS = np.array([["a", "b"], ["c", "a"]], object)
HOLES = np.where(X > 0.5, np.nan, X).astype("float32")

#: Operators, their attributes, and the operands of each call of one executable.
CASES: list[tuple[str, dict[str, Any], list[tuple[Array, ...]]]] = [
    *(
        ("Scaler", {"offset": offset, "scale": scale}, [(x,), (x[:1],)])
        for offset, scale in (([0.5], [2.0]), ([1.0, -2.0, 0.0, 3.0], [1.0, 0.0, -1.0, 0.5]))
        for x in (X, X.astype("float64"), FLAGS, FLAGS.astype("int32"))
    ),
    *(
        ("Normalizer", {"norm": norm}, [(x,), (x[:1],)])
        for norm in ("MAX", "L1", "L2")
        for x in (X, np.zeros_like(X), FLAGS)
    ),
    *(("Binarizer", {"threshold": bound}, [(X,), (X[:1],)]) for bound in (0.0, 0.5, -1.0)),
    *(
        ("Imputer", {"imputed_value_floats": new, "replaced_value_float": old}, [(x,), (x[:1],)])
        for new in ([9.0], [1.0, 2.0, 3.0, 4.0])
        for x, old in ((HOLES, np.nan), (np.round(X), 0.0))
    ),
    *(
        ("Imputer", {"imputed_value_int64s": new, "replaced_value_int64": 1}, [(FLAGS,)])
        for new in ([9], [1, 2, 3, 4])
    ),
    *(
        ("OneHotEncoder", {"cats_int64s": [0, 1, 2, 7]}, [(x,), (x[0],)])
        for x in (np.abs(FLAGS) % 3, (np.abs(FLAGS) % 3).astype("float32"))
    ),
    *(
        ("ArrayFeatureExtractor", {}, [(x, np.array([2, 0, 2])), (x, np.array([[1]]))])
        for x in (X, FLAGS, X[0])
    ),
    ("FeatureVectorizer", {"inputdimensions": [4, 2]}, [(X, X[:, :2])]),
    *(
        ("LinearRegressor", {"coefficients": [0.5, -1.0, 2.0, 0.1] * n, **more}, [(X,), (X[:1],)])
        for n, more in (
            (1, {}),
            (1, {"intercepts": [0.25]}),
            (3, {"targets": 3, "intercepts": [1.0, 0.0, -1.0]}),
            *((3, {"targets": 3, "post_transform": name}) for name in TRANSFORMS),
        )
    ),
    (
        "LinearRegressor",
        {"coefficients": [0.25, 0.25, 0.25, 0.25], "post_transform": "PROBIT"},
        [(np.abs(X) / 4,), (np.array([[0.1, 0.2, 0.3, 0.4], [2, 0, 0, 0]], "float32"),)],
    ),
    *(
        (
            "LinearClassifier",
            {
                "coefficients": [0.5, -1.0, 2.0, 0.1, 1.0, 0.3, -0.2, 0.7, -1.5, 0.2, 0.1, 2.0][
                    : 4 * n
                ],
                "intercepts": [0.1, -0.3, 0.2][:n],
                "classlabels_ints": list(range(5, 5 + classes)),
                "post_transform": name,
            },
            [(X,), (X[:1],)],
        )
        for n, classes in ((1, 2), (2, 2), (3, 3))
        for name in TRANSFORMS
    ),
    *(
        ("LabelEncoder", {**keys, **values, **default}, [(x,), (x[:1],)])
        for x, keys in (
            (FLAGS, {"keys_int64s": [0, 1, 3]}),
            (FLAGS.astype("float32"), {"keys_floats": [0.0, 1.0, 3.0]}),
            (np.array([[np.nan, 1.0, 2.0]], "float32"), {"keys_floats": [1.0, np.nan, 3.0]}),
            (WORDS, {"keys_strings": ["a", "c", "d"]}),
        )
        for values, default in (
            ({"values_int64s": [7, 8, 9]}, {"default_int64": 5}),
            ({"values_floats": [0.5, 1.5, 2.5]}, {"default_float": 5.5}),
            ({"values_strings": ["x", "y", "z"]}, {"default_string": "none"}),
        )
    ),
    *(
        (
            "CategoryMapper",
            {"cats_int64s": [0, 1, 3], "cats_strings": ["a", "c", "d"], **default},
            [(x,), (x[:1],)],
        )
        for x, default in ((FLAGS, {"default_string": "none"}), (WORDS, {"default_int64": 5}))
    ),
]


@pytest.mark.parametrize(
    ("op", "attributes", "calls"), CASES, ids=[f"{op}-{k}" for k, (op, *_) in enumerate(CASES)]
)
def test_operators_are_those_of_onnx_runtime(op, attributes, calls) -> None:
    outputs = ["y", "scores"] if op == "LinearClassifier" else ["y"]
    names = [f"x{k}" for k in range(len(calls[0]))]
    sizes = {
        name: [
            f"{name}_{k}" if len({c[i].shape[k:] for c in calls}) > 1 else size
            for k, size in enumerate(x.shape)
        ]
        if len({c[i].ndim for c in calls}) == 1
        else None
        for i, (name, x) in enumerate(zip(names, calls[0], strict=True))
    }
    feeds = [dict(zip(names, args, strict=True)) for args in calls]
    options = {"domain": "ai.onnx.ml", "version": 4}
    runtime.check(one(op, feeds[0], attributes, outputs, sizes, **options), *feeds)


def tree(**changes: Any) -> dict[str, Any]:
    """Two trees that share nodes' arrays: a set and a bound, then a bound alone."""
    attributes: dict[str, Any] = {
        "n_targets": 2,
        "nodes_featureids": [0, 1, 2],
        "nodes_splits": numpy_helper.from_array(np.array([0, 0.1, -0.2], np.float32)),
        "nodes_modes": numpy_helper.from_array(np.array([6, 0, 4], np.uint8)),
        "nodes_truenodeids": [1, 0, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 1, 0],
        "nodes_falseleafs": [1, 1, 1],
        "membership_values": numpy_helper.from_array(
            np.array([X[0, 0], X[3, 0], np.nan], np.float32)
        ),
        "leaf_targetids": [0, 1, 0, 1],
        "leaf_weights": numpy_helper.from_array(np.array([1, 2, 3, 4], np.float32)),
        "tree_roots": [0, 2],
    }
    return {**attributes, **changes}


NEGATIVE = numpy_helper.from_array(np.array([-1, -2, -3, -4], np.float32))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"aggregate_function": 0},
        # A tree has no part in what it does not vote for, such as that of 0.
        {"aggregate_function": 2},
        {"aggregate_function": 3, "leaf_weights": NEGATIVE},
        {"membership_values": numpy_helper.from_array(np.array([4, 1, 3, 2, np.nan], np.float32))},
        {"nodes_missing_value_tracks_true": [1, 0, 1]},
    ],
)
def test_trees_walk_by_sets_and_bounds(changes: dict[str, Any]) -> None:
    proto = model("TreeEnsemble", ["y"], version=5, **tree(**changes))
    check(proto, np.concatenate([X, HOLES, np.rint(3 * X)]))


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes_truenodeids": [9, 0, 3]},
        {"nodes_truenodeids": [0, 0, 3]},
        {"leaf_targetids": [0, 1, 2, 0]},
        {"tree_roots": [-1]},
        {"post_transform": 9},
        {"aggregate_function": -1},
        {"nodes_featureids": [0]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_trees_that_name_what_there_is_not_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(OpNotImplemented):
        from_onnx(model("TreeEnsemble", ["y"], version=5, **tree(**changes)))


def test_a_tree_without_a_first_node_is_refused() -> None:
    attributes = {
        "nodes_treeids": [0, 0, 1],
        "nodes_nodeids": [0, 1, 0],
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
        "nodes_values": [0.0, 1.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [1, 0, 0],
        "target_treeids": [1],
        "target_nodeids": [0],
        "target_ids": [0],
        "target_weights": [1.0],
        "n_targets": 1,
    }
    with pytest.raises(OpNotImplemented, match="the branches of a tree are cyclic"):
        from_onnx(model("TreeEnsembleRegressor", ["y"], **attributes))
