"""Tensors of strings, dictionaries and labels that are strings, as ONNX Runtime computes them.

The random models of `tests/fuzz/onnx_models.py` move strings by every operator that moves elements.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relaxpy
from relaxpy.errors import MatchCastError, RuntimeCheckError
from relaxpy.plugins.cli.main import main
from relaxpy.plugins.importing import strings
from relaxpy.plugins.importing.unsupported import OpNotImplemented
from relaxpy.relax.frontend.onnx import from_onnx
from tests.plugins.onnx import runtime, texts as texts_of
from tests.plugins.onnx.runtime import agree
from tests.plugins.onnx.texts import node_of, nodes_of
from tests.rows import targets

Array = np.ndarray[Any, np.dtype[Any]]
CLASSICAL, MICROSOFT = "ai.onnx.ml", "com.microsoft"
RNG = np.random.default_rng(5)
X = RNG.standard_normal((9, 4)).astype(np.float32)
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def texts(*items: Any) -> Array:
    return np.array(items, object)


def tensor_type(array: Array, sizes: Sequence[Any] | None = None) -> onnx.TypeProto:
    code = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_type_proto(code, [None] * array.ndim if sizes is None else sizes)


def model(nodes, inputs: Mapping[str, onnx.TypeProto], outputs, constants=None) -> Any:
    """A model of these nodes, whose inputs are of these types."""
    values = [onnx.ValueInfoProto(name=name, type=kind) for name, kind in inputs.items()]
    domains = [(CLASSICAL, 3), (MICROSOFT, 1)]
    return texts_of.model(nodes, values, outputs, constants, opset=20, domains=domains)


def one(op, operands, outputs=1, sizes=None, domain="", **attributes: Any) -> Any:
    """A model of one node, whose inputs have any sizes unless they are stated."""
    sizes = {name: [None] * np.ndim(x) for name, x in operands.items()} | (sizes or {})
    options = {"domain": domain, "version": 3 if domain == CLASSICAL else 1}
    return texts_of.one(op, operands, attributes, outputs, sizes, **options)


def check(proto: onnx.ModelProto, *feeds: Mapping[str, Any]) -> None:
    runtime.check(proto, *feeds, also=("reference",))


WORDS = ["no", "yes", "", "Übergang"]


def tree(classes: int) -> dict[str, Any]:
    """Two trees of one bound each, whose leaves vote for random classes."""
    return {
        "nodes_treeids": [0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2] * 2,
        "nodes_featureids": [0, 0, 0, 2, 0, 0],
        "nodes_values": [0.1, 0.0, 0.0, -0.2, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 2,
        "nodes_truenodeids": [1, 0, 0] * 2,
        "nodes_falsenodeids": [2, 0, 0] * 2,
        "class_treeids": [0, 0, 1, 1],
        "class_nodeids": [1, 2, 1, 2],
        "class_ids": [0, 1, classes - 1, 0] if classes > 2 else [0] * 4,
        "class_weights": [0.6, 0.7, 0.4, 0.2],
    }


def support_vectors(classes: int) -> dict[str, Any]:
    return {
        "coefficients": RNG.standard_normal((classes - 1) * 2 * classes).tolist(),
        "rho": RNG.standard_normal(classes * (classes - 1) // 2).tolist(),
        "support_vectors": RNG.standard_normal(8 * classes).tolist(),
        "vectors_per_class": [2] * classes,
        "kernel_type": "RBF",
        "kernel_params": [0.5, 0.0, 0.0],
    }


@pytest.mark.each_choice
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("op", ["LinearClassifier", "TreeEnsembleClassifier", "SVMClassifier"])
def test_labels_may_be_strings(op: str, classes: int) -> None:
    attributes = {
        "LinearClassifier": {
            "coefficients": RNG.standard_normal(4 * classes).tolist(),
            "intercepts": RNG.standard_normal(classes).tolist(),
            "post_transform": "SOFTMAX",
        },
        "TreeEnsembleClassifier": tree(classes),
        "SVMClassifier": support_vectors(classes),
    }[op]
    names = WORDS[:classes]
    proto = model(
        [
            helper.make_node(
                *(op, ["x"], ["label", "scores"]),
                domain=CLASSICAL,
                classlabels_strings=names,
                **attributes,
            ),
            node_of("hit = Equal(label, wanted)"),
        ],
        {"x": tensor_type(X, ["n", 4])},
        ["label", "scores", "hit"],
        {"wanted": texts("yes")},
    )
    check(proto, {"x": X}, {"x": X[:1]})


def test_one_sum_decides_between_two_labels() -> None:
    """One row of weights stands for two classes."""
    given = {"coefficients": X[0].tolist(), "intercepts": [0.1], "post_transform": "LOGISTIC"}
    labels = {"domain": CLASSICAL, "classlabels_strings": WORDS[:2]}
    proto = one("LinearClassifier", {"x": X}, 2, {"x": ["n", 4]}, **labels, **given)
    check(proto, {"x": X}, {"x": X[:2]})


COLORS = texts(["red", "S"], ["blue", "L"], ["", "red"])

#: Operators, attributes, number of results, and operands ("c_…" are constants).
CASES: list[tuple[str, dict[str, Any], int, dict[str, Array]]] = [
    *(
        ("OneHotEncoder", {"domain": CLASSICAL, "cats_strings": ["S", "red", ""]}, 1, {"x": x})
        for x in (COLORS, COLORS[:, 0], COLORS[:0])
    ),
    *(
        ("LabelEncoder", {"domain": CLASSICAL, **keys, **values}, 1, {"x": x})
        for x, keys in (
            (COLORS, {"keys_strings": ["red", "", "S", "red"]}),
            (np.array([[3, 1], [2, 7]]), {"keys_int64s": [1, 2, 3, 1]}),
        )
        for values in (
            {"values_strings": ["a", "b", "red", "c"]},
            {"values_strings": ["a", "b", "c", "d"], "default_string": "S"},
            {"values_int64s": [4, 5, 6, 7], "default_int64": -7},
            {"values_floats": [0.5, 1.5, 2.5, 3.5]},
        )
    ),
    *(
        (
            "CategoryMapper",
            {"domain": CLASSICAL, "cats_int64s": [3, 1], "cats_strings": ["red", "S"]},
            1,
            {"x": x},
        )
        for x in (COLORS, np.array([[3, 1], [2, 7]]))
    ),
    ("ArrayFeatureExtractor", {"domain": CLASSICAL}, 1, {"x": COLORS, "c_": np.array([1, 1, 0])}),
    *(("Cast", {"to": STRING}, 1, {"c_": x}) for x in (np.array([1, -2]), np.array([True, False]))),
    *(
        ("Cast", {"to": to}, 1, {name: texts("1.5", "-2", " 7")})
        for to in (FLOAT, INT64, TensorProto.FLOAT16, TensorProto.INT8)
        for name in ("c_", "x")
    ),
    ("Cast", {"to": STRING}, 1, {"x": COLORS}),
    *(("Unique", {"sorted": s}, 4, {"x": COLORS}) for s in (0, 1)),
    *(("Unique", {"axis": axis}, 4, {"x": np.repeat(COLORS, 2, 0)}) for axis in (0, 1)),
    *(
        ("MurmurHash3", {"domain": MICROSOFT, "positive": sign, "seed": 7}, 1, {"x": x})
        for sign in (0, 1)
        for x in (COLORS, texts("ä", "abcd", "abcde"), np.array([1, -2, 70000], np.int32))
    ),
    *(
        (
            "Tokenizer",
            {"domain": MICROSOFT, "mark": mark, "mincharnum": least, "pad_value": "#", **how},
            1,
            {"x": x},
        )
        for mark in (0, 1)
        for least, how in (
            (1, {"separators": [""]}),
            (1, {"separators": [" ", "[,;]"]}),
            (2, {"separators": ["o", "brown"]}),
            (2, {"tokenexp": r"\b\w+\b"}),
            (1, {"tokenexp": "[[:alpha:]]+"}),
        )
        for x in (texts("a quick  brown", "x,yz;ö", ""), texts(["one"], ["two, three"]))
    ),
]


@pytest.mark.parametrize(
    ("op", "attributes", "outputs", "operands"),
    CASES,
    ids=[f"{op}-{k}" for k, (op, *_) in enumerate(CASES)],
)
def test_operators_on_strings_are_those_of_onnx_runtime(op, attributes, outputs, operands) -> None:
    feed = {name: x for name, x in operands.items() if not name.startswith("c_")}
    check(one(op, operands, outputs, **attributes), feed)


def counted(x: Array, known: Mapping[str, Any]) -> Array:
    """The definition: how often each n-gram of the pool is in each row, also with items skipped."""
    pool, starts = known["pool"], [*known["ngram_counts"], len(known["pool"])]
    columns = iter(known["ngram_indexes"])
    counts = np.zeros((len(x), max(known["ngram_indexes"]) + 1), np.float32)
    for n, (low, high) in enumerate(pairwise(starts), 1):
        for start in range(low, high, n):
            gram, column = pool[start : start + n], next(columns)
            if not known["min_gram_length"] <= n <= known["max_gram_length"]:
                continue
            for skip in range(1, known["max_skip_count"] + 2 if n > 1 else 2):
                for row, items in enumerate(x.tolist()):
                    found = (items[k : k + n * skip : skip] for k in range(len(items)))
                    counts[row, column] += sum(each == gram for each in found)
    return counts


@pytest.mark.parametrize("far", [9, 2**40, 2**63 - 20])
@pytest.mark.parametrize("skips", [0, 2])
def test_n_grams_are_counted(far: int, skips: int) -> None:
    numbers = RNG.permutation(216)
    grams = [[k] for k in range(4)]
    grams += [list(divmod(int(k), 6)) for k in RNG.permutation(36)[:12]]
    grams += [[int(k) // 36, int(k) // 6 % 6, int(k) % 6] for k in numbers[:30]]
    spread = [-far, 0, far - 1, 3, 4, 5]
    known = {
        "mode": "TF",
        "min_gram_length": 1,
        "max_gram_length": 3,
        "max_skip_count": skips,
        "ngram_counts": [0, 4, 28],
        "ngram_indexes": list(map(int, RNG.permutation(50)[:46])),
        "pool": [spread[item] for gram in grams for item in gram],
        "weights": [],
    }
    for shape in ((3, 40), (2, 1), (2, 0), (0, 4)):
        x = np.array(spread)[RNG.integers(0, 6, shape)]
        x = np.where(RNG.random(shape) < 0.1, 77, x)
        np.testing.assert_array_equal(strings.tf_idf(x, json.dumps(known)), counted(x, known))


def test_categories_have_to_be_known_where_zeros_are_not_admitted() -> None:
    given = {"domain": CLASSICAL, "cats_strings": ["red", "S"], "zeros": 0}
    proto = one("OneHotEncoder", {"x": COLORS}, **given)
    check(proto, {"x": COLORS[:1]})
    with pytest.raises(RuntimeCheckError, match="known categories"):
        relaxpy.compile(from_onnx(proto))["main"](COLORS)


def test_columns_of_strings_and_numbers_share_a_size() -> None:
    """A pipeline as skl2onnx writes it: encoded columns beside scaled ones, then a classifier."""
    proto = model(
        [
            helper.make_node(
                *("OneHotEncoder", ["color"], ["codes"]),
                domain=CLASSICAL,
                cats_strings=["red", "blue"],
            ),
            node_of("flat = Reshape(codes, wide)"),
            node_of("features = Concat(size, flat, axis=1)"),
            helper.make_node(
                *("LinearClassifier", ["features"], ["label", "scores"]),
                domain=CLASSICAL,
                classlabels_strings=["no", "yes"],
                coefficients=[1.0, 2.0, -1.0, 0.5, -1.0, 1.0],
                intercepts=[0.1, 0.0],
            ),
        ],
        {
            "size": helper.make_tensor_type_proto(FLOAT, ["n", 1]),
            "color": helper.make_tensor_type_proto(STRING, ["n", 1]),
        },
        ["label", "scores"],
        {"wide": np.array([-1, 2])},
    )
    sizes, colors = X[:5, :1], texts("red", "blue", "green", "", "red").reshape(-1, 1)
    check(proto, {"size": sizes, "color": colors}, {"size": sizes[:2], "color": colors[:2]})
    with pytest.raises(MatchCastError):
        relaxpy.compile(from_onnx(proto))["main"](sizes, colors[:2])


def test_a_size_of_strings_may_be_an_expression_of_another() -> None:
    kinds = {"x": ["2*n"], "y": ["n"]}
    proto = model(
        nodes_of("z = Concat(x, y, axis=0)"),
        {name: helper.make_tensor_type_proto(STRING, sizes) for name, sizes in kinds.items()},
        ["z"],
    )
    check(proto, {"x": texts("a", "b", "c", "d"), "y": texts("e", "a")})


def test_sequences_of_strings_are_read_and_returned() -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(STRING, [None]))
    proto = model(
        nodes_of("""
            longer = SequenceInsert(s, x); y = SequenceAt(longer, i);
            pair = SequenceConstruct(y, x); length = SequenceLength(longer);
            joined = ConcatFromSequence(longer, axis=0)
        """),
        {"s": kind, "x": tensor_type(texts("a")), "i": tensor_type(np.array(0))},
        ["longer", "y", "pair", "length", "joined"],
    )
    feeds = [
        {"s": [texts("b", "c"), texts("a")], "x": texts("z"), "i": np.array(i)} for i in (0, 2, -1)
    ]
    check(proto, *feeds)


def test_branches_and_loops_carry_strings() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        graph (bool c, int64 count, string[?] x) => (string[?] last, string[?, ?] rows)
        {
            chosen = If <
                then_branch = then () => (string[] p)
                    { p = Constant <value = string[2] {"+", "-"}> () },
                else_branch = else () => (string[] q)
                    { q = Constant <value = string[1] {"*"}> () }
            > (c)
            last, rows = Loop <body = body (int64 i, bool going, string[?] state)
                => (bool again, string[?] next, string row) <int64 zero = {0}>
            {
                again = Identity(going)
                next = StringConcat(state, chosen)
                row = Gather(next, zero)
            }> (count, , x)
        }
    """)
    x = texts("a", "b")
    check(proto, *({"c": np.array(c), "count": np.array(3), "x": x} for c in (True, False)))


