"""Forests of decision trees in ONNX files, beside ONNX Runtime, on one thread.

`PYTHONPATH=. python benchmarks/forests.py [NAME]` trains five forests by scikit-learn, and prints,
for each and for numbers of rows, relaxpy's time of a call divided by that of ONNX Runtime: the
least time of the process on each side, called in turn. Calls get other rows each time, as a CPU
predicts the branches of rows that came before. Then the same for a forest with `ZipMap`, and for
one some of whose features are categories.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ["RELAXPY_NUM_THREADS"] = "1"

import numpy as np
import onnxruntime as ort
from onnx import helper
from sklearn import ensemble

from relaxpy.exec.api.compile import compile
from relaxpy.plugins.onnx.importer import from_onnx

FEATURES = 20
ROWS = (1, 10, 100, 1_000, 10_000)
CALLED = 4_000
"""The rows of different calls together, at least."""
ROUNDS = 4
WORDS = [f"word {k}" for k in range(50)]


def drawn(rows: int, seed: int = 0) -> tuple[Any, Any]:
    """Observations and the numbers to predict."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, FEATURES)).astype(np.float32)
    return x, x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + 0.3 * rng.standard_normal(rows)


def attributes(trees: list[Any], kind: str, weights: Callable[[Any], Any]) -> dict[str, list[Any]]:
    """The attributes of an ensemble; `weights` has a row for each node of a tree."""
    found: dict[str, list[Any]] = {}

    def add(**columns: Any) -> None:
        for name, column in columns.items():
            found.setdefault(name, []).extend(np.asarray(column).tolist())

    for number, tree in enumerate(trees):
        leaf = tree.children_left < 0
        bound = tree.threshold.astype(np.float32)
        bound = np.where(bound > tree.threshold, np.nextafter(bound, np.float32(-np.inf)), bound)
        add(
            nodes_treeids=np.full(len(leaf), number),
            nodes_nodeids=np.arange(len(leaf)),
            nodes_featureids=np.where(leaf, 0, tree.feature),
            nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ"),
            nodes_values=np.where(leaf, 0, bound),
            nodes_truenodeids=np.where(leaf, 0, tree.children_left),
            nodes_falsenodeids=np.where(leaf, 0, tree.children_right),
        )
        votes = weights(tree)[leaf]
        add(
            **{
                f"{kind}_treeids": np.full(votes.size, number),
                f"{kind}_nodeids": np.repeat(np.flatnonzero(leaf), votes.shape[1]),
                f"{kind}_ids": np.tile(np.arange(votes.shape[1]), len(votes)),
                f"{kind}_weights": votes.ravel(),
            }
        )
    return found


def model(nodes: list[Any], inputs: list[Any], outputs: list[str]) -> Any:
    """The model of nodes of the domain ai.onnx.ml and others."""
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "forest", inputs, results)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def classical(op: str, inputs: list[str], outputs: list[str], **attrs: Any) -> Any:
    """A node of the domain ai.onnx.ml."""
    return helper.make_node(op, inputs, outputs, domain="ai.onnx.ml", **attrs)


def regressor(forest: Any, scale: float, base: float) -> Any:
    """The model of a sum of trees."""
    trees = [tree.tree_ for tree in np.ravel(forest.estimators_)]
    attrs = attributes(trees, "target", lambda tree: tree.value[:, 0] * scale)
    node = classical(
        "TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, base_values=[base], **attrs
    )
    return model([node], [helper.make_tensor_value_info("x", 1, ["n", FEATURES])], ["y"])


def of_classes(forest: Any, width: int, zip_maps: bool, words: bool) -> Any:
    """The model of a vote for three classes, with maps of probabilities or without."""
    trees = [tree.tree_ for tree in forest.estimators_]
    attrs = attributes(
        trees,
        "class",
        lambda tree: tree.value[:, 0] / tree.value[:, 0].sum(1)[:, None] / len(trees),
    )
    labels = {"classlabels_int64s": [0, 1, 2]}
    nodes = [
        classical("TreeEnsembleClassifier", ["x"], ["label", "p"], **labels, **attrs),
        *([classical("ZipMap", ["p"], ["maps"], **labels)] if zip_maps else []),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, ["n", width])]
    if words:
        nodes = [
            classical("OneHotEncoder", ["words"], ["hot"], cats_strings=WORDS),
            helper.make_node("Flatten", ["hot"], ["flat"]),
            helper.make_node("Concat", ["numbers", "flat"], ["x"], axis=1),
            *nodes,
        ]
        inputs = [
            helper.make_tensor_value_info("numbers", 1, ["n", FEATURES]),
            helper.make_tensor_value_info("words", 8, ["n", 2]),
        ]
    return model(nodes, inputs, ["label", "maps" if zip_maps else "p"])


