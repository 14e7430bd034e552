"""The matcher: patterns against expressions, by a search with its own stack."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar, assert_never, cast

import numpy as np

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import preorder
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.dpl import pattern as dp
from relaxpy.ir.relax.known import equal_shapes
from relaxpy.ir.relax.nodes.base_classes import StructInfo
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.shape_vars import free_shape_vars, map_params, substitute_info
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """A pattern, and the expression that it has to match."""

    pattern: dp.DFPattern
    expr: rx.Expr | Op


@dataclass(frozen=True, slots=True, eq=False)
class StructInfoGoal:
    """The struct info of a pattern, which has to be a base of that of an expression."""

    base: StructInfo
    actual: StructInfo


@dataclass(frozen=True, slots=True, eq=False)
class FieldsGoal:
    """Patterns, and the fields that they have to match in some order."""

    patterns: tuple[dp.DFPattern, ...]
    fields: tuple[rx.Expr, ...]


Subgoal: TypeAlias = Goal | StructInfoGoal | FieldsGoal
Alternatives: TypeAlias = Sequence[Sequence[Subgoal]]
Test: TypeAlias = Callable[[dp.DFPattern, rx.Expr | Op], bool]
ALWAYS: Alternatives = ((),)
NEVER: Alternatives = ()
_LITERALS = (rx.Constant, rx.PrimValue, rx.ShapeExpr, rx.StringImm, rx.DataTypeImm)


def _if(holds: bool) -> Alternatives:
    return ALWAYS if holds else NEVER


def alternatives(goal: Goal, expr: rx.Expr | Op, matches: Test) -> Alternatives:
    """The ways in which the pattern of a goal may match, each with the goals that are left then.

    `expr` is the value of the expression of the goal. `matches` decides whether a pattern that is
    rejected matches.
    """
    pattern, unresolved = cast("dp.AnyPattern", goal.pattern), goal.expr
    match pattern:
        case dp.WildcardPattern():
            return ALWAYS
        case dp.VarPattern(name=name):
            kind = rx.DataflowVar if isinstance(pattern, dp.DataflowVarPattern) else rx.Var
            return _if(isinstance(expr, kind) and _named(name, expr.name_hint))
        case dp.ExprPattern(expr=wanted):
            return _if(wanted is expr or is_same_program(wanted, expr))
        case dp.GlobalVarPattern(name=name):
            return _if(isinstance(expr, rx.GlobalVar) and _named(name, expr.name_hint))
        case dp.ExternFuncPattern(name=name):
            return _if(isinstance(expr, rx.ExternFunc) and _named(name, expr.global_symbol))
        case dp.ConstantPattern():
            return _if(isinstance(expr, rx.Constant))
        case dp.CallPattern():
            return _call(pattern, expr) if isinstance(expr, rx.Call) else NEVER
        case dp.FunctionPattern(params=params, body=body):
            if not isinstance(expr, rx.Function) or len(params) != len(expr.params):
                return NEVER
            return ((*map(Goal, params, expr.params), Goal(body, expr.body)),)
        case dp.TuplePattern(fields=fields):
            if not isinstance(expr, rx.Tuple) or len(fields) != len(expr.fields):
                return NEVER
            return (tuple(map(Goal, fields, expr.fields)),)
        case dp.UnorderedTuplePattern(fields=fields):
            if not isinstance(expr, rx.Tuple) or len(fields) != len(expr.fields):
                return NEVER
            return ((FieldsGoal(fields, expr.fields),),)
        case dp.TupleGetItemPattern(tuple=whole, index=index):
            if not isinstance(expr, rx.TupleGetItem) or index not in (None, expr.index):
                return NEVER
            return ((Goal(whole, expr.tuple_value),),)
        case dp.OrPattern(left=left, right=right):
            return ((Goal(left, unresolved),), (Goal(right, unresolved),))
        case dp.AndPattern(left=left, right=right):
            return ((Goal(left, unresolved), Goal(right, unresolved)),)
        case dp.NotPattern(reject=reject):
            return _if(not matches(reject, unresolved))
        case dp.StructInfoPattern(pattern=inner, struct_info=base):
            actual = _struct_info(expr)
            if actual is None:
                return NEVER
            return ((StructInfoGoal(base, actual), Goal(inner, unresolved)),)
        case dp.DataTypePattern(pattern=inner, dtype=dtype):
            actual = _struct_info(expr)
            fits = isinstance(actual, rx.TensorStructInfo) and actual.dtype == dtype
            return ((Goal(inner, unresolved),),) if fits else NEVER
        case dp.ShapePattern(pattern=inner, shape=shape):
            actual = _struct_info(expr)
            known = actual.get_shape() if isinstance(actual, rx.TensorStructInfo) else None
            fits = known is not None and equal_shapes(shape, known)
            return ((Goal(inner, unresolved),),) if fits else NEVER
        case dp.PrimArrPattern(fields=dims):
            return _if(isinstance(expr, rx.ShapeExpr) and equal_shapes(dims, expr.values))
        case dp.AttrPattern(pattern=inner, attrs=attrs):
            return ((Goal(inner, unresolved),),) if _has_attrs(expr, attrs) else NEVER
        case _:
            assert_never(pattern)


def _named(expected: str, name: str) -> bool:
    return expected in ("", name)


def is_same_program(a: Node, b: Node) -> bool:
    """True if two expressions are structurally equal, free variables by identity."""
    if type(a) is not type(b) or isinstance(a, Op):
        return False
    if (
        isinstance(a, rx.Call)
        and isinstance(b, rx.Call)
        and isinstance(a.op, Op)
        and a.op is not b.op
    ):
        return False
    return structural_equal(a, b)


def is_same_value(a: rx.Expr | Op, b: rx.Expr | Op) -> bool:
    """True if a pattern that occurs twice may match both: they are one node, or equal literals."""
    if a is b:
        return True
    if isinstance(a, rx.Tuple) and isinstance(b, rx.Tuple):
        return len(a.fields) == len(b.fields) and all(map(is_same_value, a.fields, b.fields))
    return isinstance(a, _LITERALS) and is_same_program(a, b)


def _call(pattern: dp.CallPattern, call: rx.Call) -> Alternatives:
    params, args = pattern.args, call.args
    if len(params) > len(args) or (len(params) < len(args) and not pattern.varg_default_wildcard):
        return NEVER
    callee = Goal(pattern.op, call.op)
    in_order = (callee, *map(Goal, params, args))  # without the additional arguments
    if len(args) == 2 and isinstance(call.op, Op) and call.op.record.commutative and params:
        return in_order, (callee, *map(Goal, params, reversed(args)))
    return (in_order,)


def _struct_info(expr: rx.Expr | Op) -> StructInfo | None:
    return None if isinstance(expr, Op) else expr.struct_info


def _has_attrs(expr: rx.Expr | Op, attrs: Mapping[str, object]) -> bool:
    if isinstance(expr, Op):
        return all(
            expr.has_attr(key) and _same_attr(value, expr.get_attr(key))
            for key, value in attrs.items()
        )
    if not isinstance(expr, (rx.Call, rx.BaseFunc)):
        return False
    known = expr.attrs
    return all(key in known and _same_attr(value, known[key]) for key, value in attrs.items())


def _same_attr(expected: object, actual: object) -> bool:
    """True if an attribute has the expected value; numbers of Python equal literals."""
    match expected, actual:
        case PrimExpr(), PrimExpr():
            return prove_equal(expected, actual) is True
        case (list() | tuple(), list() | tuple()):
            return len(expected) == len(actual) and all(map(_same_attr, expected, actual))
        case Mapping(), Mapping():
            same_keys = expected.keys() == actual.keys()
            return same_keys and all(_same_attr(v, actual[key]) for key, v in expected.items())
        case np.ndarray(), np.ndarray():
            return expected.dtype == actual.dtype and np.array_equal(expected, actual)
        case StructInfo(), _:
            return expected == actual
        case (Node(), Node()):
            return expected is actual or is_same_program(expected, actual)
        case (PrimExpr(), bool() | int() | float()) | (bool() | int() | float(), PrimExpr()):
            return bool(expected == actual)
        case (str(), str()):  # or a datatype, which is a str
            return expected == actual
        case _:
            return type(expected) is type(actual) and bool(expected == actual)


Value: TypeAlias = rx.Expr | Op
Matches: TypeAlias = dict[dp.DFPattern, Value]
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    """The attempt to match an independent pattern.

    Among the goals it follows those of the pattern: the first way to match them is enough. Among
    the choices it precedes those of the pattern: without any of these, the attempt has failed.
    """

    goal: Goal
    choices: int
    trail: int


@dataclass(slots=True, eq=False)
class _Choice:
    """The alternatives that were not tried yet, and the goals that follow any of them."""

    entry: tuple[dp.DFPattern, Value] | None
    untried: Iterator[Sequence[Subgoal]]
    rest: _Goals
    trail: int


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """The entries of an independent pattern and those below it."""

    entries: tuple[_Entry, ...]


# A linked list of goals, the next one first.
_Goals: TypeAlias = "tuple[Subgoal | _Attempt, _Goals] | None"
_Entry: TypeAlias = tuple[dp.DFPattern, Value] | StructInfoGoal | _Group
_FAILED: Final = object()


class Matcher:
    """Matches the patterns under `roots` against expressions.

    `bindings` has the expressions that patterns match so far, and `values` those that variables are
    bound to. Between two matches, `values` may grow by variables that no expression has mentioned
    yet. An independent pattern is tried once on each expression, so that only patterns that share
    subpatterns take a search of more than linear time.
    """

    def __init__(self, roots: Sequence[dp.DFPattern], values: Mapping[rx.Var, rx.Expr]) -> None:
        self.values = values
        self.bindings: Matches = {}
        self._nested_values: dict[rx.Var, rx.Expr] = {}
        self._sinfo_goals: list[StructInfoGoal] = []
        self._trail: list[_Entry] = []
        self._independent = independent_patterns(roots)
        self._has_sinfo = any(
            isinstance(p, dp.StructInfoPattern) for p in dp.all_subpatterns(roots)
        )
        self._known: dict[tuple[dp.DFPattern, Value], _Group | None] = {}

    def value_of(self, expr: Value) -> Value:
        """The value of an expression: of a variable its definition, of a sequence its result.

        Errors:
            MisuseError: variables are bound to each other in a cycle.
        """
        steps = 0
        while True:
            if isinstance(expr, rx.Var):
                value = self.values.get(expr)
                if value is None:
                    value = self._nested_values.get(expr)
                if value is None or value is expr:
                    return expr
                steps += 1
                if steps > len(self.values) + len(self._nested_values):
                    raise MisuseError(f"{expr.name_hint} is bound to itself by way of others")
                expr = value
            elif isinstance(expr, rx.SeqExpr):
                for block in expr.blocks:
                    for binding in block.bindings:
                        if isinstance(binding, rx.VarBinding):
                            self._nested_values[binding.var] = binding.value
                expr = expr.body
            else:
                return expr

    def solutions(self, goals: Sequence[Goal]) -> Generator[None]:
        """Try each way to satisfy all goals; pause at each, with the matches in `bindings`."""
        start = len(self._trail)
        choices: list[_Choice | _Attempt] = []
        pending: Any = None
        for goal in reversed(goals):
            pending = (goal, pending)
        try:
            while True:
                while pending is not None and pending is not _FAILED:
                    pending = self._step(pending, choices)
                if pending is None and self._sinfo_holds(start):
                    yield None
                pending = self._backtrack(choices)
                if pending is _FAILED:
                    return
        finally:
            self._undo(start)

    def holds(self, pattern: dp.DFPattern, expr: Value) -> bool:
        """True if a pattern matches with the present bindings, which do not change."""
        return self.first([Goal(pattern, expr)]) is not None

    def first(self, goals: Sequence[Goal]) -> Matches | None:
        """The bindings of the first way to satisfy all goals, or None if there is none."""
        search = self.solutions(goals)
        for _ in search:
            matches = dict(self.bindings)
            search.close()
            return matches
        return None

    def _step(self, goals: Any, choices: list[_Choice | _Attempt]) -> Any:
        """The goals that are left after a step towards the first one, or _FAILED."""
        goal, rest = goals
        match goal:
            case Goal():
                return self._match(goal, rest, choices)
            case StructInfoGoal():
                self._enter(goal)
                return rest if self._is_base(goal, self._images(), final=False) else _FAILED
            case FieldsGoal():
                return self._choose(None, self._assignments(goal), rest, choices)
            case _:
                if not self._sinfo_holds(goal.trail):
                    return _FAILED
                del choices[goal.choices :]
                group = _Group(tuple(self._trail[goal.trail :]))
                self._trail[goal.trail :] = (group,)
                self._known[goal.goal.pattern, goal.goal.expr] = group
                return rest

    def _match(self, goal: Goal, rest: Any, choices: list[_Choice | _Attempt]) -> Any:
        pattern, expr = goal.pattern, goal.expr
        if not (isinstance(pattern, dp.VarPattern) and isinstance(expr, rx.Var)):
            expr = self.value_of(expr)
        bound = self.bindings.get(pattern)
        if bound is not None:
            return rest if is_same_value(bound, expr) else _FAILED
        if pattern in self._independent:
            key = pattern, goal.expr
            if key in self._known:
                group = self._known[key]
                if group is None:
                    return _FAILED
                self._enter(group)
                return rest
            attempt = _Attempt(goal, len(choices), len(self._trail))
            choices.append(attempt)
            rest = (attempt, rest)
        return self._choose((pattern, expr), alternatives(goal, expr, self.holds), rest, choices)

    def _choose(
        self,
        entry: tuple[dp.DFPattern, Value] | None,
        ways: Alternatives,
        rest: Any,
        choices: list[_Choice | _Attempt],
    ) -> Any:
        """The goals of the first alternative and the rest; the others are left for later."""
        if not ways:
            return _FAILED
        if len(ways) > 1:
            choices.append(_Choice(entry, iter(ways[1:]), rest, len(self._trail)))
        return self._begin(entry, ways[0], rest)

    def _begin(
        self, entry: tuple[dp.DFPattern, Value] | None, way: Sequence[Subgoal], rest: Any
    ) -> Any:
        if entry is not None:
            self._enter(entry)
        for subgoal in reversed(way):
            rest = (subgoal, rest)
        return rest

    def _backtrack(self, choices: list[_Choice | _Attempt]) -> Any:
        """The goals of the next alternative that is left, or _FAILED."""
        while choices:
            last = choices[-1]
            self._undo(last.trail)
            if isinstance(last, _Attempt):
                self._known[last.goal.pattern, last.goal.expr] = None
            else:
                way = next(last.untried, None)
                if way is not None:
                    return self._begin(last.entry, way, last.rest)
            choices.pop()
        return _FAILED

    def _enter(self, entry: _Entry) -> None:
        self._trail.append(entry)
        for single in _flattened(entry):
            if isinstance(single, StructInfoGoal):
                self._sinfo_goals.append(single)
            else:
                self.bindings[single[0]] = single[1]

    def _undo(self, size: int) -> None:
        """Remove all entries after the first `size`."""
        while len(self._trail) > size:
            for single in _flattened(self._trail.pop()):
                if isinstance(single, StructInfoGoal):
                    self._sinfo_goals.pop()
                else:
                    del self.bindings[single[0]]

    def _sinfo_holds(self, trail: int) -> bool:
        """True if the goals for struct info that follow the first `trail` entries are satisfied."""
        if not self._has_sinfo:
            return True
        images = self._images()
        entered = (e for e in self._trail[trail:] if isinstance(e, StructInfoGoal))
        return all(self._is_base(goal, images, final=True) for goal in entered)

    def _images(self) -> Mapping[Any, Any]:
        """The dimensions that the shape variables of patterns match."""
        return map_params(
            [g.base for g in self._sinfo_goals], [g.actual for g in self._sinfo_goals]
        )

    def _is_base(self, goal: StructInfoGoal, images: Mapping[Any, Any], *, final: bool) -> bool:
        """True if a goal is satisfied, or may still be unless this is `final`."""
        if not final and any(var not in images for var in free_shape_vars(goal.base)):
            return True
        return is_base_of(substitute_info(goal.base, images), goal.actual)

    def _assignments(self, goal: FieldsGoal) -> Alternatives:
        """The fields that the first pattern may match if each of the others gets one that it fits.

        If all patterns are independent, one assignment of all of them is enough.
        """
        patterns, fields = goal.patterns, goal.fields
        fits = [[i for i, f in enumerate(fields) if self.holds(p, f)] for p in patterns]
        owner = assignment(fits)
        if owner is None:
            return ()
        if all(p in self._independent and p not in self.bindings for p in patterns):
            return (tuple(Goal(patterns[p], fields[f]) for f, p in sorted(owner.items())),)
        if not patterns:
            return ((),)
        return [
            (
                Goal(patterns[0], fields[i]),
                FieldsGoal(patterns[1:], (*fields[:i], *fields[i + 1 :])),
            )
            for i in fits[0]
        ]


def _flattened(entry: _Entry) -> Iterator[tuple[dp.DFPattern, Value] | StructInfoGoal]:
    """The single entries in an entry, in order."""
    inside = preorder([entry], lambda e: e.entries if isinstance(e, _Group) else ())
    return (single for single in inside if not isinstance(single, _Group))


def assignment(fits: Sequence[Sequence[T]]) -> dict[T, int] | None:
    """The pattern of each field, such that every pattern has a field that fits; None if impossible.

    Rule:
        Kuhn, Naval Research Logistics 2, 1955: augmenting paths in a bipartite graph.
    """
    owner: dict[T, int] = {}

    def assign(pattern: int, tried: set[T]) -> bool:
        for field in fits[pattern]:
            if field not in tried:
                tried.add(field)
                if field not in owner or assign(owner[field], tried):
                    owner[field] = pattern
                    return True
        return False

    return owner if all(assign(p, set()) for p in range(len(fits))) else None


def extract_matched_expr(
    pattern: dp.DFPattern, expr: object, var2val: Mapping[rx.Var, rx.Expr] | None = None
) -> Matches | None:
    """The expression that each subpattern matches; see `DFPattern.extract_matched_expr`.

    Errors:
        MisuseError (also TypeError): `expr` is not an expression, or `var2val` not a mapping.
    """
    if not isinstance(expr, (rx.Expr, Op)):
        raise unexpected(expr, "patterns match expressions")
    if not isinstance(var2val, Mapping | None):
        raise unexpected(
            var2val,
            "var2val is a table from variables to values",
            hint="relax.analysis.get_var2val(func) returns one",
        )
    return Matcher([pattern], var2val or {}).first([Goal(pattern, expr)])


def independent_patterns(roots: Sequence[dp.DFPattern]) -> frozenset[dp.DFPattern]:
    """The patterns under `roots` whose subpatterns and shape variables occur nowhere else.

    Whether such a pattern matches depends on the expression alone, and its first match is as good
    as any other. The roots count as used from outside.

    Rule:
        A pattern is independent if it dominates everything below it: every path from the roots
        leads through it. Dominators by Cooper, Harvey and Kennedy, A Simple, Fast Dominance
        Algorithm, 2001.
    """
    order = dp.all_subpatterns(roots)
    operands: dict[dp.DFPattern, list[object]] = {}
    for pattern in order:
        operands[pattern] = list(dp.subpatterns(pattern))
        if isinstance(pattern, dp.StructInfoPattern):
            operands[pattern] += free_shape_vars(pattern.struct_info)
    entry = object()
    users: dict[object, list[object]] = {root: [entry] for root in roots}
    for pattern in order:
        for operand in operands[pattern]:
            users.setdefault(operand, []).append(pattern)
    depth: dict[object, int] = {entry: 0}
    dominator: dict[object, object] = {entry: entry}
    for node in [*reversed(order), *users]:
        if node in depth:
            continue
        nearest, *others = users[node]
        for other in others:
            while nearest is not other:
                if depth[nearest] < depth[other]:
                    nearest, other = other, nearest
                nearest = dominator[nearest]
        dominator[node], depth[node] = nearest, depth[nearest] + 1
    independent = set()
    lowest: dict[object, int] = {}  # the least depth of a dominator of anything below
    for pattern in order:
        below = [min(depth[dominator[n]], lowest.get(n, depth[n])) for n in operands[pattern]]
        lowest[pattern] = min(below, default=depth[pattern])
        if lowest[pattern] >= depth[pattern]:
            independent.add(pattern)
    return frozenset(independent)


# The operator that is called, or for other expressions their class.
Head: TypeAlias = "Op | type[rx.Expr]"


def head_of(value: rx.Expr) -> Head:
    """The head of an expression."""
    if isinstance(value, rx.Call) and isinstance(value.op, Op):
        return value.op
    return type(value)


def heads(pattern: dp.DFPattern) -> frozenset[Head] | None:
    """The heads of the expressions that a pattern may match; None stands for any head."""
    match pattern:
        case dp.CallPattern(op=op):
            return _operators(op)
        case dp.TuplePattern() | dp.UnorderedTuplePattern():
            return frozenset((rx.Tuple,))
        case dp.TupleGetItemPattern():
            return frozenset((rx.TupleGetItem,))
        case dp.OrPattern(left=left, right=right):
            return _union(heads(left), heads(right))
        case dp.AndPattern(left=left, right=right):
            known = [side for side in (heads(left), heads(right)) if side is not None]
            return frozenset.intersection(*known) if known else None
        case dp.RestrictedPattern(pattern=inner):
            return heads(inner)
        case _:
            return None


def _operators(callee: dp.DFPattern) -> frozenset[Head] | None:
    """The operators that the pattern of a callee may match; None stands for any callee."""
    match callee:
        case dp.ExprPattern(expr=Op() as op):
            return frozenset((op,))
        case dp.OrPattern(left=left, right=right):
            return _union(_operators(left), _operators(right))
        case dp.AttrPattern(pattern=inner):
            return _operators(inner)
        case _:
            return None


def _union(left: frozenset[Head] | None, right: frozenset[Head] | None) -> frozenset[Head] | None:
    return None if left is None or right is None else left | right
