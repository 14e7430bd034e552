"""The matcher beside a search by brute force, and how much work it does."""

from collections.abc import Iterator

from hypothesis import given, settings, strategies as st

from relaxpy import relax as rx
from relaxpy.ir.op import Op
from relaxpy.relax import dpl
from relaxpy.relax.dpl import is_op, is_tuple, is_var, wildcard
from relaxpy.script import relax as R
from tests.counting import calls

INFO = rx.TensorStructInfo((4,), "float32")
LEAVES = tuple(rx.Var(name, INFO) for name in "xyz")
OPS = ("relax.add", "relax.subtract", "relax.multiply")
Bound = dict[dpl.DFPattern, rx.Expr]


def binary(name: str, a: rx.Expr, b: rx.Expr) -> rx.Call:
    return rx.Call(Op(name), (a, b), struct_info=INFO)


VALUES: dict[rx.Var, rx.Expr] = {}


def named(value: rx.Expr) -> rx.Var:
    """A new variable that is bound to a value, by a name that a parameter has, too."""
    var = rx.Var("y", INFO)
    VALUES[var] = value
    return var


def value_of(expr: rx.Expr) -> rx.Expr:
    while isinstance(expr, rx.Var) and expr in VALUES:
        expr = VALUES[expr]
    return expr


EXPRS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(binary, st.sampled_from(OPS), inner, inner),
        st.lists(inner, max_size=3).map(rx.Tuple),
        inner.map(named),
    ),
    max_leaves=6,
)


@st.composite
def patterns(draw: st.DrawFn) -> dpl.DFPattern:
    """A pattern whose parts may occur several times."""
    made: list[dpl.DFPattern] = [wildcard(), wildcard(), is_var("x"), is_var("y")]
    for _ in range(draw(st.integers(1, 6))):
        part = st.sampled_from(made)
        kind = draw(st.integers(0, 8))
        if kind <= 2:
            made.append(is_op(OPS[kind])(draw(part), draw(part)))
        elif kind == 3:
            made.append(draw(part) | draw(part))
        elif kind == 4:
            made.append(draw(part) & draw(part))
        elif kind == 5:
            made.append(is_tuple(draw(st.lists(part, max_size=3))))
        elif kind == 6:
            made.append(is_tuple(draw(st.lists(part, max_size=3)), unordered=True))
        elif kind == 7:
            made.append(draw(part).has_shape([4]))
        else:
            made.append(~draw(part))
    return made[-1]


def one_value(a: object, b: object) -> bool:
    """Whether two expressions are one, or tuples of the very same fields."""
    if isinstance(a, rx.Tuple) and isinstance(b, rx.Tuple):
        return len(a.fields) == len(b.fields) and all(map(one_value, a.fields, b.fields))
    return a is b


def brute(pattern: dpl.DFPattern, expr: rx.Expr, bound: Bound) -> Iterator[Bound]:
    """Every way in which a pattern matches, each with what all patterns in it stand for."""
    given = expr
    if not isinstance(pattern, dpl.VarPattern):
        expr = value_of(expr)
    if pattern in bound:
        if one_value(bound[pattern], expr):
            yield bound
        return
    bound = {**bound, pattern: expr}
    match pattern:
        case dpl.WildcardPattern():
            yield bound
        case dpl.VarPattern(name=name):
            if isinstance(expr, rx.Var) and expr.name_hint == name:
                yield bound
        case dpl.OrPattern(left=left, right=right):
            yield from brute(left, given, bound)
            yield from brute(right, given, bound)
        case dpl.AndPattern(left=left, right=right):
            for found in brute(left, given, bound):
                yield from brute(right, given, found)
        case dpl.NotPattern(reject=reject):
            if next(brute(reject, given, bound), None) is None:
                yield bound
        case dpl.ShapePattern(pattern=inner):  # all tensors here have the shape that is asked for
            if isinstance(expr, (rx.Var, rx.Call)):
                yield from brute(inner, given, bound)
        case dpl.CallPattern(op=dpl.ExprPattern(expr=op), args=args):
            if isinstance(expr, rx.Call) and expr.op is op:
                yield from each(args, expr.args, bound)
                if op.name != "relax.subtract":
                    yield from each(args, expr.args[::-1], bound)
        case dpl.TuplePattern(fields=fields):
            if isinstance(expr, rx.Tuple) and len(expr.fields) == len(fields):
                yield from each(fields, expr.fields, bound)
        case dpl.UnorderedTuplePattern(fields=fields):
            if isinstance(expr, rx.Tuple) and len(expr.fields) == len(fields):
                yield from unordered(fields, expr.fields, bound)


