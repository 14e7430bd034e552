"""Loop and Scan of ONNX: states, the outputs that gather an element of each iteration, and counts.

ONNX Runtime is the oracle.
"""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import relaxpy
from relaxpy.relax.frontend.onnx import from_onnx

TARGETS = ("numpy", "native")


def model(graph: str) -> onnx.ModelProto:
    """The model of a graph in ONNX's text."""
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {graph}')
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


def counting(*, fixed: int | None = None, condition: str = "Identity(c)") -> onnx.ModelProto:
    """A loop with a state of 2 x 3, and outputs of that shape, of a number and of a Boolean."""
    count = ", int64 n" if fixed is None else ""
    known = "" if fixed is None else f", int64 n = {{{fixed}}}"
    return model(f"""
        graph (float[2, 3] x{count})
            => (float[2, 3] h, float[k, 2, 3] rows, float[k] all, bool[k] signs)
            <bool yes = {{1}}, int64 four = {{4}}{known}>
        {{
            h, rows, all, signs = Loop <body = body (int64 i, bool c, float[2, 3] h)
                => (bool c2, float[2, 3] h2, float[2, 3] row, float total, bool sign)
            {{
                f = Cast <to = 1> (i)
                h2 = Add(h, f)
                row = Mul(h2, x)
                total = ReduceSum <keepdims = 0> (h2)
                sign = Greater(total, f)
                c2 = {condition}
            }}> (n, yes, x)
        }}
    """)


X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def test_a_count_that_is_known_when_the_model_runs() -> None:
    check(counting(), *((X, np.array(n)) for n in (5, 1, 0, -3, 300)))


@pytest.mark.parametrize("count", [0, 1, 4, 200])
def test_a_count_of_the_file(count: int) -> None:
    check(counting(fixed=count), (X,))


@pytest.mark.parametrize("count", [3, 7])
def test_a_condition_ends_the_loop_before_the_count(count: int) -> None:
    check(counting(condition="Less(i, four)"), (X, np.array(count)))


def test_rows_are_written_where_they_stand() -> None:
    """What was computed before is not copied again in each iteration."""
    text = check(counting(fixed=200), (X,))
    assert "R.concat" not in text
    assert "R.call_tir_inplace" in text


@pytest.mark.parametrize("lagging", [False, True])
def test_a_state_that_grows(lagging: bool) -> None:
    """As the tokens of a language model; the sizes of a lagging state change an iteration later."""

    def late(text: str) -> str:
        return text if lagging else ""

    made = model(f"""
        graph (int64[length] x, int64 n) => (int64[p] y{late(", int64[q] z")})
            <bool yes = {{1}}, int64 zero = {{0}}, int64[1] words = {{7}}>
        {{
            y{late(", z")} = Loop <body = body
                (int64 i, bool c, int64[?] tokens{late(", int64[?] late")})
                => (bool c2, int64[?] tokens2{late(", int64[?] late2")})
            {{
                total = ReduceSum <keepdims = 1> (tokens)
                token = Mod(total, words)
                tokens2 = Concat <axis = 0> (tokens, token)
                last = Squeeze(token)
                c2 = Less(zero, last)
                {late("late2 = Identity(tokens)")}
            }}> (n, yes, x{late(", x")})
        }}
    """)
    calls = [([1], 0), ([1], 5), ([2, 3], 4), ([3, 5, 6], 9)]
    check(made, *((np.array(x), np.array(n)) for x, n in calls))


def test_rows_whose_sizes_the_first_iteration_decides() -> None:
    """One output has sizes that depend on data; beside it, the other's are known."""
    made = model("""
        graph (float[4] x, int64 n) => (int64[k, 1, m] rows, int64[k] numbers) <bool yes = {1}>
        {
            rows, numbers = Loop <body = body (int64 i, bool c)
                => (bool c2, int64[1, ?] where, int64 number)
            {
                where = NonZero(x)
                number = Identity(i)
                c2 = Identity(c)
            }> (n, yes)
        }
    """)
    x = np.array([1, 0, 0, 3], np.float32)
    check(made, (x, np.array(3)), (x, np.array(1)))


@pytest.mark.each_choice
@pytest.mark.parametrize("out_axis", [0, 1, -1])
@pytest.mark.parametrize("out_direction", [0, 1])
def test_a_scan_over_a_symbolic_length(out_direction: int, out_axis: int) -> None:
    made = model(f"""
        graph (float[3] h, float[k, 3] xs) => (float[3] last, float[a, b] rows)
        {{
            last, rows = Scan <num_scan_inputs = 1, scan_output_directions = [{out_direction}],
                scan_output_axes = [{out_axis}],
                body = body (float[3] h, float[3] part) => (float[3] h2, float[3] row)
            {{
                h2 = Add(h, part)
                row = Tanh(h2)
            }}> (h, xs)
        }}
    """)
    rng = np.random.default_rng(0)
    calls = [(X[0], rng.standard_normal((length, 3)).astype(np.float32)) for length in (5, 1, 150)]
    check(made, *calls)


