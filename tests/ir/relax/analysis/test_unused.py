"""Bindings that nothing uses, and what depends on nothing known at run time only."""

import pytest
from hypothesis import given, strategies as st

from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import computable_at_compile_time
from relaxpy.ir.relax.analysis.variables import udchain
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_function
from relaxpy.ir.relax.rewrite.map_bindings import remove_all_unused
from relaxpy.script import from_source
from tests.ir.relax.graphs import (
    BOOL,
    bind,
    bindings,
    block,
    called,
    cast,
    dataflow,
    function,
    local,
    pure,
    seq,
    show,
    size,
    var,
)
from tests.ir.relax.sinfos import shape, tensor


@pytest.fixture
def x() -> rx.Var:
    return var("x", tensor(2))


def test_chains_of_unused_bindings_go(x: rx.Var) -> None:
    a, b, c = local("a"), local("b"), var("c")
    func = function([x], seq(dataflow(bind(a, pure("f", x)), bind(b, pure("g", a)), bind(c, x)), c))
    after = remove_all_unused(normalize_function(func))
    expected = function([x], seq(dataflow(bind(c, x)), c))
    assert_structural_equal(after, normalize_function(expected))
    assert check_well_formed(after, normal_form=True) == []


def test_what_is_used_is_shared(x: rx.Var) -> None:
    a, b = var("a"), var("b")
    func = normalize_function(
        function([x], seq(block(bind(a, pure("f", x)), bind(b, pure("g", a))), b))
    )
    assert remove_all_unused(func) is func


@pytest.mark.rule("NF-8", "NF-11")
def test_blocks_that_an_empty_one_kept_apart_are_joined(x: rx.Var) -> None:
    a, b, c = var("a"), var("b"), var("c")
    func = function(
        [x],
        seq(
            block(bind(a, pure("f", x))),
            dataflow(bind(b, pure("g", x))),
            block(bind(c, pure("h", a))),
            c,
        ),
    )
    after = remove_all_unused(normalize_function(func))
    assert [type(b).__name__ for b in after.body.blocks] == ["BindingBlock"]  # type: ignore[attr-defined]
    assert called(after) == ["f", "h"]


def test_effects_and_what_they_need_stay(x: rx.Var) -> None:
    a, b = var("a"), var("b")
    func = function([x], seq(block(bind(a, pure("f", x)), bind(b, show(a))), x), is_pure=False)
    func = normalize_function(func)
    assert remove_all_unused(func) is func


def test_casts_stay(x: rx.Var) -> None:
    m, y = size("m"), var("y")
    func = normalize_function(
        function([x], seq(block(cast(y, x, tensor(m)), cast(None, x, tensor(2))), x))
    )
    assert remove_all_unused(func) is func


def test_a_shape_that_only_an_annotation_mentions_is_used() -> None:
    s, t, p = var("s", shape(2)), var("t"), var("p", shape(2))
    y = var("y", rx.TensorStructInfo(s, "float32"))  # type: ignore[arg-type]
    func = function(
        [p], seq(block(bind(s, p), bind(t, p), bind(y, pure("f", sinfo=y.struct_info))), y)
    )
    assert [b.var.name_hint for b in bindings(remove_all_unused(func)) if b.var] == ["s", "y"]


def test_branches_and_local_functions_are_cleaned(x: rx.Var) -> None:
    c, r = var("c", BOOL), var("r")
    inside = seq(block(bind(var("a"), pure("f", x))), x)
    g, p = var("g"), var("p", tensor(2))
    inner = function([p], seq(block(bind(var("b"), pure("h", p))), p))
    main = function(
        [x, c], seq(block(bind(g, inner), bind(r, rx.If(c, inside, x))), rx.Tuple((g, r)))
    )
    after = remove_all_unused(normalize_function(main))
    func, choice = (b.value for b in bindings(after))
    assert isinstance(choice, rx.If)
    assert bindings(func) == bindings(choice.true_branch) == []
    assert check_well_formed(after, normal_form=True) == []