def each(
    patterns: tuple[dpl.DFPattern, ...], exprs: tuple[rx.Expr, ...], bound: Bound
) -> Iterator[Bound]:
    if not patterns:
        yield bound
        return
    for found in brute(patterns[0], exprs[0], bound):
        yield from each(patterns[1:], exprs[1:], found)


def unordered(
    patterns: tuple[dpl.DFPattern, ...], exprs: tuple[rx.Expr, ...], bound: Bound
) -> Iterator[Bound]:
    if not patterns:
        yield bound
    for i in range(len(exprs)):
        for found in brute(patterns[0], exprs[i], bound):
            yield from unordered(patterns[1:], exprs[:i] + exprs[i + 1 :], found)


def operands(bound: Bound) -> Bound:
    """What is bound, operators left out."""
    return {p: e for p, e in bound.items() if isinstance(e, rx.Expr)}


@given(patterns(), EXPRS)
@settings(max_examples=400, deadline=None)
def test_a_match_is_found_exactly_if_there_is_one(pattern: dpl.DFPattern, expr: rx.Expr) -> None:
    found = pattern.extract_matched_expr(expr, VALUES)
    ways = list(brute(pattern, expr, {}))
    assert (found is not None) == bool(ways)
    if found is not None:
        assert operands(found) in ways


def chain_of_sums(depth: int) -> tuple[dpl.DFPattern, rx.Expr]:
    """A chain of sums, and a pattern of it that fails in the innermost operand."""
    pattern: dpl.DFPattern = is_op("relax.exp")(wildcard())
    expr: rx.Expr = LEAVES[0]
    for _ in range(depth):
        pattern = is_op("relax.add")(pattern, wildcard())
        expr = binary("relax.add", expr, expr)
    return pattern, expr


def test_sums_in_either_order_cost_no_more_than_their_number() -> None:
    work = {}
    for depth in (50, 100, 200):
        pattern, expr = chain_of_sums(depth)
        assert not pattern.match(expr)
        work[depth] = calls(lambda p=pattern, e=expr: p.match(e))
    assert work[200] < 2.5 * work[100] < 6.5 * work[50]


def test_alternatives_cost_no_more_than_their_number() -> None:
    def work(depth: int) -> int:
        pattern: dpl.DFPattern = is_op("relax.exp")(wildcard())
        expr: rx.Expr = LEAVES[0]
        for _ in range(depth):
            pattern = is_op("relax.subtract")(pattern | pattern, wildcard())
            expr = binary("relax.subtract", expr, LEAVES[1])
        assert not pattern.match(expr)
        return calls(lambda: pattern.match(expr))

    assert work(160) < 2.5 * work(80) < 6.5 * work(40)


def test_tuples_in_any_order_are_matched_without_a_search_through_permutations() -> None:
    fields = [wildcard() for _ in range(11)]
    pattern = is_tuple([*fields, is_op("relax.exp")(wildcard())], unordered=True)
    expr = rx.Tuple([LEAVES[i % 3] for i in range(12)])
    assert not pattern.match(expr)
    assert calls(lambda: pattern.match(expr)) < 50_000
    last = rx.Tuple([*expr.fields[:11], R.exp(LEAVES[0])])
    assert pattern.match(last)


def test_patterns_and_expressions_may_be_deep() -> None:
    pattern: dpl.DFPattern = wildcard()
    values: dict[rx.Var, rx.Expr] = {}
    var = LEAVES[0]
    for index in range(10_000):
        pattern = is_op("relax.add")(pattern, wildcard())
        value = binary("relax.add", var, LEAVES[1])
        var = rx.Var(f"v{index}", INFO)
        values[var] = value
    assert pattern.match(var, values)
    assert not is_op("relax.exp")(pattern).match(var, values)
    assert pattern.dup().match(var, values)
    alias = var
    for index in range(10_000):
        named = rx.Var(f"a{index}", INFO)
        values[named], alias = alias, named
    assert pattern.match(alias, values)