#: Operators on dictionaries, the types of keys and values, a dictionary, and the row it becomes.
#: ONNX Runtime takes few of them from Python, so the rows are what the text of ONNX says.
MAPS: list[tuple[str, dict[str, Any], tuple[int, int], dict[Any, Any], list[Any]]] = [
    *(
        ("DictVectorizer", {"string_vocabulary": ["b", "a", "b"]}, (STRING, FLOAT), x, row)
        for x, row in (
            ({"a": 1.5, "c": 2.0}, [0.0, 1.5, 0.0]),
            ({}, [0.0] * 3),
            ({"b": -1.0}, [-1.0, 0.0, -1.0]),
        )
    ),
    (
        "DictVectorizer",
        {"string_vocabulary": ["a"]},
        (STRING, INT64),
        {"a": 2**60 + 1},
        [2**60 + 1],
    ),
    ("DictVectorizer", {"int64_vocabulary": [3, 1]}, (INT64, STRING), {1: "one"}, ["", "one"]),
    *(
        ("CastMap", {"cast_to": to, **form}, (INT64, STRING), {2: "7", 0: "-1"}, row)
        for to, form, row in (
            ("TO_FLOAT", {}, [-1.0, 7.0]),
            ("TO_INT64", {}, [-1, 7]),
            ("TO_STRING", {}, ["-1", "7"]),
            ("TO_INT64", {"map_form": "SPARSE", "max_map": 4}, [-1, 0, 7, 0]),
        )
    ),
    *(
        ("CastMap", {"cast_to": to}, (INT64, FLOAT), {3: 1.75, 1: -2.5}, row)
        for to, row in (
            ("TO_FLOAT", [-2.5, 1.75]),
            ("TO_INT64", [-2, 1]),
            ("TO_STRING", ["-2.500000", "1.750000"]),
        )
    ),
]