@pytest.mark.rule("PU-15")
def test_an_unused_local_function_goes_even_if_impure_and_recursive(x: rx.Var) -> None:
    f, p = var("f"), var("p", tensor(2))
    inner = function(
        [p], seq(block(bind(var("a"), show(p)), bind(var("b"), f(p))), p), tensor(2), is_pure=False
    )
    func = normalize_function(function([x], seq(block(bind(f, inner)), x)))
    assert bindings(remove_all_unused(func)) == []


def test_a_part_of_a_function_can_be_cleaned(x: rx.Var) -> None:
    part = seq(block(bind(var("a"), pure("f", x))), x)
    assert remove_all_unused(part).blocks == ()
    assert remove_all_unused(x) is x


@given(st.lists(st.lists(st.integers(0, 20), max_size=2), min_size=1, max_size=12), st.data())
def test_exactly_what_the_result_depends_on_is_left(
    uses: list[list[int]], data: st.DataObject
) -> None:
    x = var("x", tensor(2))
    made: list[rx.Var] = [x]
    sources: dict[rx.Var, set[rx.Var]] = {x: set()}
    blocks: list[rx.BindingBlock] = []
    for i, chosen in enumerate(uses):
        args = [made[k % len(made)] for k in chosen]
        y = var(f"y{i}")
        sources[y] = set(args).union(*(sources[a] for a in args)) if args else set()
        blocks.append((dataflow if data.draw(st.booleans()) else block)(bind(y, pure("f", *args))))
        made.append(y)
    result = made[data.draw(st.integers(0, len(made) - 1))]
    func = function([x], rx.SeqExpr(blocks, result))  # type: ignore[arg-type]
    left = [b.var for b in bindings(remove_all_unused(func))]
    assert left == [y for y in made[1:] if y is result or y in sources[result]]


def test_users_of_variables_in_a_block(x: rx.Var) -> None:
    bb = BlockBuilder()
    with bb.function("f", x):
        with bb.dataflow():
            a = bb.emit(pure("f", x))
            b = bb.emit(pure("g", a, x))
            out = bb.emit_output(b)
        bb.emit_func_output(out)
    chain = udchain(bb.get()["f"].body.blocks[0])  # type: ignore[attr-defined]
    assert {k: set(v) for k, v in chain.items()} == {x: {a, b}, a: {b}, b: {out}, out: set()}


COMPUTABLE = [
    ("", "C = R.add(A, B)", ""),
    ("1", "", "B"),
    ("1", "C = R.add(B, B); D = R.add(A, C); E = R.add(C, B)", "B C E"),
    (
        "1",
        "S = R.match_cast(B, R.Tensor((m,))); C = R.zeros((m,), 'int8'); D = R.zeros((n,), 'int8')",
        "B S C",
    ),
    ("1", "R.match_cast(B, R.Tensor((m,))); C = R.add(B, B); D = R.zeros((m,), 'int8')", "B C"),
    ("0", "C = R.add(A, B); E = (C, A)", "A B C E"),
    ("1", "C = R.print(B); D = R.add(B, B)", "B D"),
]


@pytest.mark.parametrize(("inputs", "body", "names"), COMPUTABLE)
def test_what_depends_on_parameters_behind_the_inputs_alone(inputs, body, names) -> None:
    attr = f"R.func_attr({{'num_input': {inputs}}})" if inputs else "pass"
    lines = [attr, "n = T.int64()", "m = T.int64()", *filter(None, body.split("; ")), "return A"]
    params = "A: R.Tensor(('n',)), B: R.Tensor(ndim=1, dtype='float32')"
    text = f"@R.function(pure=False)\ndef f({params}):\n"
    func = from_source(text + "\n".join(f"    {line}" for line in lines if line != "pass"))
    assert " ".join(v.name_hint for v in computable_at_compile_time(func)) == names
