"""Rewriters from modules: patterns and replacements written as functions."""

from collections.abc import Mapping

import pytest

from relaxpy import relax as rx, transform
from relaxpy.errors import MisuseError, TransformError, UnknownNameError
from relaxpy.ir import IRModule, assert_structural_equal
from relaxpy.relax import dpl
from relaxpy.relax.analysis import well_formed
from relaxpy.script import from_source, relax as R
from tests.counting import calls
from tests.ir.relax.texts import pair, private

VECTOR = 'R.Tensor((16,), "float32")'
SQUARE = 'R.Tensor((16, 16), "float32")'


def rewriter(
    params: str, pattern: str, replacement: str, others: str = ""
) -> dpl.PatternMatchingRewriter:
    """The rewriter of two bodies."""

    def member(name: str, body: str) -> str:
        lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
        return f"    @R.function\n    def {name}({params}):\n{lines}\n"

    text = member("pattern", pattern) + member("replacement", replacement)
    found: dpl.PatternMatchingRewriter = from_source(f"@R.rewriter\nclass Rewriter:\n{text}")
    return found


def vectors(*names: str) -> str:
    return ", ".join(f"{name}: {VECTOR}" for name in names)


def packed(name: str, *args: str, sinfo: str = VECTOR) -> str:
    return f'R.call_pure_packed("{name}", {", ".join(args)}, sinfo_args={sinfo})'


def check(after: rx.Function, body: str, params: str, *, pure: bool = True) -> None:
    assert_structural_equal(after, private(body, params, pure=pure))
    assert well_formed(after)


ADD = rewriter(vectors("A", "B"), "return A + B", f"return {packed('add', 'A', 'B')}")
MULTIPLY = rewriter(vectors("A", "B"), "return A * B", f"return {packed('mul', 'A', 'B')}")

Program, Rewritten = pair("""
def first(x: f32[32]):
    split = R.split(x, 2)
    lhs = split[0]
    rhs = split[1]
-   out = lhs + rhs
+   out = R.call_pure_packed("add", lhs, rhs, sinfo_args=f32[16])
    return out

def second(x: f32[16]):
-   y = x + x
+   y = R.call_pure_packed("add", x, x, sinfo_args=f32[16])
    out = R.exp(y)
    return out
""")


def test_functions_and_modules_are_rewritten() -> None:
    before = Program.script()
    assert_structural_equal(ADD(Program["first"]), Rewritten["first"])
    assert_structural_equal(ADD(Program), Rewritten)
    assert Program.script() == before
    assert ADD(Rewritten) is Rewritten
    assert ADD(Rewritten["first"]) is Rewritten["first"]


def test_a_rewriter_is_a_pass() -> None:
    assert_structural_equal(transform.Sequential([ADD])(Program), Rewritten)
    assert ADD.info.name == "PatternMatchingRewriter"


def test_other_expressions_are_rewritten_too() -> None:
    x = rx.Var("x", R.Tensor((16,), "float32"))
    found = ADD(R.add(x, x))
    assert isinstance(found, rx.SeqExpr)
    [binding] = found.blocks[0].bindings
    assert_structural_equal(
        binding.value, R.call_pure_packed("add", x, x, sinfo_args=R.Tensor((16,), "float32"))
    )
    call = R.exp(x)
    assert ADD(call) is call
    assert ADD(x) is x
    [first, *_] = ADD(Program["second"].body).blocks[0].bindings
    assert first.value.op.name == "relax.call_pure_packed"


def test_what_one_rewriter_puts_in_another_may_find() -> None:
    twice = rewriter(vectors("A"), "return A + A", 'return A * R.const(2.0, "float32")')
    scaled = rewriter(
        f'A: {VECTOR}, B: R.Tensor((), "float32")',
        "return A * B",
        f"return {packed('mul', 'A', 'B')}",
    )
    before = private("B = A + A\nreturn B", vectors("A"))
    after = f"B = {packed('mul', 'A', 'R.const(2.0)')}\nreturn B"
    check((twice | scaled)(before), after, vectors("A"))
    check((scaled | twice)(before), after, vectors("A"))