@pytest.mark.parametrize(("op", "attributes", "kinds", "x", "row"), MAPS)
def test_dictionaries_become_rows(op, attributes, kinds, x, row) -> None:
    node = helper.make_node(op, ["x"], ["y"], domain=CLASSICAL, **attributes)
    value = helper.make_tensor_type_proto(kinds[1], [])
    kind = helper.make_map_type_proto(kinds[0], value)
    mod = from_onnx(model([node], {"x": kind}, ["y"]))
    numbers = "float32" if isinstance(row[0], float) else "int64"
    dtype = object if isinstance(row[0], str) else numbers
    for target in (*targets(op), "reference"):
        agree(relaxpy.compile(mod, target)["main"](x), np.array([row], dtype))


def test_what_is_no_dictionary_is_told() -> None:
    kind = helper.make_map_type_proto(STRING, helper.make_tensor_type_proto(FLOAT, []))
    node = helper.make_node(
        "DictVectorizer", ["x"], ["y"], domain=CLASSICAL, string_vocabulary=["a"]
    )
    main = relaxpy.compile(from_onnx(model([node], {"x": kind}, ["y"])))["main"]
    with pytest.raises(RuntimeCheckError, match="expected a dict"):
        main(np.ones(1))
    with pytest.raises(RuntimeCheckError, match="a value of a map is not of float32"):
        main({"a": "many"})


