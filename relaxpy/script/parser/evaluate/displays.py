"""Tuples, lists, comprehensions, lambdas and f-strings, and the unpacking of values."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from relaxpy.errors import ParseError, counted
from relaxpy.script.language.wording import describe
from relaxpy.script.parser.evaluate import user_calls
from relaxpy.script.parser.source import FromText, Program

if TYPE_CHECKING:
    from relaxpy.script.parser.evaluate.evaluator import Evaluator


class Lambda(FromText):
    """A lambda of a program, which is evaluated in the scope that encloses it."""

    display_name = "lambda"
    __name__ = "<lambda>"

    def __init__(self, node: ast.Lambda, values: Evaluator) -> None:
        self.node = node
        self.values = values
        self.program = values.program
        self.scope = values.scope.closure()
        self.names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]

    @override
    def __repr__(self) -> str:
        return ast.unparse(self.node)

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(n, kind) for n in self.names])

    def __call__(self, *args: object, **named: object) -> object:
        """The value of the body.

        Errors: ParseError if the lambda takes other arguments, or as for any expression.
        """
        values, names = self.values, self.names
        actual = len(args) + len(named)
        if actual != len(names):
            expected = counted(len(names), "argument")
            raise self.program.error(self.node, f"this takes {expected}, found {actual}")
        for name in named.keys() - names[len(args) :]:
            raise self.program.error(self.node, f"this takes no keyword argument {name!r} here")
        arguments = dict(zip(names, args, strict=False)) | named
        with values.reading(self.program, self.scope.closure()), values.scope.inner(arguments):
            return values.value(self.node.body)


def lambda_named(program: Program, node: ast.expr) -> ParseError:
    """Create the error for a statement that binds a lambda to a name."""
    return program.error(
        node,
        "a lambda has no name in a program",
        hint="define a function outside; functions of Python are called as they are",
    )


#: The exceptions of Python's operations on unsuitable values.
VALUE_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)


def items(values: Evaluator, nodes: Iterable[ast.expr]) -> Iterator[object]:
    """The values of `nodes`, with starred ones unpacked."""
    for node in nodes:
        if isinstance(node, ast.Starred):
            yield from starred(values, node)
        else:
            yield values.value(node)


def starred(values: Evaluator, node: ast.Starred) -> Iterable[object]:
    """The members of a starred expression."""
    return values.iterable(values.value(node.value), node.value)


def _dict_display(values: Evaluator, node: ast.Dict) -> dict[Any, Any]:
    pairs: list[tuple[Any, Any]] = []
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            table = values.value(value)
            if not isinstance(table, Mapping):
                raise values.error(value, f"** takes a dict, found {describe(table)}")
            pairs += table.items()
            continue
        pairs.append((_key(values, key), values.value(value)))
    return _table(values, pairs, node)


def _table(values: Evaluator, pairs: list[tuple[Any, Any]], node: ast.expr) -> dict[Any, Any]:
    values.guard.keys([key for key, _ in pairs], node, values)
    return dict(pairs)


def _key(values: Evaluator, node: ast.expr) -> Any:
    """The value of an expression that is the key of a dict."""
    key = values.value(node)
    try:
        hash(key)
    except TypeError:
        raise values.error(node, f"{describe(key)} cannot be a key") from None
    return key


def _set_of(values: Evaluator, members: Iterable[object], node: ast.expr) -> set[Any]:
    keys = list(members)
    try:
        values.guard.keys(keys, node, values)
        return set(keys)
    except TypeError as error:
        raise values.error(node, f"these cannot be members of a set: {error}") from None


def _comprehension(
    values: Evaluator, node: ast.ListComp | ast.SetComp | ast.GeneratorExp
) -> Iterator[object]:
    for _ in _iterations(values, node.generators):
        yield values.value(node.elt)


def _dict_comprehension(values: Evaluator, node: ast.DictComp) -> dict[Any, Any]:
    iterations = _iterations(values, node.generators)
    return _table(
        values, [(_key(values, node.key), values.value(node.value)) for _ in iterations], node
    )


def _iterations(values: Evaluator, generators: list[ast.comprehension]) -> Iterator[None]:
    """Run a comprehension; the generator pauses in each iteration, with its variables bound."""
    first, *rest = generators
    if first.is_async:
        raise values.error(first.iter, "a program cannot wait for anything: no async")
    members = values.iterable(values.value(first.iter), first.iter)
    with values.scope.inner():
        for member in members:
            unpack(values, first.target, member, values.scope.set)
            if all(values.truth(values.value(test), test) for test in first.ifs):
                if rest:
                    yield from _iterations(values, rest)
                else:
                    yield None


def unpack(
    values: Evaluator, target: ast.expr, value: object, bind: Callable[[str, Any], None]
) -> None:
    """Bind the names of `target` to the members of `value`."""
    if isinstance(target, ast.Name):
        bind(target.id, value)
        return
    if not isinstance(target, (ast.Tuple, ast.List)):
        raise values.error(target, "only names can be bound here")
    members = list(values.iterable(value, target))
    for element, member in paired(values, target, members):
        unpack(values, element, member, bind)


def paired(
    values: Evaluator, target: ast.Tuple | ast.List, members: list[Any]
) -> Iterator[tuple[ast.expr, Any]]:
    """The targets of an unpacking, each with its value; a starred target receives a list."""
    targets = target.elts
    stars = [k for k, element in enumerate(targets) if isinstance(element, ast.Starred)]
    if len(stars) > 1:
        raise values.error(targets[stars[1]], "at most one target may have a star")
    fixed = len(targets) - len(stars)
    if len(members) < fixed or (not stars and len(members) != fixed):
        least = "at least " if stars else ""
        raise values.error(
            target, f"expected {least}{counted(fixed, 'value')}, found {len(members)}"
        )
    if stars:
        at = stars[0]
        tail = len(targets) - at - 1
        middle = members[at : len(members) - tail]
        members = [*members[:at], middle, *members[len(members) - tail :]]
    for element, member in zip(targets, members, strict=True):
        yield (element.value if isinstance(element, ast.Starred) else element), member


def _lambda(values: Evaluator, node: ast.Lambda) -> Lambda:
    spec = node.args
    if spec.vararg or spec.kwarg or spec.kwonlyargs or spec.defaults:
        raise values.error(node, "a lambda here takes plain parameters only")
    for error in values.program.repeated(spec):
        raise error
    return Lambda(node, values)


def _f_string(values: Evaluator, node: ast.JoinedStr) -> str:
    return "".join(_formatted(values, value) for value in node.values)


def _formatted(values: Evaluator, node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.FormattedValue)
    value = values.value(node.value)
    spec = ""
    if node.format_spec is not None:
        assert isinstance(node.format_spec, ast.JoinedStr)
        spec = _f_string(values, node.format_spec)
    values.guard.format(value, spec, node.value, values)
    try:
        return user_calls.formatted(value, node.conversion, spec)
    except VALUE_ERRORS as error:
        raise values.error(node.value, str(error)) from None


#: The evaluation of each kind of display.
READERS: Mapping[type[ast.expr], Callable[[Evaluator, Any], object]] = {
    ast.Tuple: lambda values, node: tuple(items(values, node.elts)),
    ast.List: lambda values, node: list(items(values, node.elts)),
    ast.Set: lambda values, node: _set_of(values, items(values, node.elts), node),
    ast.Dict: _dict_display,
    ast.ListComp: lambda values, node: list(_comprehension(values, node)),
    ast.SetComp: lambda values, node: _set_of(values, _comprehension(values, node), node),
    ast.GeneratorExp: lambda values, node: list(_comprehension(values, node)),
    ast.DictComp: _dict_comprehension,
    ast.Lambda: _lambda,
    ast.JoinedStr: _f_string,
}
