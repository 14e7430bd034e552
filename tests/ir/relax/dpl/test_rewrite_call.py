"""rewrite_call: what a function becomes, and what rewriting leaves alone."""

import pytest

from relaxpy import relax as rx, tir
from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.analysis import well_formed
from relaxpy.relax.dpl import DFPattern, is_const, is_op, is_tuple, rewrite_call, wildcard
from relaxpy.script import relax as R
from tests.ir.relax.texts import module, private

Matches = dict[DFPattern, rx.Expr]
A, B = wildcard(), wildcard()
SUM = is_op("relax.add")(A, A)


def double(expr: rx.Expr, matches: Matches) -> rx.Expr:
    return R.multiply(matches[A], R.const(2, "float32"))


def function(
    body: str, params: str = 'x: R.Tensor((4,), "float32")', pure: bool = True
) -> rx.Function:
    return private(body, params, pure=pure)


def check(after: rx.Function, body: str, **options: object) -> None:
    assert_structural_equal(after, function(body, **options))  # type: ignore[arg-type]
    assert well_formed(after)


def dataflow(body: str, output: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return f"with R.dataflow():\n{lines}\n    R.output({output})\nreturn {output}"


def test_what_matches_is_replaced_wherever_it_stands() -> None:
    before = function(dataflow("y = R.add(x, x)\nz = R.add(y, y)", "z"))
    check(
        rewrite_call(SUM, double, before),
        dataflow('y = R.multiply(x, R.const(2.0, "float32"))\n'
                 'z = R.multiply(y, R.const(2.0, "float32"))', "z"),
    )  # fmt: skip


def test_what_is_only_part_of_a_match_is_gone() -> None:
    before = function(dataflow("y = R.add(x, x)\nz = R.add(y, y)", "z"))
    twice = is_op("relax.add")(SUM, SUM)
    after = rewrite_call(twice, lambda _, m: R.multiply(m[A], R.const(4, "float32")), before)
    check(after, dataflow('z = R.multiply(x, R.const(4.0, "float32"))', "z"))


def test_what_is_part_of_a_match_and_used_elsewhere_stays_and_is_not_computed_again() -> None:
    before = function("y = R.exp(x)\nz = R.abs(y)\nreturn (y, z)")
    pattern = is_op("relax.abs")(A)
    after = rewrite_call(pattern, lambda _, m: R.sqrt(R.square(m[A])), before)
    check(after, "y = R.exp(x)\nt = R.square(y)\nz = R.sqrt(t)\nreturn (y, z)")


@pytest.mark.parametrize("give", [lambda expr, _: expr, lambda expr, _: None])
def test_a_rewriter_that_replaces_nothing_gives_the_very_function(give) -> None:
    before = function("y = R.add(x, x)\nreturn y")
    assert rewrite_call(SUM, give, before) is before
    assert rewrite_call(is_op("relax.exp")(A), double, before) is before


def test_what_is_equal_is_not_a_replacement() -> None:
    before = function("y = R.exp(x)\nreturn y")
    assert rewrite_call(is_op("relax.exp")(A), lambda _, m: R.exp(m[A]), before) is before


def test_what_was_put_in_is_rewritten_in_turn() -> None:
    before = function(
        dataflow("a = R.add(x, y)\nb = R.add(a, z)\nout = R.multiply(b, R.const(5.0))", "out"),
        'x: R.Tensor((4,)), y: R.Tensor((4,)), z: R.Tensor((4,))',
    )  # fmt: skip
    factor = is_const()
    pattern = is_op("relax.multiply")(is_op("relax.add")(A, B), factor)
    after = rewrite_call(pattern, lambda _, m: m[A] * m[factor] + m[B] * m[factor], before)
    check(
        after,
        dataflow(
            "p = R.multiply(x, R.const(5.0))\nq = R.multiply(y, R.const(5.0))\na = R.add(p, q)\n"
            "r = R.multiply(z, R.const(5.0))\nout = R.add(a, r)",
            "out",
        ),
        params='x: R.Tensor((4,)), y: R.Tensor((4,)), z: R.Tensor((4,))',
    )  # fmt: skip


def test_either_order_of_a_sum_is_told_by_the_matches() -> None:
    one = is_const()
    op = is_op("relax.add") | is_op("relax.multiply")
    before = function(dataflow("y = R.add(x, x)\nz = R.add(R.const(1.0), y)", "z"))

    def rewriter(expr: rx.Expr, matches: Matches) -> rx.Expr:
        if matches[one].data == 1.0:  # type: ignore[attr-defined]
            return rx.Call(matches[op], [matches[A], rx.const(2.0)])
        return expr

    after = rewrite_call(op(A, one), rewriter, before)
    check(after, dataflow("y = R.add(x, x)\nz = R.add(y, R.const(2.0))", "z"))


RESHAPE = is_op("relax.reshape")(A, B)


def without_effect(expr: rx.Expr, matches: Matches) -> rx.Expr:
    same = matches[A].struct_info.shape.values == matches[B].values  # type: ignore[attr-defined,union-attr]
    return matches[A] if same else expr


@pytest.mark.rule("SC-7")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = R.abs(x)\nb = R.reshape(a, (4,))\nreturn b", "a = R.abs(x)\nreturn a"),
        ("b = R.reshape(x, (4,))\nreturn b", "return x"),
        (dataflow("a = R.abs(x)\nb = R.reshape(a, (4,))", "b"), dataflow("b = R.abs(x)", "b")),
        (
            dataflow("a = R.abs(x)\nb = R.reshape(a, (4,))\nc = R.exp(b)", "c"),
            dataflow("a = R.abs(x)\nc = R.exp(a)", "c"),
        ),
        (
            "with R.dataflow():\n    a = R.abs(x)\n    b = R.reshape(a, (4,))\n"
            "    c = R.reshape(a, (4,))\n    R.output(b, c)\nreturn (b, c)",
            "with R.dataflow():\n    b = R.abs(x)\n    R.output(b)\nreturn (b, b)",
        ),
        ("a = R.abs(x)\nb = R.reshape(a, (2, 2))\nreturn b",) * 2,
    ],
)
def test_a_variable_replaced_by_another_one_is_that_one(before: str, after: str) -> None:
    check(rewrite_call(RESHAPE, without_effect, function(before)), after)