def models() -> Iterator[tuple[str, Any]]:
    """The name of each model and how it is made."""
    x, y = drawn(4_000)
    classes = np.digitize(y, [-1, 1])
    yield (
        "10 deep trees",
        lambda: regressor(
            ensemble.RandomForestRegressor(10, random_state=0).fit(x[:2000], y[:2000]), 0.1, 0.0
        ),
    )
    forest = ensemble.RandomForestClassifier(100, max_depth=8, random_state=0)
    yield (
        "100 trees, depth 8, 3 classes",
        lambda: of_classes(forest.fit(x, classes), FEATURES, False, False),
    )
    for trees, depth in ((100, 3), (1000, 6)):
        boosted = ensemble.GradientBoostingRegressor(
            n_estimators=trees, max_depth=depth, subsample=0.3, random_state=0, max_features=5
        )
        yield (
            f"{trees} boosted trees, depth {depth}",
            lambda boosted=boosted: regressor(boosted.fit(x, y), 0.1, float(y.mean())),
        )
    yield (
        "300 deep trees",
        lambda: regressor(
            ensemble.RandomForestRegressor(300, max_features=5, random_state=0).fit(
                x[:1500], y[:1500]
            ),
            1 / 300,
            0.0,
        ),
    )
    yield "the same classes, ZipMap", lambda: of_classes(forest, FEATURES, True, False)

    def of_words() -> Any:
        codes = words(len(x), 0)[1]
        hot = np.eye(len(WORDS), dtype=np.float32)[codes].reshape(len(x), -1)
        whole = np.concatenate([x, hot], 1)
        drawn_classes = np.digitize(y + (codes[:, 0] % 3), [0, 2])
        return of_classes(forest.fit(whole, drawn_classes), whole.shape[1], False, True)

    yield "categories, depth 8", of_words


def words(rows: int, seed: int) -> tuple[Any, Any]:
    """Drawn words and their numbers."""
    codes = np.random.default_rng(seed).integers(0, len(WORDS), (rows, 2))
    return np.array(WORDS, object)[codes], codes


def least(calls: list[Callable[[], Any]]) -> list[float]:
    """The least time of each function in this process, in seconds; they are called in turn."""
    best = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for k, call in enumerate(calls):
            start = time.process_time()
            call()
            best[k] = min(best[k], time.process_time() - start)
    return best


def main(chosen: str = "") -> None:
    """Print a row for each model whose name contains `chosen`."""
    print(f"| {'one thread':30} |" + "".join(f" {rows:>6} rows |" for rows in ROWS))
    print("| --- |" + " --- |" * len(ROWS))
    for name, make in models():
        if chosen not in name and "ZipMap" not in name:
            continue
        proto = make()
        if chosen not in name:
            continue
        main_ = compile(from_onnx(proto))["main"]
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = ort.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        ratios = []
        for rows in ROWS:
            feeds = []
            for seed in range(max(1, CALLED // rows)):
                x = drawn(rows, seed)[0]
                both = {"numbers": x, "words": words(rows, seed)[0]}
                feeds.append(both if "categories" in name else {"x": x})
            args = [tuple(feed.values()) for feed in feeds]

            def peer(session: Any = session, feeds: Any = feeds) -> None:
                for feed in feeds:
                    session.run(None, feed)

            def ours(run: Any = main_, args: Any = args) -> None:
                for values in args:
                    run(*values)

            found, expected = main_(*args[0]), session.run(None, feeds[0])
            for a, b in zip(found if len(expected) > 1 else [found], expected, strict=True):
                if not isinstance(b, list):
                    np.testing.assert_allclose(np.asarray(a), b, rtol=1e-4, atol=1e-4)
            other, own = least([peer, ours])
            ratios.append(own / other)
        print(f"| {name:30} |" + "".join(f" {ratio:11.2f} |" for ratio in ratios), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
