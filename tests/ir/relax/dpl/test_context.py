"""Patterns and constraints between them against whole blocks."""

from collections.abc import Iterator
from itertools import permutations

import pytest
from hypothesis import given, settings, strategies as st

from relaxpy import relax as rx
from relaxpy.errors import MisuseError
from relaxpy.ir.op import Op
from relaxpy.relax import dpl
from relaxpy.script import relax as R
from tests.counting import calls

INFO = rx.TensorStructInfo((4,), "float32")


def block(text: str) -> rx.DataflowBlock:
    """A block of lines `name = op operand ...`; other names are parameters."""
    known: dict[str, rx.Var] = {}
    bindings = []
    for line in text.strip().splitlines():
        name, _, value = line.strip().partition(" = ")
        op, *operands = value.split()
        args = [known.setdefault(o, rx.Var(o, INFO)) for o in operands]
        known[name] = rx.DataflowVar(name, INFO)
        if op == "is":
            bindings.append(rx.VarBinding(known[name], args[0]))
        else:
            call = rx.Call(Op(f"relax.{op}"), args, struct_info=INFO)
            bindings.append(rx.VarBinding(known[name], call))
    return rx.DataflowBlock(bindings)


def a(op: str) -> dpl.DFPattern:
    """The pattern of a call of an operator, whatever its operands."""
    return dpl.is_op(f"relax.{op}")(varg_default_wildcard=True)


def names(found: dict[dpl.DFPattern, rx.Expr] | None, *patterns: dpl.DFPattern) -> list[str]:
    assert found is not None
    return [found[p].name_hint for p in patterns]  # type: ignore[attr-defined]


CHAIN = block("a = exp x\nb = abs a\nc = sin b")
DIAMOND = block("a = exp x\nb = abs a\nc = sin a\nd = add b c")
SMALL_DIAMOND = block("a = abs x\nb = add a a")
PARALLEL = block("a = abs x\nb = abs x\nc = add a b")


def test_used_by_is_told_of_parameters_too() -> None:
    with dpl.PatternContext() as ctx:
        first, second = dpl.is_var("x"), dpl.wildcard()
        first ^ second
    assert names(ctx.match_dfb(CHAIN), first, second) == ["x", "a"]


def test_a_chain_is_found_link_by_link() -> None:
    with dpl.PatternContext() as ctx:
        chain = a("exp") >> a("abs") >> a("sin")
    assert names(ctx.match_dfb(CHAIN), *chain) == ["a", "b", "c"]
    with dpl.PatternContext() as ctx:
        a("exp") >> a("sin")
    assert ctx.match_dfb(CHAIN) is None
    with dpl.PatternContext() as ctx:
        a("abs") ^ a("exp")
    assert ctx.match_dfb(CHAIN) is None


def test_a_diamond_has_no_only_user() -> None:
    with dpl.PatternContext() as ctx:
        fork, left, right, join = a("exp"), a("abs"), a("sin"), a("add")
        fork.fork_to(left, right)
        left >> join
        right >> join
    assert names(ctx.match_dfb(DIAMOND), fork, left, right, join) == ["a", "b", "c", "d"]
    with dpl.PatternContext() as ctx:
        fork, left, right, join = a("exp"), a("abs"), a("sin"), a("add")
        fork >> left
        fork >> right
    assert ctx.match_dfb(DIAMOND) is None


def test_different_patterns_are_different_variables() -> None:
    with dpl.PatternContext() as ctx:
        fork, join = a("abs"), a("add")
        fork.only_used_by(join, index=0)
        fork.only_used_by(join, index=1)
    assert ctx.match_dfb(SMALL_DIAMOND)
    assert ctx.match_dfb(PARALLEL) is None
    with dpl.PatternContext() as ctx:
        join = a("add")
        a("abs") >> join
        a("abs") >> join
    assert ctx.match_dfb(PARALLEL)
    assert ctx.match_dfb(SMALL_DIAMOND) is None


def test_an_index_says_which_operand() -> None:
    with dpl.PatternContext() as ctx:
        a("sin").used_by(a("add"), 1)
    assert ctx.match_dfb(DIAMOND)
    with dpl.PatternContext() as ctx:
        a("sin").used_by(a("add"), 0)
    assert ctx.match_dfb(DIAMOND) is None


