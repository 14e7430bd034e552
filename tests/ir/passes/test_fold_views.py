"""FoldViews: kernels read transposed, repeated, filled and flipped tensors without copies."""

from textwrap import indent

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.ir import structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax import transform
from relaxpy.script import from_source
from tests.ir.relax.texts import graph, module
from tests.rows import commented, follow, rows


def folded(mod: IRModule) -> IRModule:
    """The module after legalisation and the pass, which a second run does not change."""
    after = transform.FoldViews()(transform.LegalizeOps()(mod))
    assert transform.FoldViews()(after) is after
    return after


def kernels(mod: IRModule) -> list[str]:
    """The names of the kernels that `main` calls, in order."""
    calls = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    return [call.args[0].name_hint for call in calls if isinstance(call, rx.Call)]


def check(mod: IRModule, *args: object) -> None:
    """Both programs return what the reference evaluator returns."""
    expected = relaxpy.compile(mod, "reference")["main"](*args)
    views = folded(mod)
    for target in (None, "numpy", "reference"):
        found = relaxpy.compile(views, target, relax_pipeline=None)["main"](*args)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


VIEWS = rows("""
--- linear does not copy its weight
def main(x: f32[n, 4], w: f32[3, 4]):
    y = R.linear(x, w)
    return y
# holds: kernels(after) == ["transpose_matmul"]
# do: check(mod, floats(2, 4), floats(3, 4))
# do: ex = relaxpy.compile(mod, "numpy")
# holds: [row.method for row in ex.report()] == ["contraction over k"]
# holds: ".T" in ex.source
--- views of views are one
def main(x: f32[2, 3, 1], w: f32[4, 2]):
    turned = R.permute_dims(x, (2, 1, 0))
    flat = R.squeeze(turned, 0)
    more = R.expand_dims(flat, 1)
    wide = R.broadcast_to(more, (3, 4, 2))
    y = R.add(wide, w)
    return y
# holds: len(kernels(after)) == 1
# do: check(mod, floats(2, 3, 1), floats(4, 2))
--- a reshape that drops axes of size 1 is a view
def main(x: f32[n, 1, 4]):
    flat = R.reshape(x, (n, 4))
    y = R.exp(flat)
    return y
# holds: len(kernels(after)) == 1
# do: check(mod, floats(2, 1, 4))
--- a reshape of other axes is none
def main(x: f32[6, 4]):
    flat = R.reshape(x, (3, 8))
    y = R.exp(flat)
    return y
# holds: len(kernels(after)) == 2
# do: check(mod, floats(6, 4))
--- what is filled with a value is the value
def main(x: f32[n, 4], mask: bool[4]):
    low = R.full((n, 4), R.const(-2.5, "float32"), "float32")
    y = R.where(mask, x, low)
    return y
# do: (name,) = kernels(after)
# holds: "-2.5" in after[name].script()
# do: check(mod, floats(3, 4), np.array([True, False, True, False]))
--- a copy that is read twice stays
def main(x: f32[2, 3]):
    turned = R.permute_dims(x)
    y = R.nn.softmax(turned)
    return y
# holds: kernels(after) == ["transpose", "softmax"]
# do: check(mod, floats(2, 3))
--- a copy that is returned stays
def main(x: f32[2, 3]):
    turned = R.permute_dims(x)
    y = R.exp(turned)
    return turned, y
# holds: kernels(after) == ["transpose", "transpose_tir_exp"]
--- a tensor that is overwritten is copied first
@kernel
def clear(a: f32[2, 3]):
    for i, j in SS(2, 3, "clear"):
        a[vi, vj] = T.float32(0)

def main(x: f32[2, 3]):
    own = R.exp(x)
    turned = R.permute_dims(own)
    empty = R.call_tir_inplace(cls.clear, (own,), inplace_indices=[0], out_sinfo=f32[2, 3])
    y = R.exp(turned)
    return (empty, y)
# holds: after is before
# do: _, found = relaxpy.compile(mod)["main"](floats(2, 3))
# do: np.testing.assert_allclose(found, np.exp(np.exp(floats(2, 3))).T, rtol=1e-5)
--- a kernel that copies only a part is no view
@kernel
def part(a: f32[3, 3], b: f32[3, 3]):
    for i, j in SS(2, 3, "part"):
        b[vi, vj] = a[vj, vi]

def main(x: f32[3, 3]):
    y = R.call_tir(cls.part, (x,), f32[3, 3])
    z = R.exp(y)
    return z
# holds: after is before
--- the first part of a transposed tensor is no view of all of it
def main(x: f32[6, 4]):
    transposed = R.permute_dims(x, [1, 0])
    first = R.strided_slice(transposed, [0], [0], [2], [1])
    rest = R.strided_slice(transposed, [0], [2], [4], [1])
    y = R.multiply(first, R.exp(rest))
    return y
# do: x = floats(6, 4)
# do: check(mod, x)
# do: found = [relaxpy.compile(mod, target)["main"](x) for target in ("numpy", "native")]
# do: np.testing.assert_allclose(found, [x.T[:2] * np.exp(x.T[2:])] * 2, rtol=1e-5)
--- a part of the repetitions is no view
@kernel
def part(x: f32[3, 2], y: f32[5, 2]):
    for i, j in SS(5, 2):
        y[vi, vj] = x[vi // 2, vj]

def main(x: f32[3, 2], w: f32[2, 4]):
    lv = R.call_tir(cls.part, (x,), f32[5, 2])
    y = R.matmul(lv, w)
    return y
# holds: kernels(after) == ["part", "matmul"]
# do: check(mod, floats(3, 2), floats(2, 4))
--- a scan that others use is not flipped
def main(x: f32[7, 5]):
    sums = R.cumsum(x, 0)
    y = R.flip(sums, 0)
    return (sums, y)
# holds: after is before
--- a scan along another axis than that of the first flip is flipped after it
def main(x: f32[7, 5]):
    flipped = R.flip(x, 1)
    sums = R.cumsum(flipped, 0)
    y = R.flip(sums, 0)
    return y
# holds: len(kernels(after)) == 1
# do: check(mod, floats(7, 5))
--- what is not a scan is not flipped
def main(x: f32[7, 5]):
    flipped = R.flip(x, 1)
    sums = R.sum(flipped, 0)
    y = R.flip(sums, 0)
    return y
# holds: after is before
""")