def test_fields_of_a_tuple_that_a_rewriter_writes_out_are_those_values() -> None:
    before = function(
        dataflow("c = R.concat((x, y))\nd = R.split(c, 2)\ne = d[0]\nf = d[1]\n"
                 "g = R.add(x, e)\nh = R.add(f, g)", "h"),
        'x: R.Tensor((4,)), y: R.Tensor((4,))',
    )  # fmt: skip
    parts = wildcard()
    joined = is_op("relax.concat")(parts).has_attr({"axis": 0})
    split = is_op("relax.split")(joined).has_attr(
        {"axis": 0, "indices_or_sections": tir.IntImm("int64", 2)}
    )
    pattern = split | SUM

    def rewriter(expr: rx.Expr, matches: Matches) -> rx.Expr:
        if split in matches:
            return matches[parts]
        assert matches[pattern] is expr
        return matches[A] * rx.const(2)

    check(
        rewrite_call(pattern, rewriter, before),
        dataflow("g = R.multiply(x, R.const(2))\nh = R.add(y, g)", "h"),
        params='x: R.Tensor((4,)), y: R.Tensor((4,))',
    )  # fmt: skip


def test_the_second_alternative_is_tried_where_the_rewriter_leaves_the_first() -> None:
    anything = is_op("relax.add")(wildcard(), wildcard())
    with_zeros = is_op("relax.add")(A, is_op("relax.zeros")(wildcard()))
    before = function(dataflow('a = R.ones((4,), "int32")\nb = R.zeros((4,), "int32")\n'
                               "c = R.add(a, b)", "c"), "")  # fmt: skip

    def rewriter(expr: rx.Expr, matches: Matches) -> rx.Expr:
        assert isinstance(expr, rx.Call)
        if anything in matches:
            assert matches[anything] is expr
            return expr
        return matches[A]

    after = rewrite_call(anything | with_zeros, rewriter, before)
    check(after, dataflow('c = R.ones((4,), "int32")', "c"), params="")


