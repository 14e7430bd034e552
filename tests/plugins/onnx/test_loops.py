"""Loop and Scan of ONNX: states, the outputs that gather an element of each iteration, and counts.

ONNX Runtime is the oracle.
"""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxpy
from relaxpy.relax.frontend.onnx import from_onnx
from tests.plugins.onnx.texts import node_of, nodes_of

INT64, FLOAT, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
TARGETS = ("numpy", "native")
value = helper.make_tensor_value_info


def model(graph: onnx.GraphProto) -> onnx.ModelProto:
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(made)
    return made


def expected(made: onnx.ModelProto, *args: np.ndarray) -> list[np.ndarray]:
    session = ort.InferenceSession(made.SerializeToString())
    return session.run(None, dict(zip((i.name for i in session.get_inputs()), args, strict=True)))


def check(made: onnx.ModelProto, *calls: tuple[np.ndarray, ...]) -> str:
    """One executable for a target gives ONNX Runtime's values in all calls; the module's text."""
    mod = from_onnx(made)
    for target in TARGETS:
        run = relaxpy.compile(mod, target=target)["main"]
        for args in calls:
            found = run(*args)
            wanted = expected(made, *args)
            found = found if len(wanted) > 1 else (found,)
            for got, want in zip(found, wanted, strict=True):
                np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-5)
                assert np.asarray(got).dtype == want.dtype
    return mod.script()


def counting(*, fixed: int | None = None, condition: bool = False) -> onnx.ModelProto:
    """A loop with a state of 2 x 3, and outputs of that shape, of a number and of a Boolean."""
    nodes = [
        *nodes_of("f = Cast(i, to=FLOAT); h2 = Add(h, f); row = Mul(h2, x)"),
        *nodes_of("total = ReduceSum(h2, keepdims=0); sign = Greater(total, f)"),
        node_of("c2 = Less(i, four)") if condition else node_of("c2 = Identity(c)"),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [value("i", INT64, []), value("c", BOOL, []), value("h", FLOAT, [2, 3])],
        [
            value("c2", BOOL, []),
            value("h2", FLOAT, [2, 3]),
            value("row", FLOAT, [2, 3]),
            value("total", FLOAT, []),
            value("sign", BOOL, []),
        ],
    )
    weights = [numpy_helper.from_array(np.array(True), "yes")]
    if condition:
        weights.append(numpy_helper.from_array(np.array(4), "four"))
    inputs = [value("x", FLOAT, [2, 3])]
    if fixed is None:
        inputs.append(value("n", INT64, []))
    else:
        weights.append(numpy_helper.from_array(np.array(fixed), "n"))
    return model(
        helper.make_graph(
            nodes_of("h, rows, all, signs = Loop(n, yes, x, body=body)", body=body),
            "graph",
            inputs,
            [
                value("h", FLOAT, [2, 3]),
                value("rows", FLOAT, ["k", 2, 3]),
                value("all", FLOAT, ["k"]),
                value("signs", BOOL, ["k"]),
            ],
            weights,
        )
    )


X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def test_a_count_that_is_known_when_the_model_runs() -> None:
    check(counting(), *((X, np.array(n)) for n in (5, 1, 0, -3, 300)))


@pytest.mark.parametrize("count", [0, 1, 4, 200])
def test_a_count_of_the_file(count: int) -> None:
    check(counting(fixed=count), (X,))


@pytest.mark.parametrize("count", [3, 7])
def test_a_condition_ends_the_loop_before_the_count(count: int) -> None:
    check(counting(condition=True), (X, np.array(count)))


def test_rows_are_written_where_they_stand() -> None:
    """What was computed before is not copied again in each iteration."""
    text = check(counting(fixed=200), (X,))
    assert "R.concat" not in text
    assert "R.call_tir_inplace" in text


@pytest.mark.parametrize("lagging", [False, True])
def test_a_state_that_grows(lagging: bool) -> None:
    """As the tokens of a language model; the sizes of a lagging state change an iteration later."""
    nodes = nodes_of("""
        total = ReduceSum(tokens, keepdims=1); token = Mod(total, words);
        tokens2 = Concat(tokens, token, axis=0); last = Squeeze(token); c2 = Less(zero, last)
    """)
    inputs = [value("i", INT64, []), value("c", BOOL, []), value("tokens", INT64, [None])]
    outputs = [value("c2", BOOL, []), value("tokens2", INT64, [None])]
    if lagging:
        nodes.append(node_of("late2 = Identity(tokens)"))
        inputs.append(value("late", INT64, [None]))
        outputs.append(value("late2", INT64, [None]))
    body = helper.make_graph(nodes, "body", inputs, outputs)
    names = ["x", "x"] if lagging else ["x"]
    made = model(
        helper.make_graph(
            [helper.make_node("Loop", ["n", "yes", *names], ["y", "z"][: len(names)], body=body)],
            "graph",
            [value("x", INT64, ["length"]), value("n", INT64, [])],
            [value(name, INT64, [None]) for name in ["y", "z"][: len(names)]],
            [
                numpy_helper.from_array(np.array(True), "yes"),
                numpy_helper.from_array(np.array(0), "zero"),
                numpy_helper.from_array(np.array([7]), "words"),
            ],
        )
    )
    calls = [([1], 0), ([1], 5), ([2, 3], 4), ([3, 5, 6], 9)]
    check(made, *((np.array(x), np.array(n)) for x, n in calls))