@pytest.mark.rule("OPT-1", "OPT-2", "OPT-11")
@pytest.mark.parametrize("row", VIEWS)
def test_views_are_read_where_they_are_and_other_copies_stay(row: str) -> None:
    text, comments = commented(row)
    mod = graph(text)
    before = transform.LegalizeOps()(mod)
    names = {"mod": mod, "before": before, "after": transform.FoldViews()(before)}
    assert transform.FoldViews()(names["after"]) is names["after"]
    follow(comments, {**globals(), **names})


def test_nothing_to_do_is_the_same_module() -> None:
    Model = module("""
    def main(x: f32[3, 3]):
        y = R.permute_dims(x)
        z = R.exp(y)
        return z
    """)
    before = transform.LegalizeOps()(Model)
    assert transform.FoldViews()(before) is before
    assert structural_equal(before, transform.LegalizeOps()(Model))


ATTENTION = """
@I.ir_module
class Module:
    @R.function
    def main(
        q: R.Tensor((2, 4, {queries}, 4), "float32"),
        k: R.Tensor((2, 2, {length}, 4), "float32"),
        v: R.Tensor((2, 2, {length}, 4), "float32"),
    ):
        {symbols}
        with R.dataflow():
            keys = {keys}
            values = {values}
            scores = R.nn.softmax(R.matmul(q, R.permute_dims(keys, (0, 1, 3, 2))))
            y = R.matmul(scores, values)
            R.output(y)
        return y
"""
REPEATS = "R.repeat({x}, 2, 1)"
BROADCASTS = "R.reshape(R.broadcast_to(R.expand_dims({x}, 2), (2, 2, 2, {n}, 4)), (2, 4, {n}, 4))"


def attention(queries: int | str, length: int | str, form: str) -> IRModule:
    """Attention in which two heads share keys and values; names of sizes are symbols."""
    symbols = [f"{n} = T.int64()" for n in (queries, length) if isinstance(n, str)]
    mod = from_source(
        ATTENTION.format(
            queries=repr(queries),
            length=repr(length),
            symbols="; ".join(symbols) or "pass",
            keys=form.format(x="k", n=length),
            values=form.format(x="v", n=length),
        )
    )
    assert isinstance(mod, IRModule)
    return mod


@pytest.mark.rule("OPT-1")
@pytest.mark.each_choice
@pytest.mark.parametrize("form", [REPEATS, BROADCASTS])
@pytest.mark.parametrize(("queries", "length"), [(1, "n"), (5, 3), ("m", "n")])
def test_heads_that_share_keys_are_not_copied(queries, length, form) -> None:
    mod = attention(queries, length, form)
    assert len(kernels(folded(mod))) == 3  # two products and softmax
    sizes = (5 if queries == "m" else queries, 3)
    check(mod, *(floats(2, heads, n, 4) for heads, n in zip((4, 2, 2), (*sizes, 3), strict=True)))


@pytest.mark.parametrize("form", [REPEATS, BROADCASTS])
def test_what_is_read_often_is_copied(form: str) -> None:
    mod = attention(32, "n", form)
    assert len(kernels(folded(mod))) > 3
    check(mod, floats(2, 4, 32, 4), floats(2, 2, 2, 4), floats(2, 2, 2, 4))


