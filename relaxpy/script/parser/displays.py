"""Tuples, lists, comprehensions, lambdas and f-strings, and how values are taken apart."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from relaxpy.errors import ParseError, RelaxpyError, counted
from relaxpy.script.parser.guard import Guard
from relaxpy.script.parser.scope import Scope
from relaxpy.script.parser.text import Positioned, Program
from relaxpy.script.parser.wording import as_parse_error, describe

if TYPE_CHECKING:
    from relaxpy.script.parser.evaluator import Evaluator

#: What Python's own operations raise on values that they cannot take.
VALUE_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)

_CONVERSIONS: Mapping[int, Callable[[object], object]] = {
    -1: lambda value: value,
    ord("s"): str,
    ord("r"): repr,
    ord("a"): ascii,
}


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
            members: Iterable[object] = iter(value)
        except RelaxpyError as error:
            raise as_parse_error(error, self.program.span(node)) from None
        except VALUE_ERRORS:
            raise self.error(node, f"{describe(value)} has no members to go through") from None
        return self.guard.members(members, node, self._whole)

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                given = self.value(value)
                if not isinstance(given, Mapping):
                    raise self.error(value, f"** takes a dict, found {describe(given)}")
                result.update(given)
                continue
            name = self._key(key)
            result[name] = self.value(value)
        return result

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
            return set(found)
        except TypeError as error:
            raise self.error(node, f"a set cannot hold these: {error}") from None

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp
    ) -> Iterator[object]:
        for _ in self._rounds(node.generators):
            yield self.value(node.elt)

    def _dictcomp(self, node: ast.DictComp) -> dict[Any, Any]:
        return {self._key(node.key): self.value(node.value) for _ in self._rounds(node.generators)}

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

    def _lambda(self, node: ast.Lambda) -> Callable[..., object]:
        spec = node.args
        if spec.vararg or spec.kwarg or spec.kwonlyargs or spec.defaults:
            raise self.error(node, "a lambda here takes plain parameters only")
        names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
        frames = list(self.scope.frames)

        def function(*args: object) -> object:
            if len(args) != len(names):
                raise self.error(node, f"this takes {len(names)} arguments, found {len(args)}")
            outer = self.scope.frames
            self.scope.frames = [*frames, dict(zip(names, args, strict=True))]
            try:
                return self.value(node.body)
            finally:
                self.scope.frames = outer

        parameters = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names
        ]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        function.__from_text__ = True  # type: ignore[attr-defined]
        return function

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
            shown = _CONVERSIONS[node.conversion](value)
            return format(shown, spec) if spec else str(shown)
        except VALUE_ERRORS as error:
            raise self.error(node.value, str(error)) from None
