"""Tuples, lists, comprehensions, lambdas and f-strings, and how values are taken apart."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from relaxpy.errors import ParseError, RelaxpyError, counted
from relaxpy.script.language.wording import as_parse_error, describe
from relaxpy.script.parser.evaluate import door
from relaxpy.script.parser.evaluate.guard import Guard
from relaxpy.script.parser.source.scope import FromText, Scope
from relaxpy.script.parser.source.text import Positioned, Program

if TYPE_CHECKING:
    from relaxpy.script.parser.evaluate.evaluator import Evaluator


class Lambda(FromText):
    """A lambda of a text: whoever calls it, it is read with the names where it was written."""

    spoken = "lambda"
    __name__ = "<lambda>"

    def __init__(self, node: ast.Lambda, values: Displays) -> None:
        self.node = node
        self.values = values
        self.program = values.program
        self.scope = values.scope.closure()
        self.names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in self.names])

    def __call__(self, *args: object) -> object:
        """The value of its body.

        Errors: ParseError if it takes another number of arguments, or as of any expression.
        """
        values, names = self.values, self.names
        if len(args) != len(names):
            expected = counted(len(names), "argument")
            raise self.program.error(self.node, f"this takes {expected}, found {len(args)}")
        given = dict(zip(names, args, strict=True))
        with values.reading(self.program, self.scope.closure()), values.scope.inner(given):
            return values.value(self.node.body)


def lambda_named(program: Program, node: ast.expr) -> ParseError:
    """The error for a statement that names a lambda: like any local function, it is no value."""
    return program.error(
        node,
        "a lambda has no name in a program",
        hint="define a function outside; functions of Python are called as they are",
    )


#: What Python's own operations raise on values that they cannot take.
VALUE_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)


class Displays:
    """The part of an evaluator that makes and takes apart Python's own containers."""

    def __init__(self, program: Program, scope: Scope, guard: Guard) -> None:
        self.program = program
        self.scope = scope
        self.guard = guard

    @property
    def _whole(self) -> Evaluator:
        """This evaluator, as guards know it."""
        return cast("Evaluator", self)

    def value(self, node: ast.expr) -> Any:
        """The value of an expression."""
        raise AssertionError("given by the whole evaluator")

    def truth(self, value: object, node: ast.expr) -> bool:
        """The truth of a Python value."""
        raise AssertionError("given by the whole evaluator")

    def error(self, node: Positioned, message: str, **details: Any) -> ParseError:
        """The error `message` about what stands at `node`."""
        return self.program.error(node, message, **details)

    def _items(self, nodes: Iterable[ast.expr]) -> Iterator[object]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self._unrolled(node)
            else:
                yield self.value(node)

    def _unrolled(self, node: ast.Starred) -> Iterable[object]:
        return self.iterable(self.value(node.value), node.value)

    def iterable(self, value: Any, node: ast.expr) -> Iterable[object]:
        """The members of a Python value.

        Errors: ParseError for what has no members known while the program is read.
        """
        try:
            members: Iterable[object] = door.members(value)
        except RelaxpyError as error:
            raise as_parse_error(error, self.program.span(node)) from None
        except VALUE_ERRORS:
            raise self.error(node, f"{describe(value)} has no members to go through") from None
        return self.guard.members(members, node, self._whole)

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        pairs: list[tuple[Any, Any]] = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                given = self.value(value)
                if not isinstance(given, Mapping):
                    raise self.error(value, f"** takes a dict, found {describe(given)}")
                pairs += given.items()
                continue
            pairs.append((self._key(key), self.value(value)))
        return self._table(pairs, node)

    def _table(self, pairs: list[tuple[Any, Any]], node: ast.expr) -> dict[Any, Any]:
        self.guard.keys([key for key, _ in pairs], node, self._whole)
        return dict(pairs)

    def _key(self, node: ast.expr) -> Any:
        """The value of an expression that is the key of a dict."""
        found = self.value(node)
        try:
            hash(found)
        except TypeError:
            raise self.error(node, f"{describe(found)} cannot be a key") from None
        return found

    def _set(self, members: Iterable[object], node: ast.expr) -> set[Any]:
        found = list(members)
        try:
            self.guard.keys(found, node, self._whole)
            return set(found)
        except TypeError as error:
            raise self.error(node, f"a set cannot hold these: {error}") from None

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp
    ) -> Iterator[object]:
        for _ in self._rounds(node.generators):
            yield self.value(node.elt)

    def _dictcomp(self, node: ast.DictComp) -> dict[Any, Any]:
        rounds = self._rounds(node.generators)
        return self._table([(self._key(node.key), self.value(node.value)) for _ in rounds], node)

    def _rounds(self, generators: list[ast.comprehension]) -> Iterator[None]:
        """One step for each round of the comprehension, its variables bound meanwhile."""
        first, *rest = generators
        if first.is_async:
            raise self.error(first.iter, "a program cannot wait for anything: no async")
        members = self.iterable(self.value(first.iter), first.iter)
        with self.scope.inner():
            for member in members:
                self.unpack(first.target, member, self.scope.set)
                if all(self.truth(self.value(test), test) for test in first.ifs):
                    if rest:
                        yield from self._rounds(rest)
                    else:
                        yield None

    def unpack(self, target: ast.expr, value: object, bind: Callable[[str, Any], None]) -> None:
        """Bind the names of `target` to the members of `value`."""
        if isinstance(target, ast.Name):
            bind(target.id, value)
            return
        if not isinstance(target, (ast.Tuple, ast.List)):
            raise self.error(target, "only names can be bound here")
        members = list(self.iterable(value, target))
        for part, member in self.paired(target, members):
            self.unpack(part, member, bind)

    def paired(
        self, target: ast.Tuple | ast.List, members: list[Any]
    ) -> Iterator[tuple[ast.expr, Any]]:
        """The parts of an unpacking target with what each receives; a starred one gets a list."""
        parts = target.elts
        stars = [k for k, part in enumerate(parts) if isinstance(part, ast.Starred)]
        if len(stars) > 1:
            raise self.error(parts[stars[1]], "at most one target may have a star")
        fixed = len(parts) - len(stars)
        if len(members) < fixed or (not stars and len(members) != fixed):
            least = "at least " if stars else ""
            raise self.error(
                target, f"expected {least}{counted(fixed, 'value')}, found {len(members)}"
            )
        if stars:
            at = stars[0]
            tail = len(parts) - at - 1
            middle = members[at : len(members) - tail]
            members = [*members[:at], middle, *members[len(members) - tail :]]
        for part, member in zip(parts, members, strict=True):
            yield (part.value if isinstance(part, ast.Starred) else part), member

    @contextmanager
    def reading(self, program: Program, scope: Scope) -> Iterator[None]:
        """A context in which another text is read, or another part of it with names of its own."""
        outer = self.program, self.scope
        self.program, self.scope = program, scope
        try:
            yield
        finally:
            self.program, self.scope = outer

    def _lambda(self, node: ast.Lambda) -> Lambda:
        spec = node.args
        if spec.vararg or spec.kwarg or spec.kwonlyargs or spec.defaults:
            raise self.error(node, "a lambda here takes plain parameters only")
        for error in self.program.repeated(spec):
            raise error
        return Lambda(node, self)

    def _joined(self, node: ast.JoinedStr) -> str:
        return "".join(self._formatted(part) for part in node.values)

    def _formatted(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return str(node.value)
        assert isinstance(node, ast.FormattedValue)
        value = self.value(node.value)
        spec = ""
        if node.format_spec is not None:
            assert isinstance(node.format_spec, ast.JoinedStr)
            spec = self._joined(node.format_spec)
        self.guard.format(value, spec, node.value, self._whole)
        try:
            return door.formatted(value, node.conversion, spec)
        except VALUE_ERRORS as error:
            raise self.error(node.value, str(error)) from None