@pytest.mark.rule("OPT-11")
@pytest.mark.parametrize(("first", "then"), [("a", "z"), ("z", "a")])
def test_a_view_is_of_the_elements_before_a_write(first: str, then: str) -> None:
    lines = {
        "a": "a = R.permute_dims(m)",
        "z": "z = R.call_tir_inplace(cls.fill, (m, rows), [0], f32[3, 4])",
    }
    mod = module(f"""
    def main(x: f32[3, 3], rows: f32[3, 4]):
        m = R.exp(rows)
        {lines[first]}
        {lines[then]}
        y = R.matmul(a, x)
        return (R.add(z, rows), y)

    @kernel
    def fill(m: f32[3, 4], rows: f32[3, 4]):
        for i, j in T.grid(3, 4):
            m[i, j] = rows[i, j] * T.float32(2)
    """)
    views = folded(transform.ConvertToDataflow(min_size=1)(mod))
    assert ("transpose" in kernels(views)) == (first == "a")
    x, rows = floats(3, 3), floats(3, 4)
    m = np.exp(rows) if first == "a" else rows * 2
    for target in ("numpy", "native", "reference"):
        z, y = relaxpy.compile(views, target, relax_pipeline=None)["main"](x, rows)
        np.testing.assert_allclose(z, rows * 3, rtol=1e-5)
        np.testing.assert_allclose(y, m.T @ x, rtol=1e-4, atol=1e-5)


@pytest.mark.rule("OPT-1")
def test_the_first_elements_are_a_view() -> None:
    mod = module("""
    def main(x: f32[n, 4], memory: f32[room, 4]):
        first = R.call_tir(cls.first, (memory,), f32[n, 4])
        y = R.matmul(x, R.permute_dims(first))
        z = R.matmul(R.permute_dims(first), first)
        return R.add(R.sum(y), R.sum(z))

    @kernel64
    def first(a: T.handle, b: T.handle):
        room = T.int64()
        n = T.int64()
        memory = T.match_buffer(a, (room, 4))
        first = T.match_buffer(b, (n, 4))
        for i, j in SS(n, 4):
            first[vi, vj] = memory[vi, vj]
    """)
    views = folded(transform.ConvertToDataflow(min_size=1)(mod))
    # One of the two operands of the second product says how many rows there are.
    assert next(name for name in kernels(views) if "matmul" in name) == "first_transpose_matmul"
    assert "first" in kernels(views)
    check(mod, floats(2, 4), floats(5, 4))


REVERSED = """
    def main(x: R.Tensor({shape}, "{dtype}")):
        n = T.int64()
        flipped = R.flip(x, {axis})
        sums = R.{scan}(flipped, {axis}, "{dtype}", {exclusive})
        y = R.flip(sums, {axis})
        return y
"""


@pytest.mark.rule("OPT-1")
@pytest.mark.each_choice
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("scan", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float64"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(5, 4, 37), (5, "n", 37), (3, 0, 2), (1, 1, 1)])
def test_scans_of_flipped_tensors_run_from_the_end(shape, axis, dtype, scan, exclusive) -> None:
    facts = {"axis": axis, "dtype": dtype, "scan": scan, "exclusive": exclusive}
    model = graph(REVERSED.format(shape=shape, **facts))
    x = (floats(*(4 if size == "n" else size for size in shape)) * 2 + 1).astype(dtype)
    assert len(kernels(folded(model))) == 1
    check(model, x)


@pytest.mark.rule("OPT-1")
def test_the_scan_from_the_end_is_one_loop_on_each_target() -> None:
    model = graph(
        REVERSED.format(shape=(9, 70), axis=1, dtype="float32", scan="cumsum", exclusive=0)
    )
    for target in ("numpy", "native"):
        methods = [row.method for row in relaxpy.compile(model, target).report()]
        assert [m.removeprefix("native, ") for m in methods] == ["elementwise", "add scan over i1"]


_ALIASES = {
    "a matched region": """
    for i in range(4):
        with T.block("row"):
            vi = T.axis.spatial(4, i)
            row = T.match_buffer(B[vi, 0:5], (5,), offset_factor=1)
            row[0] = A[vi, 0]
            for j in range(4):
                row[j + 1] = B[vi, j] + A[vi, j + 1]
""",
    "another buffer": """
    flat = T.decl_buffer((20,), data=B.data)
    for i, j in T.grid(4, 5):
        B[i, j] = A[i, j] + T.if_then_else(j == 0, T.float32(0), B[i, j - 1])
    flat[1] = T.float32(100)
""",
    "an address": """
    for i, j in T.grid(4, 5):
        B[i, j] = A[i, j] + T.if_then_else(j == 0, T.float32(0), B[i, j - 1])
    T.evaluate(T.call_packed("test.negate", T.address_of(B[0, 0])))
""",
}


@pytest.mark.rule("OPT-1")
@pytest.mark.parametrize("alias", _ALIASES)
def test_a_scan_whose_result_has_another_name_is_not_flipped(alias: str) -> None:
    def negate(memory: np.ndarray) -> None:
        np.negative(memory, out=memory)

    relaxpy.register_func("test.negate", negate, override=True)
    mod = module(
        """
    @T.prim_func
    def scan(A: T.Buffer((4, 5)), B: T.Buffer((4, 5))):
"""
        + indent(_ALIASES[alias], "    ")
        + """
    @R.function
    def main(x: f32[4, 5]):
        with R.dataflow():
            sums = R.call_tir(cls.scan, (x,), R.Tensor((4, 5), "float32"))
            y = R.flip(sums, 1)
            R.output(y)
        return y
    """
    )
    check(mod, floats(4, 5))