def test_a_tuple_that_is_returned_is_matched_as_if_it_were_bound() -> None:
    pattern = is_tuple([is_op("relax.exp")(A), is_op("relax.abs")(A)])
    before = function("y = R.exp(x)\nz = R.abs(x)\nreturn (y, z)")
    sinfo = rx.TupleStructInfo([R.Tensor((4,), "float32")] * 2)

    def rewriter(expr: rx.Expr, matches: Matches) -> rx.Expr:
        return R.call_pure_packed("both", matches[A], sinfo_args=sinfo)

    body = (
        'z = R.call_pure_packed("both", x, sinfo_args=R.Tuple('
        + ", ".join(['R.Tensor((4,), "float32")'] * 2)
        + "))"
    )
    check(rewrite_call(pattern, rewriter, before), f"{body}\nreturn z")
    inside = function(dataflow("y = R.exp(x)\nz = R.abs(x)\no = (y, z)", "o"))
    check(rewrite_call(pattern, rewriter, inside), dataflow(body, "z"))


@pytest.mark.rule("OPT-11")
def test_equal_calls_that_a_rewriter_makes_are_made_once() -> None:
    begin = wildcard()
    pattern = is_op("relax.strided_slice")(A, wildcard(), begin, wildcard(), wildcard())
    slices = (
        "a = R.strided_slice(x, [0], [0], [2], [1])\nb = R.strided_slice(x, [0], [2], [4], [1])"
    )

    def rewriter(expr: rx.Expr, matches: Matches) -> rx.Expr:
        start = matches[begin].fields[0].value.value  # type: ignore[attr-defined]
        return rx.op.split(matches[A], 2)[start // 2]

    after = rewrite_call(pattern, rewriter, function(dataflow(f"{slices}\nc = R.add(a, b)", "c")))
    check(after, dataflow("s = R.split(x, 2)\na = s[0]\nb = s[1]\nc = R.add(a, b)", "c"))


@pytest.mark.rule("OPT-11")
@pytest.mark.parametrize(
    ("end", "pure", "once"),
    [
        ("z = R.add(a, b)\nreturn z", True, True),
        ("return (a, b)", True, False),
        ("return (x, a)", True, True),
        ('_ = R.call_packed("change", a)\nz = R.add(a, b)\nreturn z', False, False),
        ('u = R.exp(b)\n_ = R.call_packed("change", a)\nz = R.add(u, u)\nreturn z', False, True),
    ],
)
def test_two_values_that_a_mutation_could_tell_apart_stay_two(end, pure, once) -> None:
    before = function(f"a = R.sqrt(x)\nb = R.sqrt(x)\n{end}", pure=pure)
    after = rewrite_call(is_op("relax.sqrt")(A), lambda _, m: R.rsqrt(m[A]), before)
    lines = "a = R.rsqrt(x)\nb = R.rsqrt(x)\n"
    if "b" not in end.replace("R.call_packed", ""):
        lines = "a = R.rsqrt(x)\n"
    elif once:
        lines, end = "a = R.rsqrt(x)\n", end.replace("a, b", "a, a").replace("exp(b)", "exp(a)")
    check(after, lines + end, pure=pure)


@pytest.mark.rule("OPT-4")
def test_nothing_is_matched_across_an_impure_call() -> None:
    pattern = is_op("relax.exp")(is_op("relax.abs")(A))
    params = 'x: R.Tensor((4,), "float32")'

    def rewriter(expr: rx.Expr, matches: Matches) -> rx.Expr:
        return R.sqrt(matches[A])

    across = function(
        'a = R.abs(x)\n_ = R.print(format="here")\nb = R.exp(a)\nreturn b', pure=False
    )
    assert rewrite_call(pattern, rewriter, across) is across
    beside = function(
        '_ = R.print(format="here")\na = R.abs(x)\nb = R.exp(a)\nreturn b', pure=False
    )
    after = rewrite_call(pattern, rewriter, beside)
    check(after, '_ = R.print(format="here")\nb = R.sqrt(x)\nreturn b', params=params, pure=False)


@pytest.mark.rule("OPT-4")
def test_an_impure_call_is_never_rewritten() -> None:
    before = function('a = R.call_packed("f", x, sinfo_args=R.Tensor((4,)))\nreturn a', pure=False)
    assert rewrite_call(wildcard(), lambda e, m: R.exp(e), before) is before


@pytest.mark.rule("OPT-3")
@pytest.mark.parametrize("where", ["ordinary", "dataflow"])
def test_what_may_fail_keeps_its_order_outside_dataflow_blocks(where: str) -> None:
    fails = 'R.call_pure_packed("may_fail", {}, sinfo_args=R.Tensor((4,), "float32"))'
    body = f"a = {fails.format('x')}\nb = {fails.format('y')}\nc = R.exp(a)\nd = R.add(b, c)"
    params = 'x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")'
    text = dataflow(body, "d") if where == "dataflow" else f"{body}\nreturn d"
    before = function(text, params)
    pattern = is_op("relax.exp")(is_op("relax.call_pure_packed")(wildcard(), A))
    after = rewrite_call(pattern, lambda _, m: R.exp(m[A]), before)
    assert (after is before) is (where == "ordinary")
    unhindered = f"b = {fails.format('y')}\na = {fails.format('x')}\nc = R.exp(a)\nd = R.add(b, c)"
    after = rewrite_call(
        pattern, lambda _, m: R.exp(m[A]), function(f"{unhindered}\nreturn d", params)
    )
    check(after, f"b = {fails.format('y')}\nc = R.exp(x)\nd = R.add(b, c)\nreturn d", params=params)


@pytest.mark.rule("OPT-8")
def test_what_nothing_uses_goes_only_where_rewriting_made_it_so() -> None:
    fails = 'R.call_pure_packed("may_fail", x, sinfo_args=R.Tensor((4,), "float32"))'
    before = function(f"unused = {fails}\na = R.abs(x)\nb = R.exp(a)\nreturn b")
    pattern = is_op("relax.exp")(is_op("relax.abs")(A))
    after = rewrite_call(pattern, lambda _, m: R.sqrt(m[A]), before)
    check(after, f"unused = {fails}\nb = R.sqrt(x)\nreturn b")


@pytest.mark.rule("OPT-8")
def test_an_input_that_a_replacement_does_without_is_computed_if_that_may_fail() -> None:
    fails = 'R.call_pure_packed("may_fail", x, sinfo_args=R.Tensor((4,), "float32"))'
    pattern = is_op("relax.multiply")(A, is_const())

    def rewriter(expr: rx.Expr, matches: Matches) -> rx.Expr:
        return R.zeros((4,), "float32")

    zeros = 'R.zeros((4,), "float32")'
    for value, stays in [(fails, True), ("R.exp(x)", False)]:
        lines = f"a = {value}\n" if stays else ""
        ordinary = function(f"a = {value}\nb = R.multiply(a, R.const(0.0))\nreturn b")
        check(rewrite_call(pattern, rewriter, ordinary), f"{lines}b = {zeros}\nreturn b")
        inside = function(dataflow(f"a = {value}\nb = R.multiply(a, R.const(0.0))", "b"))
        check(rewrite_call(pattern, rewriter, inside), dataflow(f"b = {zeros}", "b"))


@pytest.mark.rule("OPT-3", "OPT-8")
@pytest.mark.parametrize(
    ("inside", "used", "stays"),
    [
        ("R.exp(x)", True, True),
        ("R.exp(x)", False, False),
        ("may_fail", True, True),
        ("may_fail", False, True),
    ],
)
def test_branches_keep_what_may_fail_in_them(inside: str, used: bool, stays: bool) -> None:
    params = 'x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")'
    fails = 'R.call_pure_packed("may_fail", x, sinfo_args=R.Tensor((4,), "float32"))'
    inner = f"unused = {fails if inside == 'may_fail' else inside}"
    branches = f"if c:\n    {inner}\n    w = R.abs(x)\nelse:\n    w = R.sin(x)"
    result = "return (y, w)" if used else "return y"
    after = rewrite_call(SUM, double, function(f"{branches}\ny = R.add(x, x)\n{result}", params))
    kept = f"{branches}\n" if stays else ""
    two = 'y = R.multiply(x, R.const(2.0, "float32"))'
    check(after, f"{kept}{two}\n{result}", params=params)


@pytest.mark.rule("OPT-9")
def test_a_cast_is_neither_matched_through_nor_dropped() -> None:
    params = "x: R.Tensor"
    cast = 'n = T.int64()\nc = R.match_cast(a, R.Tensor((n,), "float32"))'
    before = function(f"a = R.abs(x)\n{cast}\nb = R.exp(c)\nreturn b", params)
    pattern = is_op("relax.exp")(is_op("relax.abs")(A))
    assert rewrite_call(pattern, lambda _, m: R.sqrt(m[A]), before) is before
    after = rewrite_call(is_op("relax.abs")(A), lambda _, m: R.negative(m[A]), before)
    check(after, f"a = R.negative(x)\n{cast}\nb = R.exp(c)\nreturn b", params=params)


def test_branches_and_inner_functions_are_rewritten() -> None:
    params = 'x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")'
    before = function("if c:\n    y = R.add(x, x)\nelse:\n    y = R.exp(x)\nreturn y", params)
    two = 'R.multiply(x, R.const(2.0, "float32"))'
    check(
        rewrite_call(SUM, double, before),
        f"if c:\n    y = {two}\nelse:\n    y = R.exp(x)\nreturn y",
        params=params,
    )
    inner = (
        '@R.function(private=True)\ndef f(x: R.Tensor((4,), "float32")):\n    y = {}\n'
        "    return y\nz = f(x)\nreturn z"
    )
    after = rewrite_call(SUM, double, function(inner.format("R.add(x, x)")))
    check(after, inner.format(two))


@pytest.mark.rule("OPT-14")
def test_what_is_known_better_is_known_better_by_what_uses_it() -> None:
    before = function("y = R.exp(x)\nz = R.abs(y)\nreturn z", "x: R.Tensor(ndim=1)")
    sinfo = R.Tensor((4,), "float32")

    def rewriter(expr: rx.Expr, matches: Matches) -> rx.Expr:
        return R.call_pure_packed("f", matches[A], sinfo_args=sinfo)

    after = rewrite_call(is_op("relax.exp")(A), rewriter, before)
    assert after.struct_info.ret == sinfo
    check(
        after,
        'y = R.call_pure_packed("f", x, sinfo_args=R.Tensor((4,), "float32"))\n'
        "z = R.abs(y)\nreturn z",
        params="x: R.Tensor(ndim=1)",
    )


@pytest.mark.rule("OPT-14")
def test_what_is_known_less_is_checked() -> None:
    before = function("y = R.exp(x)\nz = R.abs(y)\nreturn z")

    def rewriter(expr: rx.Expr, matches: Matches) -> rx.Expr:
        return R.call_pure_packed("f", matches[A], sinfo_args=R.Tensor(ndim=1))

    check(
        rewrite_call(is_op("relax.exp")(A), rewriter, before),
        'y = R.match_cast(R.call_pure_packed("f", x, sinfo_args=R.Tensor(ndim=1)), '
        'R.Tensor((4,), "float32"))\nz = R.abs(y)\nreturn z',
    )


def test_a_rewriter_may_give_a_sequence() -> None:
    y, z = rx.Var("y"), rx.Var("z")

    def rewriter(expr: rx.Expr, matches: Matches) -> rx.Expr:
        bindings = [rx.VarBinding(y, R.abs(matches[A])), rx.VarBinding(z, rx.op.exp(y))]
        return rx.SeqExpr([rx.BindingBlock(bindings)], z)

    pattern = is_op("relax.sqrt")(A)
    for before, after in [
        ("a = R.sqrt(x)\nreturn a", "b = R.abs(x)\na = R.exp(b)\nreturn a"),
        (dataflow("a = R.sqrt(x)", "a"), dataflow("b = R.abs(x)\na = R.exp(b)", "a")),
    ]:
        check(rewrite_call(pattern, rewriter, function(before)), after)


@pytest.mark.rule("WF-2b")
def test_a_function_that_a_rewriter_gives_again_has_variables_of_its_own() -> None:
    param = rx.Var("q", R.Tensor((4,), "float32"))
    literal = rx.Function([param], R.abs(param))
    pattern = is_op("relax.exp")(A)
    for wrap in (dataflow, lambda body, output: f"{body}\nreturn {output}"):
        before = function(wrap("a = R.exp(x)\nb = R.exp(a)", "b"))
        after = rewrite_call(pattern, lambda _, m: rx.Call(literal, [m[A]]), before)
        assert well_formed(after)
        functions = [b.value for b in after.body.blocks[0].bindings][::2]
        assert all(isinstance(f, rx.Function) for f in functions)
        assert len({f.params[0] for f in functions}) == 2  # type: ignore[attr-defined]


FOREIGN = rx.Var("foreign", R.Tensor((4,), "float32"))


@pytest.mark.parametrize(
    ("give", "rule", "message"),
    [
        (lambda m: R.astype(m[A], "int32"), "OPT-14", 'y is R.Tensor((4,), dtype="float32")'),
        (lambda m: R.concat((m[A], m[A])), "OPT-14", "its replacement R.Tensor((8,)"),
        (lambda m: R.exp(FOREIGN), "SC-5", "uses foreign, which is not in scope there"),
        (lambda m: rx.Call(rx.ExternFunc("f"), [m[A]]), "OPT-1", "makes an impure call"),
        (lambda m: R.exp(R.abs(R.sqrt(m[A]))), None, "the rewriting does not end: y was rewritten"),
    ],
)
@pytest.mark.parametrize("kind", ["ordinary", "dataflow"])
def test_a_replacement_that_does_not_fit_is_refused_where_it_would_stand(give, rule, message, kind):
    text = "y = R.exp(x)\nreturn y"
    if kind == "dataflow":
        text = dataflow("y = R.exp(x)", "y")
    before = function(text)
    with pytest.raises(TransformError) as caught:
        rewrite_call(is_op("relax.exp")(A), lambda _, m: give(m), before)
    assert message in str(caught.value)
    assert caught.value.diagnostic.rule == rule
    assert "y = R.exp(x)" in str(caught.value)


@pytest.mark.rule("WF-7c")
def test_a_replacement_branches_outside_dataflow_blocks_only() -> None:
    def rewriter(expr: rx.Expr, matches: Matches) -> rx.Expr:
        return rx.If(rx.const(True), R.sin(matches[A]), R.cos(matches[A]))

    pattern = is_op("relax.exp")(A)
    after = rewrite_call(pattern, rewriter, function("y = R.exp(x)\nreturn y"))
    check(after, "if R.const(True):\n    y = R.sin(x)\nelse:\n    y = R.cos(x)\nreturn y")
    with pytest.raises(TransformError, match="branches, inside a dataflow block"):
        rewrite_call(pattern, rewriter, function(dataflow("y = R.exp(x)", "y")))


@pytest.mark.rule("SC-5")
def test_a_shape_variable_of_a_pattern_is_not_in_scope() -> None:
    n = tir.Var("n", "int64")
    pattern = wildcard().has_struct_info(R.Tensor([n])) & is_op("relax.exp")(A)
    with pytest.raises(TransformError, match="uses n, which is not in scope"):
        rewrite_call(
            pattern, lambda _, m: R.zeros((n,), "float32"), function("y = R.exp(x)\nreturn y")
        )


@pytest.mark.rule("WF-1b")
def test_what_another_dataflow_block_keeps_to_itself_is_not_in_scope() -> None:
    before = function(
        "with R.dataflow():\n    a = R.sin(x)\n    b = R.cos(a)\n    R.output(b)\n"
        "c = R.exp(b)\nreturn c"
    )
    a, b = (binding.var for binding in before.body.blocks[0].bindings)
    pattern = is_op("relax.exp")(A)
    with pytest.raises(TransformError, match="uses a, which is not in scope"):
        rewrite_call(pattern, lambda _, m: R.abs(a), before)
    assert well_formed(rewrite_call(pattern, lambda _, m: R.abs(b), before))


def test_rules_that_undo_each_other_do_not_go_on_forever() -> None:
    exp, log = is_op("relax.exp")(A), is_op("relax.log")(A)

    def swap(expr: rx.Expr, matches: Matches) -> rx.Expr:
        return R.log(matches[A]) if exp in matches else R.exp(matches[A])

    with pytest.raises(TransformError, match="the rewriting does not end"):
        rewrite_call(exp | log, swap, function("y = R.exp(x)\nreturn y"))
    with pytest.raises(TransformError, match="the rewriting does not end"):
        rewrite_call(
            is_op("relax.add")(A, B),
            lambda _, m: R.add(m[B], m[A]),
            function("y = R.add(x, R.const(1.0))\nreturn y"),
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((is_op("relax.exp"), double, 3), "a function is rewritten, found int"),
        ((3, double, None), "expected a pattern, found int 3"),
        ((SUM, "double", None), "a rewriter is a function, found 'double'"),
        ((SUM, lambda e, m: 3, None), "a rewriter returns an expression or None, found int 3"),
    ],
)
def test_misuse_is_refused(arguments: tuple[object, object, object], message: str) -> None:
    pattern, rewriter, func = arguments
    func = function("y = R.add(x, x)\nreturn y") if func is None else func
    with pytest.raises(MisuseError) as caught:
        rewrite_call(pattern, rewriter, func)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_what_a_rewriter_raises_goes_on_as_it_is() -> None:
    def rewriter(expr: rx.Expr, matches: Matches) -> rx.Expr:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        rewrite_call(SUM, rewriter, function("y = R.add(x, x)\nreturn y"))