def test_rows_whose_sizes_the_first_iteration_decides() -> None:
    """One output has sizes that depend on data; beside it, the other's are known."""
    body = helper.make_graph(
        nodes_of("where = NonZero(x); number = Identity(i); c2 = Identity(c)"),
        "body",
        [value("i", INT64, []), value("c", BOOL, [])],
        [value("c2", BOOL, []), value("where", INT64, [1, None]), value("number", INT64, [])],
    )
    made = model(
        helper.make_graph(
            nodes_of("rows, numbers = Loop(n, yes, body=body)", body=body),
            "graph",
            [value("x", FLOAT, [4]), value("n", INT64, [])],
            [value("rows", INT64, ["k", 1, "m"]), value("numbers", INT64, ["k"])],
            [numpy_helper.from_array(np.array(True), "yes")],
        )
    )
    x = np.array([1, 0, 0, 3], np.float32)
    check(made, (x, np.array(3)), (x, np.array(1)))


def scanning(*, out_direction: int, out_axis: int) -> onnx.ModelProto:
    body = helper.make_graph(
        nodes_of("h2 = Add(h, part); row = Tanh(h2)"),
        "body",
        [value("h", FLOAT, [3]), value("part", FLOAT, [3])],
        [value("h2", FLOAT, [3]), value("row", FLOAT, [3])],
    )
    return model(
        helper.make_graph(
            [
                helper.make_node(
                    "Scan",
                    ["h", "xs"],
                    ["last", "rows"],
                    body=body,
                    num_scan_inputs=1,
                    scan_output_directions=[out_direction],
                    scan_output_axes=[out_axis],
                )
            ],
            "graph",
            [value("h", FLOAT, [3]), value("xs", FLOAT, ["k", 3])],
            [value("last", FLOAT, [3]), value("rows", FLOAT, ["a", "b"])],
        )
    )


@pytest.mark.each_choice
@pytest.mark.parametrize("out_axis", [0, 1, -1])
@pytest.mark.parametrize("out_direction", [0, 1])
def test_a_scan_over_a_symbolic_length(out_direction: int, out_axis: int) -> None:
    rng = np.random.default_rng(0)
    calls = [(X[0], rng.standard_normal((length, 3)).astype(np.float32)) for length in (5, 1, 150)]
    check(scanning(out_direction=out_direction, out_axis=out_axis), *calls)


def test_a_loop_within_a_loop() -> None:
    inner = helper.make_graph(
        nodes_of("s2 = Add(s, j); d2 = Identity(d); cell = Mul(s2, i)"),
        "inner",
        [value("j", INT64, []), value("d", BOOL, []), value("s", INT64, [])],
        [value("d2", BOOL, []), value("s2", INT64, []), value("cell", INT64, [])],
    )
    outer = helper.make_graph(
        nodes_of("s2, line = Loop(m, yes, s, body=inner); c2 = Identity(c)", inner=inner),
        "outer",
        [value("i", INT64, []), value("c", BOOL, []), value("s", INT64, [])],
        [value("c2", BOOL, []), value("s2", INT64, []), value("line", INT64, ["m"])],
    )
    made = model(
        helper.make_graph(
            nodes_of("last, lines = Loop(n, yes, zero, body=outer)", outer=outer),
            "graph",
            [value("n", INT64, []), value("m", INT64, [])],
            [value("last", INT64, []), value("lines", INT64, ["n", "m"])],
            [
                numpy_helper.from_array(np.array(True), "yes"),
                numpy_helper.from_array(np.array(0), "zero"),
            ],
        )
    )
    check(made, *((np.array(n), np.array(m)) for n, m in ((3, 4), (1, 1), (130, 2))))


@pytest.mark.parametrize("directions", [[0], [1]])
def test_sequences_of_a_batch_have_their_own_lengths(directions: list[int]) -> None:
    body = helper.make_graph(
        nodes_of("t = Add(s, x); y = Neg(t)"),
        "body",
        [value(name, FLOAT, [3]) for name in ("s", "x")],
        [value(name, FLOAT, [3]) for name in ("t", "y")],
    )
    names = ["lengths", "s0", "xs"]
    attributes = {"body": body, "num_scan_inputs": 1, "directions": directions}
    graph = helper.make_graph(
        [helper.make_node("Scan", names, ["end", "ys"], **attributes)],
        "scan",
        [value("lengths", INT64, [2]), value("s0", FLOAT, [2, 3]), value("xs", FLOAT, [2, "n", 3])],
        [value("end", FLOAT, [2, 3]), value("ys", FLOAT, [2, "n", 3])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    rng = np.random.default_rng(0)
    calls = []
    for lengths, n in [((4, 2), 4), ((1, 5), 5), ((3, 3), 3)]:
        parts = (rng.standard_normal(shape).astype("float32") for shape in ((2, 3), (2, n, 3)))
        calls.append((np.array(lengths), *parts))
    check(made, *calls)


def test_a_map_over_a_sequence_uses_values_from_outside_of_its_body() -> None:
    body = helper.make_graph(
        nodes_of("f = Add(e, w); r = Mul(f, h)"),
        "body",
        [value("e", FLOAT, None)],
        [value("r", FLOAT, None)],
    )
    made = model(
        helper.make_graph(
            [
                *nodes_of("h = Neg(x); s = SequenceConstruct(x, h)"),
                helper.make_node("SequenceMap", ["s"], ["t"], body=body),
                *nodes_of("y = ConcatFromSequence(t, axis=0)"),
            ],
            "graph",
            [value("x", FLOAT, [2, 3])],
            [value("y", FLOAT, [4, 3])],
            [numpy_helper.from_array(np.float32(2), "w")],
        )
    )
    check(made, (np.arange(6, dtype=np.float32).reshape(2, 3),))
