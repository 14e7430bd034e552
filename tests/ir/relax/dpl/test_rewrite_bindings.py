"""rewrite_bindings: several variables at once, where a context matches."""

import pytest

from relaxpy import relax as rx
from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.analysis import well_formed
from relaxpy.relax.dpl import DFPattern, PatternContext, is_op, rewrite_bindings, wildcard
from relaxpy.script import from_source, relax as R
from tests.counting import calls

Matches = dict[DFPattern, rx.Var]
Bindings = dict[rx.Var, rx.Expr]
PARAMS = ", ".join(
    [
        'x: R.Tensor((2, 8, 6), "float32")',
        'y: R.Tensor((2, 8, 6), "float32")',
        *(f'w{i}: R.Tensor((6, 6), "float32")' for i in range(6)),
    ]
)


def function(body: str, params: str = PARAMS, output: str = "out") -> rx.Function:
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    found: rx.Function = from_source(
        f"@R.function(private=True)\ndef main({params}):\n    with R.dataflow():\n{lines}\n"
        f"        R.output({output})\n    return {output}"
    )
    return found


def check(after: rx.Function, body: str, params: str = PARAMS) -> None:
    assert_structural_equal(after, function(body, params))
    assert well_formed(after)


with PatternContext() as THREE:
    DATA = wildcard()
    WEIGHTS = [wildcard() for _ in range(3)]
    PRODUCTS = [is_op("relax.matmul")(DATA, weight) for weight in WEIGHTS]


def combined(matches: Matches, bindings: Bindings) -> Bindings:
    """One product with the weights side by side in place of three."""
    data, weights = matches[DATA], [matches[w] for w in WEIGHTS]
    width = weights[0].struct_info.shape[1]
    product = R.matmul(data, R.concat(weights, axis=1))
    return {
        matches[p]: R.strided_slice(product, axes=[2], begin=[width * i], end=[width * (i + 1)])
        for i, p in enumerate(PRODUCTS)
    }


def together(data: str, weights: str, *names: str) -> str:
    slices = [
        f"{name} = R.strided_slice(p, axes=[2], begin=[{6 * i}], end=[{6 * i + 6}])"
        for i, name in enumerate(names)
    ]
    return "\n".join([f"c = R.concat({weights}, axis=1)", f"p = R.matmul({data}, c)", *slices])


def test_every_match_is_rewritten() -> None:
    before = function(
        "a = R.matmul(x, w0)\nb = R.matmul(x, w1)\nc = R.matmul(x, w2)\n"
        "d = R.matmul(y, w3)\ne = R.matmul(y, w4)\nf = R.matmul(y, w5)\nout = (a, b, c, d, e, f)"
    )
    first = together("x", "(w0, w1, w2)", "a", "b", "u")
    second = together("y", "(w3, w4, w5)", "d", "e", "f")
    check(rewrite_bindings(THREE, combined, before), f"{first}\n{second}\nout = (a, b, u, d, e, f)")


def test_new_values_stand_where_all_that_they_need_is_there() -> None:
    before = function(
        "t = R.permute_dims(w0)\na = R.matmul(x, t)\ne = R.exp(a)\nu = R.permute_dims(w1)\n"
        "b = R.matmul(x, u)\nv = R.permute_dims(w2)\nc = R.matmul(x, v)\nout = (a, b, c, e)"
    )
    body = together("x", "(t, u, v)", "a", "b", "d")
    check(
        rewrite_bindings(THREE, combined, before),
        "t = R.permute_dims(w0)\nu = R.permute_dims(w1)\nv = R.permute_dims(w2)\n"
        f"{body}\ne = R.exp(a)\nout = (a, b, d, e)",
    )


def test_what_is_cast_is_matched_as_the_variable_that_it_is() -> None:
    params = "x: R.Tensor, w0: R.Tensor, w1: R.Tensor, w2: R.Tensor"
    casts = 'd = R.match_cast(x, R.Tensor((2, 8, 6), "float32"))\n' + "\n".join(
        f'v{i} = R.match_cast(w{i}, R.Tensor((6, 6), "float32"))' for i in range(3)
    )
    before = function(
        f"{casts}\na = R.matmul(d, v0)\nb = R.matmul(d, v1)\nc = R.matmul(d, v2)\nout = (a, b, c)",
        params,
    )
    body = together("d", "(v0, v1, v2)", "a", "b", "e")
    check(rewrite_bindings(THREE, combined, before), f"{casts}\n{body}\nout = (a, b, e)", params)


