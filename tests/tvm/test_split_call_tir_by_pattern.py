"""SplitCallTIRByPattern: which loop nests match a pattern, and what is left of a kernel."""

from typing import Any

import numpy as np
import pytest

from relaxpy import IRModule
from relaxpy.errors import MisuseError
from relaxpy.relax.transform import (
    AnnotateTIROpPattern,
    FuseOps,
    FuseTIR,
    LegalizeOps,
    SplitCallTIRByPattern,
)
from tests.ir.passes.before_after import agree, stays
from tests.ir.relax.texts import graph, module

Patterns = module("""
@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle):
    m, n, k = (T.int64(), T.int64(), T.int64())
    x = T.match_buffer(a, (m, k), "float32")
    w = T.match_buffer(b, (k, n), "float32")
    y = T.match_buffer(c, (m, n), "float32")
    for i, j, s in T.grid(m, n, k):
        with T.block("product"):
            vi, vj, vl = T.axis.remap("SSR", [i, j, s])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + x[vi, vl] * w[vl, vj]

@T.prim_func
def line(x: f32[4], y: f32[4], slope: T.float32, start: T.float32):
    for i in range(4):
        with T.block("line"):
            vi = T.axis.spatial(4, i)
            y[vi] = x[vi] * slope + start
""")


PRODUCT, LINE = Patterns["product"], Patterns["line"]


def kernel(*lines: str, head: str = "", loop: str = "range(4)") -> IRModule:
    """A module whose kernel computes `y` of `x` and `w` by one loop nest per line."""
    nests = "".join(
        f"""
        for i in {loop}:
            with T.block("b{k}"):
                vi = T.axis.spatial(4, i)
                {line}"""
        for k, line in enumerate(lines)
    )
    return module(f"""
    @kernel
    def kernel(x: f32[4], w: f32[4], y: f32[4]):
        t = T.alloc_buffer((4,), "float32")
        u = T.alloc_buffer((4,), "float32")
        {head}{nests}

    def main(x: f32[4], w: f32[4]):
        with R.dataflow():
            y = R.call_tir(cls.kernel, (x, w), R.Tensor((4,), "float32"))
        return y
    """)


def lines_of(matches: list[Any]) -> list[Any]:
    """Code for matches of `line`: all of them, one after the other."""
    factors = [tuple(v.value for v in match.symbol_values) for match in matches]

    def function(x: Any) -> Any:
        for slope, start in factors:
            x = x * np.float32(slope) + np.float32(start)
        return x

    return [function, len(matches), [matches[0].matched_buffers[0]]]


X, W = np.arange(4, dtype="float32"), np.array([3, -1, 0, 2], "float32")


def test_a_product_of_any_size_is_computed_elsewhere_and_the_rest_is_a_kernel() -> None:
    Mod = graph("""
    def main(x: f32[4, 8], w: f32[8, 6], b: f32[6]):
        p = R.matmul(x, w)
        q = R.add(p, b)
        r = R.nn.relu(q)
        return r
    """)
    fused = FuseTIR()(FuseOps()(AnnotateTIROpPattern()(LegalizeOps()(Mod))))
    seen = []

    def codegen(matches: list[Any]) -> list[Any]:
        seen.extend(matches)
        return [np.matmul, 1, list(matches[0].matched_buffers[:2])]

    step = SplitCallTIRByPattern([LINE, PRODUCT], codegen)
    after = step(fused)
    assert [match.pattern for match in seen] == [PRODUCT]
    assert list(after.functions_by_name) == ["main", "unfused_epilogue"]
    text = " ".join(after.script().split())
    assert 'R.call_pure_packed( "fused_matmul_add_relu", x, w' in text
    assert step(after) is after
    rng = np.random.default_rng(0)
    agree(fused, after, *(rng.integers(-3, 4, s).astype("float32") for s in ((4, 8), (8, 6), (6,))))