def test_a_replacement_that_contains_the_pattern_is_for_rewrite_call() -> None:
    turned = rewriter(
        'A: R.Tensor((4, 4), "float32"), B: R.Tensor((4, 4), "float32")',
        "return R.matmul(A, B)",
        "return R.permute_dims(R.matmul(R.permute_dims(B), R.permute_dims(A)))",
    )
    func = from_source("""
@R.function
def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
    y = R.matmul(x, w)
    return y
""")
    with pytest.raises(TransformError, match="does not end") as caught:
        turned(func)
    assert "rewrite_call" in (caught.value.diagnostic.hint or "")
    a, b = dpl.wildcard(), dpl.wildcard()

    def turn(expr: rx.Expr, matches: Mapping[dpl.DFPattern, rx.Expr]) -> rx.Expr:
        if matches[a] is not func.params[0]:
            return expr
        rows, columns = R.permute_dims(matches[b]), R.permute_dims(matches[a])
        return R.permute_dims(R.matmul(rows, columns))

    after = dpl.rewrite_call(dpl.is_op("relax.matmul")(a, b), turn, func)
    assert after.script().count("R.matmul(") == 1
    assert after.script().count("R.permute_dims(") == 3


def test_both_of_two_rewriters_apply() -> None:
    before = private("D = A + B\nE = C * D\nreturn E", vectors("A", "B", "C"))
    check(
        (ADD | MULTIPLY)(before),
        f"D = {packed('add', 'A', 'B')}\nE = {packed('mul', 'C', 'D')}\nreturn E",
        vectors("A", "B", "C"),
    )


def test_the_first_rewriter_goes_first_wherever_it_applies() -> None:
    fma = packed("fma", "A", "B", "C")
    fused = rewriter(vectors("A", "B", "C"), "return A * B + C", f"return {fma}")
    before = private("D = A * B\nE = D + C\nreturn E", vectors("A", "B", "C"))
    after = f"E = {fma}\nreturn E"
    check((fused | MULTIPLY)(before), after, vectors("A", "B", "C"))
    check(
        (MULTIPLY | fused)(before),
        f"D = {packed('mul', 'A', 'B')}\nE = D + C\nreturn E",
        vectors("A", "B", "C"),
    )


def test_attributes_and_struct_infos_of_a_pattern_count() -> None:
    rows = rewriter(
        'A: R.Tensor((4, 4), "float32")', "return R.sum(A, axis=0)", "return R.sum(A, axis=[-2])"
    )
    for axis, found in [(0, True), (1, False)]:
        before = private(f"s = R.sum(x, axis={axis})\nreturn s", 'x: R.Tensor((4, 4), "float32")')
        assert (rows(before) is not before) is found
    twice = rewriter(vectors("A"), f"return {packed('f', 'A')}", f"return {packed('g', 'A')}")
    for sinfo, found in [(VECTOR, True), ('R.Tensor((8,), "float32")', False), ("R.Object", False)]:
        before = private(f"s = {packed('f', 'x', sinfo=sinfo)}\nreturn s", vectors("x"))
        assert (twice(before) is not before) is found


def test_literals_of_a_pattern_are_matched_as_they_are() -> None:
    scaled = rewriter(vectors("A"), 'return A * R.const(2.0, "float32")', "return A + A")
    before = private("b = x * R.const(2.0)\nc = b * R.const(3.0)\nreturn c", vectors("x"))
    check(scaled(before), "b = x + x\nc = b * R.const(3.0)\nreturn c", vectors("x"))


DYNAMIC = rewriter(
    'A: R.Tensor(("M", "N"), "float32"), B: R.Tensor(("N", "N"), "float32")',
    "return R.matmul(A, B)",
    "M = T.int64()\nN = T.int64()\nreturn "
    + packed("square", "A", "B", sinfo='R.Tensor((M, N), "float32")'),
)  # fmt: skip