@pytest.mark.rule("SC-14")
def test_what_mentions_a_size_stays_behind_the_cast_that_binds_it() -> None:
    params = 'x: R.Tensor((2, 8, 6), "float32"), u: R.Tensor, v: R.Tensor, w: R.Tensor'
    casts = [f'{n}0 = R.match_cast({n}, R.Tensor((6, 6), "float32"))' for n in "uvw"]
    before = function(
        f"{casts[0]}\na = R.matmul(x, u0)\n"
        "n = T.int64()\nd = R.match_cast(a, R.Tensor((2, n, 6)))\n"
        f"z = R.zeros((n,), 'float32')\n{casts[1]}\n{casts[2]}\nb = R.matmul(x, v0)\n"
        "c = R.matmul(x, w0)\nout = (d, b, c, z)",
        params,
    )
    body = together("x", "(u0, v0, w0)", "a", "b", "c0")
    first, *rest = body.replace("c0 = ", "e = ").splitlines()
    lines = [*casts, first, *rest, "n = T.int64()", "d = R.match_cast(a, R.Tensor((2, n, 6)))"]
    lines += ["z = R.zeros((n,), 'float32')", "out = (d, b, e, z)"]
    check(rewrite_bindings(THREE, combined, before), "\n".join(lines), params)


def test_the_rewriter_sees_the_values_around_a_match() -> None:
    with PatternContext() as ctx:
        first = is_op("relax.exp")(wildcard())
        second = is_op("relax.abs")(first)
        first >> second
    seen: list[rx.Expr] = []

    def rewriter(matches: Matches, bindings: Bindings) -> Bindings:
        seen.append(bindings[matches[first]])
        return {matches[second]: R.sqrt(bindings[matches[first]].args[0])}  # type: ignore[attr-defined]

    before = function("a = R.exp(x)\nout = R.abs(a)")
    check(rewrite_bindings(ctx, rewriter, before), "out = R.sqrt(x)")
    assert seen == [before.body.blocks[0].bindings[0].value]


def test_bindings_outside_dataflow_blocks_are_rewritten_too() -> None:
    def ordinary(body: str) -> rx.Function:
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        found: rx.Function = from_source(f"@R.function(private=True)\ndef main({PARAMS}):\n{lines}")
        return found

    products = "a = R.matmul(x, w0)\n{}b = R.matmul(x, w1)\nc = R.matmul(x, w2)\n"
    body = together("x", "(w0, w1, w2)", "a", "b", "d")
    after = rewrite_bindings(THREE, combined, ordinary(products.format("") + "return (a, b, c)"))
    assert_structural_equal(after, ordinary(f"{body}\nreturn (a, b, d)"))
    across = products.format('_ = R.print(format="here")\n') + "return (a, b, c)"
    apart = from_source(
        f"@R.function(private=True, pure=False)\ndef main({PARAMS}):\n"
        + "\n".join(f"    {line}" for line in across.splitlines())
    )
    assert rewrite_bindings(THREE, combined, apart) is apart


@pytest.mark.rule("OPT-3")
def test_what_may_fail_is_not_moved_past_what_may_outside_dataflow_blocks() -> None:
    with PatternContext() as ctx:
        a, b = wildcard(), wildcard()
        first = is_op("relax.call_pure_packed")(wildcard(), a)
        second = is_op("relax.call_pure_packed")(wildcard(), b)
        total = is_op("relax.add")(first, second)

    def rewriter(matches: Matches, bindings: Bindings) -> Bindings:
        return {matches[total]: R.add(matches[second], matches[first])}

    call = 'R.call_pure_packed("{}", x, sinfo_args=R.Tensor((4,), "float32"))'
    lines = [
        f"p = {call.format('f')}",
        "u = R.match_cast(y, R.Tensor((4,)))",
        f"q = {call.format('h')}",
        "z = R.add(p, q)",
    ]
    text = "\n".join(f"    {line}" for line in [*lines, "return (z, u)"])
    before = from_source(
        f"@R.function(private=True)\ndef main(x: R.Tensor((4,)), y: R.Tensor):\n{text}"
    )
    assert rewrite_bindings(ctx, rewriter, before) is before