def test_a_chain_of_thousands_of_bindings() -> None:
    value: rx.Expr = rx.Var("x", R.Tensor((4,), "float32"))
    param, bindings = value, []
    for i in range(3000):
        call = R.add(value, value)
        value = rx.DataflowVar(f"v{i}", call.struct_info)
        bindings.append(rx.VarBinding(value, call))
    out = rx.Var("out", value.struct_info)
    bindings.append(rx.VarBinding(out, R.exp(value)))
    body = rx.SeqExpr([rx.DataflowBlock(bindings)], out)
    after = rewrite_call(SUM, double, rx.Function([param], body))
    found = [b.value.op.name for b in after.body.blocks[0].bindings]
    assert found == ["relax.multiply"] * 3000 + ["relax.exp"]


def test_a_replacement_that_moves_through_a_long_chain() -> None:
    count = 1000
    lines = ["v0 = R.abs(x)", *(f"v{i} = R.negative(v{i - 1})" for i in range(1, count))]
    before = function(dataflow("\n".join([*lines, f"w = R.exp(v{count - 1})"]), "w"))
    pattern = is_op("relax.exp")(is_op("relax.negative")(A))
    after = rewrite_call(pattern, lambda _, m: R.negative(R.exp(m[A])), before)
    found = [b.value.op.name for b in after.body.blocks[0].bindings]
    assert found == ["relax.abs", "relax.exp", *["relax.negative"] * (count - 1)]


def test_a_function_of_a_module_keeps_its_calls_of_the_others() -> None:
    mod = module("""
    @T.prim_func
    def k(a: f32[4], b: f32[4]):
        for i in range(4):
            b[i] = a[i] * T.float32(2)

    @private
    def g(x: f32[4], names: R.Object) -> f32[4]:
        return x

    def main(x: f32[4]) -> f32[4]:
        y = R.add(x, x)
        z = R.call_tir(cls.k, (y,), out_sinfo=f32[4])
        w = cls.g(z, (R.str("tir"), cls.k))
        return w
    """)
    mod["main"] = rewrite_call(SUM, double, mod["main"])
    assert well_formed(mod)
    text = mod["main"].script()
    assert "R.multiply" in text
    assert "R.add" not in text
    assert "call_tir" in text