def test_sizes_of_a_pattern_are_those_of_the_match() -> None:
    params = 'A: R.Tensor(("n", "n * 2"), "float32"), B: R.Tensor(("n * 2", "n * 2"), "float32")'
    before = private("C = R.matmul(A, B)\nreturn C", params)
    sinfo = 'R.Tensor((n, n * 2), "float32")'
    check(
        DYNAMIC(before),
        f"n = T.int64()\nC = {packed('square', 'A', 'B', sinfo=sinfo)}\nreturn C",
        params,
    )
    other = 'A: R.Tensor((4, 3), "float32"), B: R.Tensor((3, 2), "float32")'
    before = private("C = R.matmul(A, B)\nreturn C", other)
    assert DYNAMIC(before) is before


LAST_ROW = """
@R.rewriter
class Rewriter:
    @R.function
    def pattern(A: R.Tensor(("M", "N"))) -> R.Tensor(("N",)):
        M = T.int64()
        N = T.int64()
        row = R.strided_slice(A, axes=[0], begin=[M - 1], end=[M])
        flat = R.squeeze(row, axis=0)
        return flat

    @R.function
    def replacement(A: R.Tensor(("M", "N"))) -> R.Tensor(("N",)):
        M = T.int64()
        N = T.int64()
        bits = T.uint8()
        _ = R.match_cast(A.dtype.bits, R.Prim(value=bits))
        row = R.memory.view(A, [N], relative_byte_offset=(M - 1) * N * (bits.astype("int64") // 8))
        return row
"""


@pytest.mark.rule("OPT-9")
def test_a_cast_in_a_replacement_goes_where_it_provably_succeeds() -> None:
    last_row = from_source(LAST_ROW)
    body = (
        "s = R.strided_slice(A, axes=[0], begin=[31], end=[32])\nt = R.squeeze(s, axis=0)\nreturn t"
    )
    known = 'A: R.Tensor((32, 16), "float16")'
    check(
        last_row(private(body, known)),
        "t = R.memory.view(A, [16], relative_byte_offset=992)\nreturn t",
        known,
    )
    open_dtype = "A: R.Tensor((32, 16))"
    check(
        last_row(private(body, open_dtype)),
        "bits = T.uint8()\n_ = R.match_cast(A.dtype.bits, R.Prim(value=bits))\n"
        't = R.memory.view(A, [16], relative_byte_offset=bits.astype("int64") // 8 * 496)\n'
        "return t",
        open_dtype,
    )


PAIR = rewriter(
    f"A: {SQUARE}, B: {SQUARE}, x: {VECTOR}",
    "p = R.matmul(A, x)\nq = R.matmul(B, x)\nreturn (p, q)",
    "w = R.concat([A, B])\nboth = R.matmul(w, x)\nreturn R.split(both, 2)",
)
PARAMS = f"A: {SQUARE}, B: {SQUARE}, x: {VECTOR}, y: {VECTOR}"
PRODUCTS = "p = R.matmul(A, x)\nq = R.matmul(B, x)\n"
TOGETHER = "w = R.concat([A, B])\nm = R.matmul(w, x)\nt = R.split(m, 2)\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            f"{PRODUCTS}t = (p, q)\nc = t[0]\nd = t[1]\nz = c + d\nreturn z",
            f"{TOGETHER}c = t[0]\nd = t[1]\nz = c + d\nreturn z",
        ),
        ("p = R.matmul(A, x)\nq = R.matmul(B, x)\nreturn (p, q)", f"{TOGETHER}return t"),
        (
            "p = R.matmul(A, x)\nq = R.matmul(B, x)\nz = p + q\nreturn z",
            f"{TOGETHER}p = t[0]\nq = t[1]\nz = p + q\nreturn z",
        ),
        (
            "p = R.matmul(A, x)\ne = R.exp(x)\nq = R.matmul(B, x)\nz = q + p\nu = z + e\nreturn u",
            f"e = R.exp(x)\n{TOGETHER}p = t[0]\nq = t[1]\nz = q + p\nu = z + e\nreturn u",
        ),
    ],
)
def test_a_tuple_is_found_whether_or_not_one_holds_the_values(before: str, after: str) -> None:
    check(PAIR(private(before, PARAMS)), after, PARAMS)