def test_operands_in_tuples_are_counted_one_by_one() -> None:
    x, y = rx.Var("x", INFO), rx.Var("y", INFO)
    both = R.concat((x, y))
    found = rx.DataflowBlock([rx.VarBinding(rx.DataflowVar("c", both.struct_info), both)])
    for name, index, holds in [("x", 0, True), ("y", 1, True), ("y", 0, False), ("x", -1, True)]:
        with dpl.PatternContext() as ctx:
            dpl.is_var(name).used_by(a("concat"), index)
        assert (ctx.match_dfb(found) is not None) is holds


def test_the_arguments_of_call_patterns_are_part_of_what_is_found() -> None:
    with dpl.PatternContext() as ctx:
        data = dpl.wildcard()
        weights = [dpl.wildcard() for _ in range(3)]
        products = [dpl.is_op("relax.matmul")(data, weight) for weight in weights]
    found = ctx.match_dfb(block("p = matmul x a\nq = matmul x b\nr = matmul x c"))
    assert names(found, data, *weights, *products) == ["x", "a", "b", "c", "p", "q", "r"]
    other = block("p = matmul y a\nq = matmul x b\nr = matmul x c")
    assert ctx.match_dfb(other) is None


def test_without_add_constraint_arguments_are_not_told() -> None:
    with dpl.PatternContext() as ctx:
        operand = dpl.wildcard()
        call = dpl.is_op("relax.exp")(operand, add_constraint=False)
        call ^ a("abs")
    found = ctx.match_dfb(CHAIN)
    assert found is not None
    assert operand not in found
    assert names(found, call) == ["a"]


def test_an_argument_that_is_not_a_variable_stands_for_itself() -> None:
    x, one = rx.Var("x", INFO), rx.const(1.0)
    total = R.add(x, one)
    found = rx.DataflowBlock([rx.VarBinding(rx.DataflowVar("s", INFO), total)])
    with dpl.PatternContext() as ctx:
        operand, literal = dpl.wildcard(), dpl.is_const()
        dpl.is_op("relax.add")(operand, literal)
    match = ctx.match_dfb(found)
    assert match is not None
    assert match[operand] is x
    assert match[literal] is one


def test_another_name_of_a_variable_is_that_variable() -> None:
    found = block("a = exp x\nb = is a\nc = abs b")
    with dpl.PatternContext() as ctx:
        chain = a("exp") >> a("abs")
    assert names(ctx.match_dfb(found), *chain) == ["a", "c"]


def test_fields_of_tuples_are_used_like_others() -> None:
    x = rx.Var("x", INFO)
    halves = R.split(x, 2)
    pair = rx.DataflowVar("pair", halves.struct_info)
    first, second = (
        rx.VarBinding(rx.DataflowVar(f"f{i}", R.Tensor((2,), "float32")), rx.TupleGetItem(pair, i))
        for i in (0, 1)
    )
    total = R.add(first.var, second.var)
    found = rx.DataflowBlock(
        [
            rx.VarBinding(pair, halves),
            first,
            second,
            rx.VarBinding(rx.DataflowVar("s", total.struct_info), total),
        ]
    )
    with dpl.PatternContext() as ctx:
        split = a("split")
        left = dpl.TupleGetItemPattern(split, 0).has_shape([2])
        right = dpl.TupleGetItemPattern(split, 1).has_shape([2])
        split.fork_to(left, right)
        add = dpl.is_op("relax.add")(left, right)
        left >> add
        right >> add
    assert names(ctx.match_dfb(found), split, left, right, add) == ["pair", "f0", "f1", "s"]


def test_a_pattern_and_what_it_restricts_are_one_place() -> None:
    with dpl.PatternContext() as ctx:
        call = dpl.is_op("relax.exp")(dpl.wildcard())
        call.has_shape([4]) >> a("abs")
    assert ctx.match_dfb(CHAIN)
    with dpl.PatternContext() as ctx:
        dpl.is_op("relax.exp")(dpl.wildcard()).has_shape([5]) >> a("abs")
    assert ctx.match_dfb(CHAIN) is None