@pytest.mark.parametrize(
    "give", [lambda m, b: {}, lambda m, b: None, lambda m, b: {v: b[v] for v in b}]
)
def test_a_rewriter_that_replaces_nothing_gives_the_very_function(give) -> None:
    before = function(
        "a = R.matmul(x, w0)\nb = R.matmul(x, w1)\nc = R.matmul(x, w2)\nout = (a, b, c)"
    )
    assert rewrite_bindings(THREE, give, before) is before


FOREIGN = rx.Var("foreign", R.Tensor((2, 8, 6), "float32"))
with PatternContext() as EXP:
    INPUT = wildcard()
    CALL = is_op("relax.exp")(INPUT)


@pytest.mark.parametrize(
    ("give", "kind", "message"),
    [
        (lambda m: 3, MisuseError, "returns a dict from variables to expressions, found int 3"),
        (lambda m: {m[CALL]: 3}, MisuseError, "returns new values of variables"),
        (lambda m: {FOREIGN: m[INPUT]}, MisuseError, "foreign is not bound among the bindings"),
        (lambda m: {m[INPUT]: m[CALL]}, MisuseError, "x is not bound among the bindings"),
        (lambda m: {m[CALL]: R.sum(m[INPUT])}, TransformError, "a is R.Tensor((2, 8, 6)"),
        (lambda m: {m[CALL]: FOREIGN}, TransformError, "uses foreign, which is not in scope"),
        (
            lambda m: {m[CALL]: R.abs(m[CALL])},
            TransformError,
            "a new value is computed from a, which gets a new value",
        ),
        (lambda m: {m[CALL]: R.exp(R.abs(m[INPUT]))}, TransformError, "the rewriting does not end"),
    ],
)
def test_new_values_that_do_not_fit_are_refused(give, kind, message) -> None:
    before = function("a = R.exp(x)\nout = R.abs(a)")
    with pytest.raises(kind) as caught:
        rewrite_bindings(EXP, lambda m, _: give(m), before)  # type: ignore[arg-type,return-value]
    assert message in str(caught.value)


def test_a_match_whose_new_values_would_need_themselves_is_left_alone() -> None:
    before = function(
        "a = R.matmul(x, w0)\nb = R.sum(a, axis=[0, 1])\nv = R.add(w1, b)\nc = R.matmul(x, v)\n"
        "d = R.matmul(x, w2)\nout = (a, c, d)"
    )
    assert rewrite_bindings(THREE, combined, before) is before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((THREE, combined, 3), "a function is rewritten, found int"),
        ((wildcard(), combined, None), "expected a PatternContext, found WildcardPattern"),
        ((THREE, 3, None), "a rewriter is a function, found 3"),
    ],
)
def test_misuse_is_refused(arguments: tuple[object, object, object], message: str) -> None:
    ctx, rewriter, func = arguments
    func = function("out = R.exp(x)") if func is None else func
    with pytest.raises(MisuseError) as caught:
        rewrite_bindings(ctx, rewriter, func)  # type: ignore[arg-type]
    assert message in str(caught.value)


def layers(count: int) -> rx.Function:
    lines = []
    for i in range(count):
        data = "x" if not i else f"s{i - 1}"
        lines += [f"{n}{i} = R.matmul({data}, w{k})" for k, n in enumerate("abc")]
        lines += [f"t{i} = R.add(a{i}, b{i})", f"s{i} = R.add(t{i}, c{i})"]
    return function("\n".join([*lines, f"out = R.exp(s{count - 1})"]))


def test_many_layers_are_rewritten_in_linear_work() -> None:
    work = {}
    for count in (25, 50):
        before = layers(count)
        work[count] = calls(lambda b=before: rewrite_bindings(THREE, combined, b))
        after = rewrite_bindings(THREE, combined, before)
        names = [b.value.op.name for b in after.body.blocks[0].bindings]
        assert names.count("relax.matmul") == count
    assert work[50] < 2.3 * work[25]