@pytest.mark.parametrize(
    ("value", "symbols"),
    [
        ("x[vi] * T.float32(3) + T.float32(2)", (3, 2)),
        ("T.float32(2) + T.float32(3) * x[vi]", (3, 2)),
        ("x[vi] + T.float32(2)", (1, 2)),
        ("T.float32(3) * x[vi]", (3, 0)),
        ("x[vi]", (1, 0)),
    ],
)
def test_symbols_stand_for_literals_and_terms_and_factors_may_be_missing(value, symbols) -> None:
    found = []

    def codegen(matches: list[Any]) -> list[Any]:
        found.append(tuple(v.value for v in matches[0].symbol_values))
        return lines_of(matches)

    before = kernel(f"y[vi] = {value}")
    after = SplitCallTIRByPattern([LINE], codegen)(before)
    assert found == [symbols]
    assert list(after.functions_by_name) == ["main"]
    agree(before, after, X, W)


def test_the_code_generator_decides_how_many_nests_it_computes() -> None:
    before = kernel(
        "t[vi] = x[vi] * T.float32(2)", "u[vi] = t[vi] + T.float32(1)", "y[vi] = u[vi] + w[vi]"
    )
    counts = []
    for most in (2, 1):

        def codegen(matches: list[Any], most: int = most) -> list[Any]:
            counts.append(len(matches))
            return lines_of(matches[:most])

        after = SplitCallTIRByPattern([LINE], codegen)(before)
        epilogue = after["unfused_epilogue"]
        assert len(epilogue.params) == 3
        assert epilogue.script().count("for ") == 3 - most
        agree(before, after, X, W)
    assert counts == [2, 2]
    stays(SplitCallTIRByPattern([LINE], lambda matches: [np.sin, 0, []]), before)


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        (("y[vi] = x[vi] - T.float32(2)",), {}),
        (("y[vi] = x[vi] * w[vi]",), {}),
        (("y[vi] = x[3 - vi] * T.float32(2)",), {}),
        (("y[vi] = x[vi] * T.float32(2)",), {"loop": "T.parallel(4)"}),
        (("y[vi] = x[vi] * T.float32(2)",), {"loop": "range(3)"}),
        # the first nest does not match
        (("t[vi] = T.exp(x[vi])", "y[vi] = t[vi] * T.float32(2)"), {}),
        # the rest needs two results, or stores to one of them
        (
            (
                "t[vi] = x[vi] * T.float32(2)",
                "u[vi] = t[vi] + T.float32(1)",
                "y[vi] = u[vi] - t[vi]",
            ),
            {},
        ),
        (("t[vi] = x[vi] * T.float32(2)", "t[vi] = t[vi] - w[vi]", "y[vi] = -t[vi]"), {}),
    ],
)
def test_kernels_that_do_not_match_or_cannot_be_divided_stay(lines, options) -> None:
    stays(SplitCallTIRByPattern([LINE], lines_of), kernel(*lines, **options))


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (
            lambda: SplitCallTIRByPattern(
                [kernel("t[vi] = x[vi]", "y[vi] = t[vi]")["kernel"]], lines_of
            ),
            "a PrimFunc with one loop nest",
        ),
        (lambda: SplitCallTIRByPattern([LINE], None), "fcodegen is a function, found None"),
    ],
)
def test_patterns_and_the_code_generator_are_checked(create, message) -> None:
    with pytest.raises(MisuseError, match=message):
        create()


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (["void f() {}", 1, []], "returns a Python function, a number of nests from 0 to 1"),
        ([np.sin, 2, []], "a number of nests from 0 to 1"),
        ([np.sin, 1], "a list of buffers"),
        (None, "found None"),
    ],
)
def test_what_the_code_generator_returns_is_checked(result: Any, message: str) -> None:
    step = SplitCallTIRByPattern([LINE], lambda matches: result)
    with pytest.raises(MisuseError, match=message):
        step(kernel("y[vi] = x[vi]"))


def test_arguments_are_buffers_of_inputs() -> None:
    step = SplitCallTIRByPattern([LINE], lambda matches: [np.sin, 1, matches[0].matched_buffers])
    with pytest.raises(MisuseError, match="y is not the buffer of an input of kernel"):
        step(kernel("y[vi] = x[vi]"))
