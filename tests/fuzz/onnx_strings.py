"""Steps of random ONNX models that read strings, or return them as labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.onnx_draw import CLASSICAL, STRINGS, WORDS, Draw, Redraw, step


@step("StringConcat", "StringSplit", "RegexFullMatch", "StringNormalizer")
def _read(d: Draw, op: str) -> None:
    if op == "StringConcat":
        x = d.tensor((STRINGS,))
        d.node(op, [x, d.like(d.broadcast(x.shape), STRINGS)])
    elif op == "StringSplit":
        x = d.tensor((STRINGS,), high=4)
        d.node(op, [x], 2, **d.some(delimiter=d.rng.choice(("", " ", "a")), maxsplit=1))
    elif op == "RegexFullMatch":
        pattern = d.rng.choice((r"\w*", "[ab]+", ".* .*", "", r"-?\d", "[[:alpha:]]"))
        d.node(op, [d.tensor((STRINGS,))], pattern=pattern)
    else:
        given = d.some(
            case_change_action=d.rng.choice(("LOWER", "UPPER", "NONE")),
            is_case_sensitive=d.rng.randrange(2),
            stopwords=d.rng.sample(("a", "ab", "b", "B", "-7"), 2),
        )
        x = d.tensor((STRINGS,), 1, 1) if d.chance() else d.like((1, 4), STRINGS)
        d.node(op, [x], locale="C", **given)


@step("LabelEncoder", "OneHotEncoder", "CategoryMapper", "ArrayFeatureExtractor")
def _encode(d: Draw, op: str) -> None:
    words = d.rng.sample(WORDS, d.rng.randint(1, 4))
    if op == "ArrayFeatureExtractor":
        x = d.tensor((STRINGS, STRINGS, "float32", "int64"), 1, 3, fits=lambda v: v.shape[-1] > 0)
        places = [d.rng.randrange(x.shape[-1]) for _ in range(d.rng.randint(1, 3))]
        d.node(op, [x, d.new(np.array([places]), fixed=True)], domain=CLASSICAL)
    elif op == "OneHotEncoder":
        x = d.tensor((STRINGS,), high=4)
        d.node(op, [x], domain=CLASSICAL, cats_strings=words, **d.some(zeros=1))
    elif op == "CategoryMapper":
        x = d.tensor((STRINGS, "int64"), high=4)
        numbers = d.rng.sample(range(-4, 5), len(words))
        given = d.some(default_int64=7, default_string="none")
        d.node(op, [x], domain=CLASSICAL, cats_strings=words, cats_int64s=numbers, **given)
    else:
        kinds = {
            "strings": words,
            "int64s": d.rng.sample(range(-4, 5), len(words)),
            "floats": [k / 4 for k in d.rng.sample(range(-12, 13), len(words))],
        }
        sources = {"strings": STRINGS, "int64s": "int64", "floats": "float32"}
        source, target = d.rng.choice([*kinds]), d.rng.choice([*kinds])
        if "strings" not in (source, target):
            raise Redraw("no text")
        x = d.tensor((sources[source],), high=4, exact=True)
        given = {f"keys_{source}": kinds[source], f"values_{target}": kinds[target]}
        given |= d.some(default_string="none", default_int64=-1, default_float=0.5)
        d.node(op, [x], domain=CLASSICAL, **given)


def _quarters(d: Draw, size: int) -> list[float]:
    return [d.rng.randint(-8, 8) / 4 for _ in range(size)]


def _stump(d: Draw, columns: int, kind: str, voted: list[int]) -> dict[str, Any]:
    """A tree of two leaves, which vote for each of `voted`, some with several weights."""
    votes = [(leaf, vote) for leaf in (1, 2) for vote in voted for _ in range(d.rng.randint(1, 2))]
    d.rng.shuffle(votes)
    return {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [d.rng.randrange(columns), 0, 0],
        "nodes_values": [*_quarters(d, 1), 0.0, 0.0],
        "nodes_modes": [d.rng.choice(("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT")), "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        f"{kind}_treeids": [0] * len(votes),
        f"{kind}_nodeids": [leaf for leaf, _ in votes],
        f"{kind}_ids": [vote for _, vote in votes],
        f"{kind}_weights": _quarters(d, len(votes)),
    }


@step("TreeEnsembleRegressor")
def _votes(d: Draw, op: str) -> None:
    """Numbers by trees."""
    x = d.tensor(("float32",), 2, 2, exact=True, fits=lambda v: all(v.shape))
    targets = d.rng.randint(1, 3)
    given = d.some(aggregate_function=d.rng.choice(("SUM", "AVERAGE", "MIN", "MAX")))
    tree = _stump(d, x.shape[1], "target", [*range(targets)])
    d.node(op, [x], domain=CLASSICAL, n_targets=targets, **tree, **given)


@step("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier")
def _label(d: Draw, op: str) -> None:
    """The label of each row, which is text."""
    x = d.tensor(("float32",), 2, 2, exact=True, fits=lambda v: all(v.shape))
    labels = d.rng.sample(WORDS, d.rng.randint(2, 3))
    transform = d.rng.choice(("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"))
    given: dict[str, Any] = {"classlabels_strings": labels, "post_transform": transform}
    count, columns = len(labels), x.shape[1]

    if op == "LinearClassifier":
        given |= {"coefficients": _quarters(d, count * columns), "intercepts": _quarters(d, count)}
    elif op == "SVMClassifier":
        given |= {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
        # Of lines for two labels, ONNX Runtime takes the second one if any score is positive.
        if count == 2 or d.chance():
            sizes = [d.rng.randint(1, 3) for _ in labels]
            given |= {
                "coefficients": _quarters(d, (count - 1) * sum(sizes)),
                "rho": _quarters(d, count * (count - 1) // 2),
                "support_vectors": _quarters(d, sum(sizes) * columns),
                "vectors_per_class": sizes,
            }
        else:
            rho = _quarters(d, d.rng.randint(1, count))
            given |= {"coefficients": _quarters(d, count * columns), "rho": rho}
    else:
        # With votes for both of two classes, ONNX Runtime looks at those for the second one alone.
        voted = [0] if count == 2 else [*range(count)]
        given |= _stump(d, columns, "class", voted)
    d.node(op, [x], 2, rounds=transform != "NONE", domain=CLASSICAL, **given)