def test_constants_of_strings_stay_constants_beside_parameters() -> None:
    proto = one("Concat", {"x": texts("a"), "c_": texts("b", "")}, axis=0)
    main = relaxpy.compile(from_onnx(proto, keep_params_in_input=True))["main"]
    assert main(texts("z")).tolist() == ["z", "b", ""]


def test_the_shape_of_strings_may_be_given() -> None:
    proto = one("Shape", {"x": COLORS})
    main = relaxpy.compile(from_onnx(proto, shape_dict={"x": [3, "k"]}))["main"]
    assert main(COLORS).tolist() == [3, 2]
    assert "main(x: strings of shape (3, k))" in repr(main)
    for wrong, found in (
        (COLORS[:2], r"found shape \(2, 2\)"),
        (COLORS[0], r"found shape \(2,\)"),
        ("red", "found one string"),
        (np.ones((3, 2)), "found one of float64"),
    ):
        stated = r"parameter x: expected an array of strings of shape \(3, k\), "
        with pytest.raises(RuntimeCheckError, match=stated + found):
            main(wrong)


def test_signatures_and_the_command_line_know_strings_and_their_sizes(tmp_path, capsys) -> None:
    kinds = {"x": helper.make_tensor_type_proto(STRING, ["n", 1])}
    kinds["y"] = helper.make_tensor_type_proto(FLOAT, ["n", 2])
    nodes = [node_of("a = Identity(x)"), node_of("b = Identity(y)")]
    path = tmp_path / "text.onnx"
    onnx.save(model(nodes, kinds, ["a", "b"]), path)
    saved = tmp_path / "text.rxp"
    relaxpy.compile(path).save(saved)
    wanted = 'main(x: strings of shape (n, 1), y: R.Tensor((n, 2), dtype="float32"))'
    assert wanted in str(relaxpy.compile(path))
    assert wanted in str(relaxpy.compile(saved))
    assert main(["run", str(path), 'x=[["a"], ["b"], ["a"]]', "--random", "0"]) == 0
    out = capsys.readouterr().out
    assert "object (3, 1)" in out
    assert "float32 (3, 2)" in out
    assert main(["run", str(path), "--random", "0", "--dim", "n=2"]) == 2
    assert (
        "parameter x has strings, for which there are no random values" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("x", "reason"),
    [(np.ones(2), "expected an array of strings"), (texts(b"\xff"), "strings in UTF-8")],
)
def test_arguments_that_are_no_strings_are_told(x: Array, reason: str) -> None:
    main = relaxpy.compile(from_onnx(one("Identity", {"x": texts("a")})))["main"]
    with pytest.raises(RuntimeCheckError, match=reason):
        main(x)