@pytest.mark.parametrize(
    "body",
    [
        "p = R.matmul(A, x)\nq = R.matmul(B, y)\nz = p + q\nreturn z",
        "p = R.matmul(A, x)\ne = R.exp(p)\nq = R.matmul(B, x)\nz = p + q\nu = z + e\nreturn u",
        "p = R.matmul(A, x)\nreturn p",
    ],
)
def test_values_that_do_not_fit_together_are_not_a_tuple(body: str) -> None:
    before = private(body, PARAMS)
    assert PAIR(before) is before


def test_one_value_needing_the_other_is_not_a_tuple() -> None:
    params = f"A: {SQUARE}, B: {SQUARE}"
    pair = rewriter(
        f"A: {SQUARE}, B: {SQUARE}, x: {SQUARE}",
        "p = R.matmul(A, x)\nq = R.matmul(B, x)\nreturn (p, q)",
        "w = R.concat([A, B])\nboth = R.matmul(w, x)\nreturn R.split(both, 2)",
    )
    before = private("p = R.matmul(A, B)\nq = R.matmul(p, B)\nz = p + q\nreturn z", params)
    assert pair(before) is before


@pytest.mark.rule("OPT-4", "OPT-3")
@pytest.mark.parametrize(
    ("between", "found"),
    [
        ('_ = R.print(format="here")', False),
        ('u = R.call_pure_packed("may_fail", y, sinfo_args=R.Tensor((16,), "float32"))', True),
        ("u = R.exp(y)", True),
    ],
)
def test_what_stands_between_the_values_of_a_tuple(between: str, found: bool) -> None:
    body = f"p = R.matmul(A, x)\n{between}\nq = R.matmul(B, x)\nz = p + q\nreturn (z, y)"
    if between.startswith("u"):
        body = body.replace("(z, y)", "(z, u)")
    before = private(body, PARAMS, pure=False)
    assert (PAIR(before) is not before) is found


@pytest.mark.rule("OPT-3")
def test_values_that_may_fail_are_not_moved_past_others_that_may() -> None:
    pair = rewriter(
        vectors("A", "B"),
        f"p = {packed('f', 'A')}\nq = {packed('f', 'B')}\nreturn (p, q)",
        "return " + packed("both", "A", "B", sinfo=f"[{VECTOR}, {VECTOR}]"),
    )
    params = vectors("x", "y")
    p, u, q = f"p = {packed('f', 'x')}", f"u = {packed('g', 'x')}", f"q = {packed('f', 'y')}"
    apart = private(f"{p}\n{u}\n{q}\nreturn (p, q, u)", params)
    assert pair(apart) is apart
    side_by_side = f"{u}\n{p}\n{q}\nreturn (p, q, u)"
    check(
        pair(private(side_by_side, params)),
        f"u = {packed('g', 'x')}\nt = {packed('both', 'x', 'y', sinfo=f'[{VECTOR}, {VECTOR}]')}\n"
        "p = t[0]\nq = t[1]\nreturn (p, q, u)",
        params,
    )


def test_parts_of_a_tuple_may_need_each_other() -> None:
    chain = rewriter(
        vectors("A"),
        "p = R.exp(A)\nq = R.abs(p)\nreturn (p, q)",
        "return " + packed("both", "A", sinfo=f"[{VECTOR}, {VECTOR}]"),
    )
    params = vectors("x")
    check(
        chain(private("p = R.exp(x)\nq = R.abs(p)\nz = p + q\nreturn z", params)),
        f"t = {packed('both', 'x', sinfo=f'[{VECTOR}, {VECTOR}]')}\n"
        "p = t[0]\nq = t[1]\nz = p + q\nreturn z",
        params,
    )
    used = private("p = R.exp(x)\ne = R.sin(p)\nq = R.abs(p)\nz = e + q\nreturn z", params)
    assert chain(used) is used