def test_chains_are_copied_with_their_constraints() -> None:
    twice = block("a = exp x\nb = abs a\nc = exp x\nd = abs c")
    with dpl.PatternContext() as ctx:
        one = a("exp") >> a("abs")
        other = one.dup()
        assert set(one.patterns).isdisjoint(other.patterns)
        dpl.is_var("x").fork_to(one, other)
    found = ctx.match_dfb(twice)
    assert sorted(names(found, *one, *other)) == ["a", "b", "c", "d"]
    assert ctx.match_dfb(CHAIN) is None
    with dpl.PatternContext() as ctx:
        dpl.is_var("y").fork_to(a("exp") >> a("abs"), a("exp") >> a("abs"))
    assert ctx.match_dfb(twice) is None


def test_copied_calls_keep_their_arguments() -> None:
    with dpl.PatternContext() as ctx:
        inner = dpl.is_op("relax.exp")(dpl.wildcard())
        copy = inner.dup()
        inner ^ a("abs")
    found = ctx.match_dfb(block("a = exp x\nb = abs a\nc = exp y"))
    assert names(found, inner, copy, copy.args[0]) == ["a", "c", "y"]


def test_contexts_nest_and_may_build_on_each_other() -> None:
    exp, absolute, sine = a("exp"), a("abs"), a("sin")
    with dpl.PatternContext() as outer:
        exp >> absolute
        with dpl.PatternContext() as inner:
            absolute >> sine
            assert dpl.PatternContext.current() is inner
        with dpl.PatternContext(incremental=True) as whole:
            absolute >> sine
        assert dpl.PatternContext.current() is outer
    rest = block("b = abs x\nc = sin b")
    assert names(outer.match_dfb(CHAIN), exp, absolute) == ["a", "b"]
    assert names(whole.match_dfb(CHAIN), exp, absolute, sine) == ["a", "b", "c"]
    assert inner.match_dfb(rest)
    assert outer.match_dfb(rest) is None
    assert whole.match_dfb(rest) is None


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ((4, 3), (4, 3), True),
        (("n", 3), ("n", 3), True),
        ((4, 3), (1, 3), False),
        (("n", 3), ("m", 3), False),
        (None, (4, 3), False),
    ],
)
def test_patterns_of_one_shape(left: object, right: object, same: bool) -> None:
    @R.function
    def both(x: R.Tensor(left, "float32"), y: R.Tensor(right, "float32")):
        with R.dataflow():
            z = R.add(x, y)
            R.output(z)
        return z

    with dpl.PatternContext() as ctx:
        lhs, rhs = dpl.wildcard(), dpl.wildcard()
        dpl.is_op("relax.add")(lhs, rhs)
        lhs.same_shape_as(rhs)
    assert (ctx.match_dfb(both.body.blocks[0]) is not None) is same


def test_a_context_without_constraints_matches_nothing() -> None:
    with dpl.PatternContext() as ctx:
        a("exp")
    assert ctx.match_dfb(CHAIN) is None


def test_of_two_alternatives_one_is_matched() -> None:
    with dpl.PatternContext() as ctx:
        one, other = dpl.is_op("relax.exp")(dpl.wildcard()), dpl.is_op("relax.cos")(dpl.wildcard())
        either = one | other
        either >> a("abs")
    found = ctx.match_dfb(CHAIN)
    assert found is not None
    assert names(found, either, one) == ["a", "a"]
    assert other not in found


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: a("exp") >> a("abs"), "no PatternContext is open"),
        (lambda: dpl.wildcard().same_shape_as(dpl.wildcard()), "no PatternContext is open"),
        (lambda: dpl.PatternContext.current(), "no PatternContext is open"),
        (lambda: dpl.PatternSeq([]), "a chain has at least one pattern"),
        (
            lambda: dpl.PatternContext().match_dfb(CHAIN.bindings[0]),
            "matched against a DataflowBlock",
        ),
        (lambda: dpl.PatternContext(incremental=1), "incremental is True or False"),
    ],
)
def test_misuse_is_refused(make: object, message: str) -> None:
    with pytest.raises(MisuseError) as caught:
        make()  # type: ignore[operator]
    assert message in str(caught.value)


@pytest.mark.parametrize(("index", "message"), [("0", "an index is an integer"), (-2, "from 0")])
def test_operands_are_numbered_from_zero(index: object, message: str) -> None:
    with dpl.PatternContext(), pytest.raises(MisuseError, match=message):
        a("exp").used_by(a("abs"), index)  # type: ignore[arg-type]