def test_a_loop_within_a_loop() -> None:
    made = model("""
        graph (int64 n, int64 m) => (int64 last, int64[n, m] lines)
            <bool yes = {1}, int64 zero = {0}>
        {
            last, lines = Loop <body = outer (int64 i, bool c, int64 s)
                => (bool c2, int64 s2, int64[m] line)
            {
                s2, line = Loop <body = inner (int64 j, bool d, int64 s)
                    => (bool d2, int64 s2, int64 cell)
                {
                    s2 = Add(s, j)
                    d2 = Identity(d)
                    cell = Mul(s2, i)
                }> (m, yes, s)
                c2 = Identity(c)
            }> (n, yes, zero)
        }
    """)
    check(made, *((np.array(n), np.array(m)) for n, m in ((3, 4), (1, 1), (130, 2))))


@pytest.mark.parametrize("has_lengths", [True, False])
@pytest.mark.parametrize("batch", [2, "batch", 70])
@pytest.mark.parametrize("direction", [0, 1])
def test_sequences_of_a_batch_have_their_own_lengths(
    direction: int, batch: int | str, has_lengths: bool
) -> None:
    names = "lengths, s0, xs" if has_lengths else ", s0, xs"
    made = onnx.parser.parse_model(f"""
        <ir_version: 3, opset_import: ["" : 8]>
        scan (int64[{batch}] lengths, float[{batch}, 3] s0, float[{batch}, n, 3] xs)
            => (float[{batch}, 3] end, float[{batch}, n, 3] ys)
        {{
            end, ys = Scan <num_scan_inputs = 1, directions = [{direction}],
                body = body (float[3] s, float[3] x) => (float[3] t, float[3] y)
            {{
                t = Add(s, x)
                y = Neg(t)
            }}> ({names})
        }}
    """)
    rng = np.random.default_rng(0)
    calls = []
    for count, n in [(2, 4), (2, 5), (3, 3), (1, 1)] if isinstance(batch, str) else [(batch, 4)]:
        shapes = (count, 3), (count, n, 3)
        parts = (rng.standard_normal(shape).astype("float32") for shape in shapes)
        calls.append((rng.integers(1, n + 1, count), *parts))
    check(made, *calls)


def test_strings_are_scanned_in_a_batch_of_any_size() -> None:
    made = onnx.parser.parse_model("""
        <ir_version: 3, opset_import: ["" : 8]>
        scan (string[b, 1] s0, string[b, n, 1] xs) => (string[b, 1] end, string[b, n, 1] ys)
        {
            end, ys = Scan <num_scan_inputs = 1,
                body = body (string[1] s, string[1] x) => (string[1] t, string[1] y)
            {
                t = Identity(x)
                y = Identity(s)
            }> (, s0, xs)
        }
    """)
    first = np.array([["a"], ["b"]], object)
    rows = np.array([[["c"], ["d"]], [["e"], ["f"]]], object)
    for target in TARGETS:
        end, ys = relaxpy.compile(from_onnx(made), target=target)["main"](first, rows)
        assert end.tolist() == [["d"], ["f"]]
        assert ys.tolist() == [[["a"], ["c"]], [["b"], ["e"]]]


def test_a_map_over_a_sequence_uses_values_from_outside_of_its_body() -> None:
    made = model("""
        graph (float[2, 3] x) => (float[4, 3] y) <float w = {2}>
        {
            h = Neg(x)
            s = SequenceConstruct(x, h)
            t = SequenceMap <body = body (float[] e) => (float[] r)
            {
                f = Add(e, w)
                r = Mul(f, h)
            }> (s)
            y = ConcatFromSequence <axis = 0> (t)
        }
    """)
    check(made, (np.arange(6, dtype=np.float32).reshape(2, 3),))


@pytest.mark.parametrize(
    ("rank", "start", "body", "operands"),
    [
        (
            3,
            "Loop <",
            """(int64 i, bool c) => (bool d, float[p, q] row)
            {
                row = Reshape(x, sizes)
                d = Identity(c)
            }""",
            "n, yes",
        ),
        (
            1,
            "Loop <",
            """(int64 i, bool c) => (bool d, float row) <float[p, q] part>
            {
                part = Reshape(x, sizes)
                whole = Transpose(part)
                row = ReduceMax <keepdims = 0> (whole)
                d = Identity(c)
            }""",
            "n, yes",
        ),
        (
            2,
            "Scan <num_scan_inputs = 1, ",
            "(float[p] part) => (float[p] row) { row = Neg(part) }",
            "xs",
        ),
        (
            3,
            "Scan <num_scan_inputs = 1, ",
            "(float[4] part) => (float[p, q] row) { row = Reshape(part, less) }",
            "x",
        ),
    ],
)
def test_a_body_states_the_ranks_of_its_values(
    rank: int, start: str, body: str, operands: str
) -> None:
    made = model(f"""
        graph (float[4, 4] x, int64[l] sizes, int64[m] less, int64 n)
            => (float[{", ".join("abc"[:rank])}] y) <bool yes = {{1}}>
        {{
            xs = Reshape(x, sizes)
            y = {start}body = body {body}> ({operands})
        }}
    """)
    x, less, n = np.arange(16, dtype=np.float32).reshape(4, 4), np.array([2, 2]), np.array(2)
    check(made, *((x, np.array(sizes), less, n) for sizes in ([2, 8], [16, 1])))
