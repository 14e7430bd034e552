"""Patterns of Relay expressions, and rewriting by them: the ancestor of `relax.dpl`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import children, map_children, rename
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.analysis.scopes import Scopes, is_atom, same_scope
from relaxpy.ir.relay.infer.module import infer_module
from relaxpy.ir.relay.module import RelayModule, as_function
from relaxpy.ir.relay.op.registry import Op
from relaxpy.ir.relay.ty import TensorType, Type

_Binding: TypeAlias = "dict[DFPattern, rl.RelayExpr]"
MAX_ITERATIONS: Final = 100
"""The number of times that `rewrite` goes through a program."""


class DFPattern:
    """The base class of patterns; in a match each one stands for one expression."""

    __slots__ = ()

    def __call__(self, *args: DFPattern) -> CallPattern:
        """Return the pattern of a call of what this one matches; without operands, of any."""
        return CallPattern(self, args or None)

    def __or__(self, other: DFPattern) -> DFPattern:
        return AltPattern(self, other)

    def __add__(self, other: DFPattern) -> DFPattern:
        return is_op("add")(self, other)

    def __sub__(self, other: DFPattern) -> DFPattern:
        return is_op("subtract")(self, other)

    def __mul__(self, other: DFPattern) -> DFPattern:
        return is_op("multiply")(self, other)

    def __truediv__(self, other: DFPattern) -> DFPattern:
        return is_op("divide")(self, other)

    def has_attr(self, attrs: Mapping[str, object]) -> DFPattern:
        """Return this pattern, for calls and functions with these attributes."""
        wanted = Attrs(attrs)
        return Condition(self, lambda expr: _has_attrs(expr, wanted))

    def has_type(self, ty: Type) -> DFPattern:
        """Return this pattern, for expressions of this type."""
        return Condition(self, lambda expr: expr.checked_type_ == ty)

    def has_dtype(self, dtype: str) -> DFPattern:
        """Return this pattern, for tensors of this datatype."""
        wanted = DataType(dtype)
        return Condition(self, lambda expr: _tensor(expr).dtype == wanted)

    def has_shape(self, shape: Sequence[object]) -> DFPattern:
        """Return this pattern, for tensors of this shape."""
        wanted = tuple(shape)
        return Condition(self, lambda expr: _tensor(expr).shape == wanted)

    def optional(self, option: Callable[[DFPattern], DFPattern]) -> DFPattern:
        """Return the pattern `option(self)`, or this one where that does not match."""
        return AltPattern(option(self), self)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DFPattern:
        """Return the pattern of an expression that depends on what this one matches.

        All ways from it lead through expressions that match `path` to what `parent` matches.
        """
        return DominatorPattern(parent, wildcard() if path is None else path, self)

    @user_facing
    def match(self, expr: rl.RelayExpr) -> bool:
        """Return whether the pattern matches an expression as a whole."""
        return match_of(self, _checked(expr)) is not None

    @user_facing
    def rewrite(self, callback: Callable[..., rl.RelayExpr], expr: rl.RelayExpr) -> rl.RelayExpr:
        """Return an expression with `callback(expr, node_map)` for each match."""
        return rewrite(_Function(self, callback), expr)

    @user_facing
    def partition(
        self,
        expr: rl.RelayExpr,
        attrs: Mapping[str, object] | None = None,
        check: Callable[[rl.RelayExpr], bool] = lambda expr: True,
    ) -> rl.RelayExpr:
        """Return an expression in which what matches is a function that is called.

        The function has the attributes, and `PartitionedFromPattern`, the names of its operators.
        What wildcards and variables match becomes its operands. A match stays as it is if `check`
        rejects it, or if something else uses a part of it.
        """
        return _Partition(self, _checked(expr), dict(attrs or {}), check).result()


@dataclass(frozen=True, slots=True, eq=False)
class WildcardPattern(DFPattern):
    """Any expression."""


@dataclass(frozen=True, slots=True, eq=False)
class Condition(DFPattern):
    """What a pattern matches and a function accepts."""

    pattern: DFPattern
    accepts: Callable[[rl.RelayExpr], bool]


@dataclass(frozen=True, slots=True, eq=False)
class AltPattern(DFPattern):
    """What one of two patterns matches; the left one is tried first."""

    left: DFPattern
    right: DFPattern


@dataclass(frozen=True, slots=True, eq=False)
class CallPattern(DFPattern):
    """A call; without operands, of any number."""

    op: DFPattern
    args: tuple[DFPattern, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class DominatorPattern(DFPattern):
    """An expression that matches `child`, all ways from which lead to one that matches `parent`."""

    child: DFPattern
    path: DFPattern
    parent: DFPattern


@dataclass(frozen=True, slots=True, eq=False)
class PartsPattern(DFPattern):
    """An expression of one kind, whose parts match; None matches any parts."""

    kind: type[rl.RelayExpr]
    parts: tuple[DFPattern, ...] | None
    of: Callable[[Any], tuple[rl.RelayExpr, ...]] = field(default=lambda expr: ())


def wildcard() -> DFPattern:
    """Return the pattern of any expression."""
    return WildcardPattern()


def is_op(name: str) -> DFPattern:
    """Return the pattern of an operator."""
    op = Op.get(name)
    return Condition(wildcard(), lambda expr: expr is op)


def is_expr(expr: rl.RelayExpr) -> DFPattern:
    """Return the pattern of expressions that are structurally equal to one."""
    return Condition(wildcard(), lambda other: structural_equal(expr, other))


def is_var(name: str = "") -> DFPattern:
    """Return the pattern of variables, or of those with a name."""
    return Condition(
        wildcard(), lambda expr: isinstance(expr, rl.Var) and name in ("", expr.name_hint)
    )


def is_constant() -> DFPattern:
    """Return the pattern of constants."""
    return Condition(wildcard(), lambda expr: isinstance(expr, rl.Constant))


def is_tuple(fields: Sequence[DFPattern] | None = None) -> DFPattern:
    """Return the pattern of tuples, of any if there are no fields."""
    parts = None if fields is None else tuple(fields)
    return PartsPattern(rl.Tuple, parts, lambda expr: expr.fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> DFPattern:
    """Return the pattern of a projection, of any index if there is none."""
    pattern = PartsPattern(rl.TupleGetItem, (tuple_value,), lambda expr: (expr.tuple_value,))
    if index is None:
        return pattern
    return Condition(
        pattern, lambda expr: isinstance(expr, rl.TupleGetItem) and expr.index == index
    )


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> DFPattern:
    """Return the pattern of a branch."""
    return PartsPattern(
        rl.If,
        (cond, true_branch, false_branch),
        lambda expr: (expr.cond, expr.true_branch, expr.false_branch),
    )


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> DFPattern:
    """Return the pattern of a let."""
    return PartsPattern(rl.Let, (var, value, body), lambda expr: (expr.var, expr.value, expr.body))


def has_type(ty: Type, pattern: DFPattern | None = None) -> DFPattern:
    """Return a pattern, for expressions of this type."""
    return (pattern or wildcard()).has_type(ty)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DFPattern:
    """Return a pattern, for tensors of this datatype."""
    return (pattern or wildcard()).has_dtype(dtype)


def has_shape(shape: Sequence[object], pattern: DFPattern | None = None) -> DFPattern:
    """Return a pattern, for tensors of this shape."""
    return (pattern or wildcard()).has_shape(shape)


def has_attr(attrs: Mapping[str, object], pattern: DFPattern | None = None) -> DFPattern:
    """Return a pattern, for calls and functions with these attributes."""
    return (pattern or wildcard()).has_attr(attrs)


def dominates(child: DFPattern, path: DFPattern, parent: DFPattern) -> DFPattern:
    """Return the pattern of `child` whose ways lead along `path` to `parent`."""
    return DominatorPattern(child, path, parent)


def _tensor(expr: rl.RelayExpr) -> TensorType:
    ty = expr.checked_type_
    return ty if isinstance(ty, TensorType) else TensorType((-1,), DataType("bool"))


def _has_attrs(expr: rl.RelayExpr, wanted: Attrs) -> bool:
    if not isinstance(expr, (rl.Call, rl.Function)):
        return False
    return all(
        name in expr.attrs and bool(np.all(expr.attrs[name] == value))
        for name, value in wanted.items()
    )


def _checked(expr: rl.RelayExpr) -> rl.RelayExpr:
    if not isinstance(expr, rl.RelayExpr):
        raise MisuseError(f"expected a Relay expression, found {expr!r:.60}", about=expr)
    return expr


# Matching


def match_of(pattern: DFPattern, expr: rl.RelayExpr) -> _Binding | None:
    """Return the expression that each pattern stands for in the first match, None without one."""
    return next(_matches(pattern, expr, {}), None)


def _matches(pattern: DFPattern, expr: rl.RelayExpr, bound: _Binding) -> Iterator[_Binding]:
    """Yield all matches, with what patterns stand for already."""
    known = bound.get(pattern)
    if known is not None:
        if known is expr or (is_atom(expr) and structural_equal(known, expr)):
            yield bound
        return
    for new in _inner_matches(pattern, expr, bound):
        yield {**new, pattern: expr}


def _inner_matches(pattern: DFPattern, expr: rl.RelayExpr, bound: _Binding) -> Iterator[_Binding]:
    match pattern:
        case WildcardPattern():
            yield bound
        case Condition(pattern=inner, accepts=accepts):
            if accepts(expr):
                yield from _matches(inner, expr, bound)
        case AltPattern(left=left, right=right):
            yield from _matches(left, expr, bound)
            yield from _matches(right, expr, bound)
        case CallPattern(op=op, args=args):
            if isinstance(expr, rl.Call) and (args is None or len(args) == len(expr.args)):
                for new in _matches(op, expr.op, bound):
                    yield from _all(args or (), expr.args, new)
        case PartsPattern(kind=kind, parts=parts, of=of):
            if isinstance(expr, kind) and (parts is None or len(parts) == len(of(expr))):
                yield from _all(parts or (), of(expr), bound)
        case DominatorPattern(child=child):
            for new in _matches(child, expr, bound):
                yield from _dominated(pattern, [expr], {id(expr)}, new)
        case _:
            raise MisuseError(f"{type(pattern).__name__} is not a pattern of Relay", about=pattern)


def _all(
    patterns: Sequence[DFPattern], exprs: Sequence[rl.RelayExpr], bound: _Binding
) -> Iterator[_Binding]:
    """Yield the matches of all patterns with their expressions."""
    if not patterns:
        yield bound
        return
    for new in _matches(patterns[0], exprs[0], bound):
        yield from _all(patterns[1:], exprs[1:], new)


def _dominated(
    pattern: DominatorPattern, waiting: list[rl.RelayExpr], seen: set[int], bound: _Binding
) -> Iterator[_Binding]:
    """Yield the match in which all ways from some expressions lead to the parent."""
    waiting, seen = list(waiting), set(seen)
    while waiting:
        for operand in same_scope(waiting.pop()):
            if id(operand) in seen or isinstance(operand, Op):
                continue
            new = next(_matches(pattern.parent, operand, bound), None)
            if new is not None:
                bound = new
                continue
            if is_atom(operand):
                continue
            inner = {key: value for key, value in bound.items() if key is not pattern.path}
            if next(_matches(pattern.path, operand, inner), None) is None:
                return
            seen.add(id(operand))
            waiting.append(operand)
    if pattern.parent in bound:
        yield bound


# Rewriting


class DFPatternCallback:
    """A rule: what `self.pattern` matches is replaced by what `callback` returns.

    With `require_type`, expressions have types when they are matched; with `rewrite_once`, the
    program is gone through once instead of until nothing changes.
    """

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.pattern: DFPattern | None = None
        self.require_type = require_type
        self.rewrite_once = rewrite_once

    def rewrite(self, expr: rl.RelayExpr) -> rl.RelayExpr:
        """Return an expression with the rule applied to all matches."""
        return rewrite(self, expr)

    def callback(
        self, pre: rl.RelayExpr, post: rl.RelayExpr, node_map: Mapping[DFPattern, Any]
    ) -> rl.RelayExpr:
        """Return the replacement of `post`; `node_map[pattern][0]` is what a pattern stands for."""
        raise MisuseError(f"{type(self).__name__} does not define callback", about=self)


class _Function(DFPatternCallback):
    """The rule of a function, which is applied once."""

    def __init__(self, pattern: DFPattern, function: Callable[..., rl.RelayExpr]) -> None:
        super().__init__(rewrite_once=True)
        self.pattern = pattern
        self.function = function

    @override
    def callback(
        self, pre: rl.RelayExpr, post: rl.RelayExpr, node_map: Mapping[DFPattern, Any]
    ) -> rl.RelayExpr:
        return self.function(post, node_map)


@user_facing
def rewrite(
    callbacks: DFPatternCallback | Sequence[DFPatternCallback],
    expr: rl.RelayExpr,
    mod: RelayModule | None = None,
) -> rl.RelayExpr:
    """Return an expression to which rules were applied until nothing changes.

    Operands are rewritten before the expressions that use them. `mod` has the functions and data
    types that the expression refers to.

    Errors:
        RelayTypeError: a rule requires types, and the expression is not well-typed.
        TransformError: the rules do not come to rest.
    """
    rules = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    result = _checked(expr)
    for rule in rules:
        for _ in range(MAX_ITERATIONS):
            before = _typed(result, mod) if rule.require_type else result
            after = _applied(rule, before)
            done = after is before or structural_equal(after, before)
            result = before if done else after
            if done or rule.rewrite_once:
                break
        else:
            raise TransformError(
                f"{type(rule).__name__} does not come to rest in {MAX_ITERATIONS} iterations",
                hint="rewrite_once=True applies it once",
            )
    return result


def _applied(rule: DFPatternCallback, expr: rl.RelayExpr) -> rl.RelayExpr:
    pattern = rule.pattern
    if not isinstance(pattern, DFPattern):
        raise MisuseError(f"{type(rule).__name__} has no pattern", about=rule)

    def step(node: Node) -> Node | None:
        if not isinstance(node, rl.RelayExpr):
            return None
        bound = match_of(pattern, node)
        if bound is None:
            return None
        new = rule.callback(node, node, {key: [value] for key, value in bound.items()})
        if not isinstance(new, rl.RelayExpr):
            raise TransformError(f"the callback returned {new!r:.60}, not a Relay expression")
        return new

    return rl.rewrite(expr, step)


def _typed(expr: rl.RelayExpr, mod: RelayModule | None) -> rl.RelayExpr:
    """Return an expression with types; free variables stay the same."""
    module = RelayModule() if mod is None else mod.clone()
    name = "main"
    while name in module:
        name += "_"
    function = as_function(expr)
    module[name] = function
    typed: rl.Function = infer_module(module)[name]
    if isinstance(expr, rl.Function):
        return typed
    return rename(typed.body, dict(zip(typed.params, function.params, strict=True)))


class _Partition:
    """The functions that the matches of a pattern in an expression become."""

    def __init__(
        self,
        pattern: DFPattern,
        root: rl.RelayExpr,
        attrs: Mapping[str, object],
        check: Callable[[rl.RelayExpr], bool],
    ) -> None:
        self.root = root
        self.attrs = attrs
        self.scopes = Scopes(root)
        self.groups: dict[int, list[rl.RelayExpr]] = {}
        self.inside: set[int] = set()
        users = self._users()
        for node in reversed(self.scopes.nodes):
            bound = None if id(node) in self.inside else match_of(pattern, node)
            if bound is None or not check(node):
                continue
            group = self._members(node, bound)
            own = set(map(id, group))
            others = [n for n in group if n is not node and users.get(id(n), set()) - own]
            if group and not others and own.isdisjoint(self.inside):
                self.groups[id(node)] = group
                self.inside |= own

    def _users(self) -> dict[int, set[int]]:
        users: dict[int, set[int]] = {}
        for node in self.scopes.nodes:
            for operand in children(node):
                users.setdefault(id(operand), set()).add(id(node))
        return users

    def _members(self, node: rl.RelayExpr, bound: _Binding) -> list[rl.RelayExpr]:
        """Return what patterns with a structure stand for, operands first."""
        kinds = (CallPattern, PartsPattern, DominatorPattern)
        own = {id(expr) for key, expr in bound.items() if isinstance(key, kinds)}
        scope = self.scopes.of[id(node)]
        return [n for n in scope.nodes if id(n) in own and not isinstance(n, rl.Let)]

    def result(self) -> rl.RelayExpr:
        """Return the expression with calls of the functions."""
        done: dict[Node, Any] = {}

        def renewed(child: Node) -> Node:
            if isinstance(child, rl.Clause):
                return map_children(renewed, child)
            new: Node = done.get(child, child)
            return new

        for node in self.scopes.nodes:
            group = self.groups.get(id(node))
            done[node] = map_children(renewed, node) if group is None else self._call(group, done)
        new: rl.RelayExpr = done.get(self.root, self.root)
        return new

    def _call(self, group: list[rl.RelayExpr], done: Mapping[Node, Any]) -> rl.Call:
        own = set(group)
        table: dict[Node, Node] = {}
        for node in group:
            for operand in same_scope(node):
                fixed = isinstance(operand, (Op, rl.Constant, rl.Constructor, rl.GlobalVar))
                if operand not in own and operand not in table and not fixed:
                    name = f"FunctionVar_0_{len(table)}"
                    table[operand] = rl.Var(name, operand.checked_type_)
        names = [n.op.name for n in group if isinstance(n, rl.Call) and isinstance(n.op, Op)]
        attrs = {**self.attrs, "PartitionedFromPattern": "".join(f"{name}_" for name in names)}
        params = tuple(var for var in table.values() if isinstance(var, rl.Var))
        function = rl.Function(params, rename(group[-1], table), attrs=Attrs(attrs))
        args = tuple(done.get(operand, operand) for operand in table)
        return rl.Call(function, args, span=group[-1].span)