UNARY = ("exp", "abs", "sin")


@st.composite
def graphs(draw: st.DrawFn) -> str:
    lines, known = [], ["x", "y"]
    for i in range(draw(st.integers(1, 6))):
        operand = st.sampled_from(known)
        if draw(st.booleans()):
            lines.append(f"v{i} = add {draw(operand)} {draw(operand)}")
        else:
            lines.append(f"v{i} = {draw(st.sampled_from(UNARY))} {draw(operand)}")
        known.append(f"v{i}")
    return "\n".join(lines)


def holds(
    found: rx.DataflowBlock, edges: list[tuple[int, int, bool, int]], chosen: tuple[rx.Var, ...]
) -> bool:
    """Whether variables stand to each other as edges say, by the definition."""
    values = {b.var: b.value for b in found.bindings}
    for used, user, only, index in edges:
        value = values.get(chosen[user])
        users = {v for v, e in values.items() if chosen[used] in e.args}  # type: ignore[union-attr]
        if not isinstance(value, rx.Call) or chosen[used] not in value.args:
            return False
        if only and users != {chosen[user]}:
            return False
        if index >= 0 and (index >= len(value.args) or value.args[index] is not chosen[used]):
            return False
    return True


def matches_by_brute_force(
    found: rx.DataflowBlock, kinds: list[str], edges: list[tuple[int, int, bool, int]]
) -> Iterator[tuple[rx.Var, ...]]:
    values = {b.var: b.value for b in found.bindings}
    used = [arg for value in values.values() for arg in value.args]  # type: ignore[union-attr]
    variables = list(dict.fromkeys([*used, *values]))
    for chosen in permutations(variables, len(kinds)):
        fits = all(
            kind == "any" or (v in values and values[v].op is Op(f"relax.{kind}"))  # type: ignore[union-attr]
            for kind, v in zip(kinds, chosen, strict=True)
        )
        if fits and holds(found, edges, chosen):
            yield chosen


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_match_is_found_exactly_if_there_is_one(data: st.DataObject) -> None:
    found = block(data.draw(graphs()))
    count = data.draw(st.integers(2, 4))
    kinds = [data.draw(st.sampled_from(["any", "add", *UNARY])) for _ in range(count)]
    edges = []
    with dpl.PatternContext() as ctx:
        nodes = [dpl.wildcard() if kind == "any" else a(kind) for kind in kinds]
        for user in range(1, count):
            used = data.draw(st.integers(0, user - 1))
            only = data.draw(st.booleans())
            index = data.draw(st.integers(-1, 1))
            edges.append((used, user, only, index))
            (nodes[used].only_used_by if only else nodes[used].used_by)(nodes[user], index)
    expected = set(matches_by_brute_force(found, kinds, edges))
    match = ctx.match_dfb(found)
    assert (match is not None) == bool(expected)
    if match is not None:
        assert tuple(match[node] for node in nodes) in expected


def test_what_fails_by_itself_is_not_tried_with_everything_else() -> None:
    many = block(
        "\n".join(f"v{i} = matmul x w{i}" for i in range(60)) + "\nz = exp v0\nu = abs z\nt = sin x"
    )
    with dpl.PatternContext() as ctx:
        data = dpl.wildcard()
        for _ in range(4):
            dpl.is_op("relax.matmul")(data, dpl.wildcard())
        a("abs") >> a("sin")  # nowhere in the block, and has nothing to do with the rest
    assert ctx.match_dfb(many) is None
    assert calls(lambda: ctx.match_dfb(many)) < 100_000


def test_long_blocks_are_matched_in_linear_work() -> None:
    def work(count: int) -> int:
        lines = ["v0 = exp x", *(f"v{i} = abs v{i - 1}" for i in range(1, count))]
        found = block("\n".join([*lines, f"w = sin v{count - 1}"]))
        with dpl.PatternContext() as ctx:
            last = a("abs") >> a("sin")
        assert names(ctx.match_dfb(found), *last) == [f"v{count - 1}", "w"]
        return calls(lambda: ctx.match_dfb(found))

    assert work(10_000) < 25 * work(500)