@pytest.mark.parametrize("text", ["abc", "", "1_000", "nan"])
def test_texts_of_no_number_are_told(text: str) -> None:
    main = relaxpy.compile(from_onnx(one("Cast", {"x": texts("1")}, to=INT64)))["main"]
    with pytest.raises(RuntimeCheckError, match=f"the text of a number, found '{text}'"):
        main(texts(text))


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "reason"),
    [
        ("Trilu", {"x": COLORS}, {}, "operands that are strings are not imported"),
        ("Relu", {"x": COLORS}, {}, "operands that are strings are not imported"),
        ("Concat", {"x": COLORS, "y": np.ones((1, 2))}, {"axis": 0}, "numbers, expected strings"),
        ("Gather", {"x": COLORS, "i": texts("a")}, {}, "indices has strings"),
        (
            "ScatterElements",
            {"x": texts("a"), "i": np.array([0]), "u": texts("b")},
            {"reduction": "add"},
            "reduction is 'add', expected 'none' for strings",
        ),
        ("LabelEncoder", {"x": COLORS}, {"keys_int64s": [1], "values_int64s": [2]}, "not both"),
        ("OneHotEncoder", {"x": COLORS}, {"cats_int64s": [1]}, "not both"),
        ("RegexFullMatch", {"x": COLORS}, {"pattern": r"\pL"}, "is not one of Python"),
    ],
)
def test_what_takes_no_strings_is_told(op, operands, attributes, reason) -> None:
    domain = {"domain": CLASSICAL} if "Encoder" in op else {}
    with pytest.raises(OpNotImplemented, match=reason):
        from_onnx(one(op, operands, **attributes, **domain))


def test_a_saved_program_needs_no_onnx(tmp_path: Path) -> None:
    given = {"coefficients": [1.0] * 4 + [-1.0] * 4, "classlabels_strings": ["no", "yes"]}
    proto = one("LinearClassifier", {"x": X}, 2, {"x": ["n", 4]}, domain=CLASSICAL, **given)
    relaxpy.compile(from_onnx(proto)).save(tmp_path / "labels.rxp")
    program = (
        "import sys, numpy, relaxpy;"
        f"main = relaxpy.load_executable({str(tmp_path / 'labels.rxp')!r})['main'];"
        "print(*main(numpy.ones((1, 4), 'float32'))[0], 'onnx' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["no", "False"]