def test_three_values_may_be_one_tuple() -> None:
    sinfo = 'R.Tensor((4,), "float32")'
    three = rewriter(
        'qkv: R.Tensor((12,), "float32")',
        "t = R.split(qkv, 3)\nq = t[0]\nk = t[1]\nv = t[2]\n"
        f"qe = {packed('rope', 'q', sinfo=sinfo)}\n"
        f"ke = {packed('rope', 'k', sinfo=sinfo)}\nreturn (qe, ke, v)",
        "return " + packed("split_rope", "qkv", sinfo=f"[{sinfo}, {sinfo}, {sinfo}]"),
    )
    params = 'x: R.Tensor((12,), "float32")'
    before = private(
        "t = R.split(x, 3)\nq = t[0]\nk = t[1]\nv = t[2]\n"
        f"qe = {packed('rope', 'q', sinfo=sinfo)}\nke = {packed('rope', 'k', sinfo=sinfo)}\n"
        f"z = {packed('attend', 'qe', 'ke', 'v', sinfo=sinfo)}\nreturn z",
        params,
    )
    check(
        three(before),
        f"t = {packed('split_rope', 'x', sinfo=f'[{sinfo}, {sinfo}, {sinfo}]')}\n"
        "v = t[2]\nqe = t[0]\nke = t[1]\n"
        f"z = {packed('attend', 'qe', 'ke', 'v', sinfo=sinfo)}\nreturn z",
        params,
    )


def products(count: int, *, shared: bool) -> rx.Function:
    """Products of matrices, two by two with one or each with its own, that a tuple holds."""
    params = [rx.Var(f"m{i}", R.Tensor((16, 16), "float32")) for i in range(count)]
    bindings = []
    for i, param in enumerate(params):
        call = R.matmul(param, params[i // 2 if shared else i])
        bindings.append(rx.VarBinding(rx.Var(f"p{i}", call.struct_info), call))
    whole = rx.Tuple([b.var for b in bindings])
    return rx.Function(params, rx.SeqExpr([rx.BindingBlock(bindings)], whole))


@pytest.mark.parametrize("shared", [True, False])
def test_tuples_among_many_values_are_found_in_little_work(shared: bool) -> None:
    a, b, one = dpl.wildcard(), dpl.wildcard(), dpl.wildcard()
    pair = dpl.TupleRewriter(
        [dpl.is_op("relax.matmul")(a, one), dpl.is_op("relax.matmul")(b, one)],
        lambda _, m: R.split(R.matmul(R.concat((m[a], m[b])), m[one]), 2),
    )
    work = {}
    for count in (60, 120):
        before = products(count, shared=shared)
        work[count] = calls(lambda f=before: pair(f))
        assert (pair(before) is not before) is shared
    assert work[120] < 3 * work[60]


@pytest.mark.parametrize("shared", [True, False])
def test_fields_that_are_one_too_many_are_not_tried_in_every_order(shared: bool) -> None:
    count = 9
    one = dpl.wildcard()
    fields = [dpl.is_op("relax.exp")(one if shared else dpl.wildcard()) for _ in range(count)]
    many = dpl.TupleRewriter(fields, lambda _, m: rx.Tuple([R.sin(m[f.args[0]]) for f in fields]))
    lines = [f"v{i} = R.exp(x)" for i in range(count)]
    result = "\nreturn ({})"
    for missing in (1, 0):
        names = ", ".join(f"v{i}" for i in range(count - missing))
        before = private("\n".join(lines[: count - missing]) + result.format(names), vectors("x"))
        assert calls(lambda f=before: many(f)) < 200_000
        assert (many(before) is before) is bool(missing)


def test_tuples_are_found_in_dataflow_blocks() -> None:
    body = "with R.dataflow():\n    {}\n    R.output(z)\nreturn z"
    before = private(
        body.format("p = R.matmul(A, x)\n    q = R.matmul(B, x)\n    z = p + q"), PARAMS
    )
    inside = "\n    ".join(f"{TOGETHER}p = t[0]\nq = t[1]\nz = p + q".splitlines())
    check(PAIR(before), body.format(inside), PARAMS)


def test_constructors_of_rewriters() -> None:
    x, y = dpl.wildcard(), dpl.wildcard()
    both = dpl.TupleRewriter(
        [dpl.is_op("relax.exp")(x), dpl.is_op("relax.abs")(y)],
        lambda _, m: rx.Tuple([R.sin(m[x]), R.cos(m[y])]),
    )
    params = vectors("a")
    check(
        both(private("p = R.exp(a)\nq = R.abs(a)\nz = p + q\nreturn z", params)),
        "p = R.sin(a)\nq = R.cos(a)\nz = p + q\nreturn z",
        params,
    )
    exp = dpl.ExprPatternRewriter(dpl.is_op("relax.exp")(x), lambda _, m: R.sin(m[x]))
    assert repr(dpl.OrRewriter(exp, both)) == "<OrRewriter of 2 rules>"
    wrong = dpl.TupleRewriter(
        [dpl.is_op("relax.exp")(x), dpl.is_op("relax.abs")(y)], lambda _, m: rx.Tuple([m[x]] * 3)
    )
    with pytest.raises(TransformError, match="p, q are replaced by a tuple of 2 fields"):
        wrong(private("p = R.exp(a)\nq = R.abs(a)\nz = p + q\nreturn z", params))


def text(**functions: str) -> IRModule:
    body = "\n".join(functions.values())
    found: IRModule = from_source(f"@I.ir_module\nclass Rewriter:\n{body}")
    return found


def member(name: str, params: str, result: str, decorator: str = "@R.function") -> str:
    return f"    {decorator}\n    def {name}({params}):\n        return {result}\n"


GOOD = {
    "pattern": member("pattern", vectors("A"), "A + A"),
    "replacement": member("replacement", vectors("A"), "A"),
}
KERNEL = (
    "    @T.prim_func(private=True)\n    def {}(A: T.Buffer(16, 'float32')):\n"
    "        T.evaluate(0)\n"
)


@pytest.mark.parametrize(
    ("changes", "kinds", "message"),
    [
        ({"pattern": None}, (UnknownNameError, KeyError), "a function 'pattern', what to look for"),
        ({"replacement": None}, (UnknownNameError, KeyError), "a function 'replacement', what to"),
        ({"pattern": KERNEL.format("pattern")}, (TypeError,), "'pattern' of a rewriter is a Relax"),
        ({"replacement": KERNEL.format("replacement")}, (TypeError,), "found PrimFunc"),
        (
            {"replacement": member("replacement", vectors("A", "B"), "A")},
            (MisuseError, ValueError),
            "must have the same signature",
        ),
        (
            {"other": member("other", vectors("A"), "A")},
            (MisuseError, ValueError),
            "function other of the rewriter is publicly exposed",
        ),
        (
            {"pattern": member("pattern", vectors("A"), "A")},
            (MisuseError,),
            "one of its parameters",
        ),
        (
            {
                "pattern": member("pattern", vectors("A", "B"), "A + A"),
                "replacement": member("replacement", vectors("A", "B"), "A + B"),
            },
            (MisuseError,),
            "the pattern does not use parameter B",
        ),
        (
            {
                "pattern": member("pattern", vectors("A"), "Rewriter.f(A)"),
                "f": member("f", vectors("A"), "A", "@R.function(private=True)"),
            },
            (MisuseError,),
            "found GlobalVar",
        ),
        (
            {
                "pattern": member(
                    "pattern",
                    vectors("A"),
                    f'R.call_packed("f", A, sinfo_args={VECTOR})',
                    "@R.function(pure=False)",
                ),
                "replacement": member("replacement", vectors("A"), "A", "@R.function(pure=False)"),
            },
            (MisuseError,),
            "a pattern has no impure calls",
        ),
    ],
)
def test_a_module_that_describes_no_rewriter_is_refused(changes, kinds, message) -> None:
    members = {name: body for name, body in {**GOOD, **changes}.items() if body is not None}
    for kind in kinds:
        with pytest.raises(kind) as caught:
            dpl.PatternMatchingRewriter.from_module(text(**members))
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dpl.PatternMatchingRewriter.from_module(3), "made of an IRModule, found 3"),
        (lambda: ADD | 3, "rewriters are combined, found 3"),
        (lambda: ADD(3), "takes an IRModule or an expression, found int"),
        (lambda: dpl.ExprPatternRewriter(3, ADD), "expected a pattern, found int 3"),
        (lambda: dpl.TupleRewriter([dpl.is_tuple([])], 3), "a rewriter is a function, found 3"),
    ],
)
def test_misuse_is_refused(make: object, message: str) -> None:
    with pytest.raises(MisuseError) as caught:
        make()  # type: ignore[operator]
    assert message in str(caught.value)
