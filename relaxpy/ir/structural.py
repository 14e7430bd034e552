"""Sameness of programs up to the names of variables: equality, hash, and the first difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import RelaxpyError
from relaxpy.ir.node import Attrs, Node
from relaxpy.ir.tir.expr import BinaryOpExpr, Cast, LogicalExpr, Select, Var

_OPERATIONS = (BinaryOpExpr, LogicalExpr, Select, Cast)


Path: TypeAlias = "tuple[Path, str] | None"


class Token(NamedTuple):
    """One step of a walk through a node: a comparable value, where it stands, and what it is of."""

    value: object
    path: Path
    subject: object


class _EndScope(NamedTuple):
    """Where the definitions of a scope end: what was known before it."""

    names: dict[int, tuple[str, int]]
    shared: dict[int, int]


def tokens(root: object, *, map_free_vars: bool = False) -> Iterator[Token]:
    """The structure of `root` as a flat stream: equal streams mean equal up to renaming.

    A variable is numbered where it is defined; a use is the number, or for a free variable its
    identity (its number, too, with `map_free_vars`). An operation on scalars that was met before is
    given by its place, since structurally equal ones are one object. The walk keeps its own stack,
    so that depth is no limit.
    """
    names: dict[int, tuple[str, int]] = {}
    announced: set[int] = set()
    shared: dict[int, int] = {}
    counter = 0
    # What is to be visited, its path, whether it is defined here, and its shape variables with it.
    stack: list[tuple[object, Path, bool, bool] | _EndScope] = [(root, None, False, False)]
    while stack:
        item = stack.pop()
        if isinstance(item, _EndScope):
            names, shared = item
            continue
        subject, path, defines, sizes = item
        if isinstance(subject, Node):
            kind = type(subject)
            if kind._variable:
                name = names.get(id(subject))
                if name is None and not (defines or sizes or map_free_vars):
                    yield Token(("free", _free_name(subject)), path, subject)
                    continue
                if name is not None and not defines and id(subject) not in announced:
                    yield Token(name, path, subject)
                    continue
                if name is None:
                    counter += 1
                    name = names[id(subject)] = ("var", counter)
                announced.discard(id(subject))
                yield Token((kind.__name__, name), path, subject)
            elif isinstance(subject, _OPERATIONS):
                place = shared.get(id(subject))
                if place is not None:
                    yield Token(("again", place), path, subject)
                    continue
                shared[id(subject)] = len(shared)
                yield Token(kind.__name__, path, subject)
            else:
                yield Token(kind.__name__, path, subject)
            if kind._scope:
                stack.append(_EndScope(names, shared))
                names, shared = dict(names), {}
                for variable in _outer_sizes(subject):
                    if id(variable) not in names:
                        counter += 1
                        names[id(variable)] = ("var", counter)
                        announced.add(id(variable))
            for field in reversed(kind._fields):
                value = getattr(subject, field)
                defined = field in kind._binds and not isinstance(value, str)
                stack.append(
                    (value, (path, f".{field}"), defined, sizes or field in kind._binds_sizes)
                )
        elif isinstance(subject, tuple):
            yield Token(("tuple", len(subject)), path, subject)
            stack += [
                (subject[i], (path, f"[{i}]"), defines, sizes)
                for i in range(len(subject) - 1, -1, -1)
            ]
        elif isinstance(subject, (Attrs, Mapping)):
            keys = sorted(subject, key=str)
            yield Token(("table", tuple(map(str, keys))), path, subject)
            stack += [(subject[k], (path, f"[{str(k)!r}]"), False, False) for k in reversed(keys)]
        else:
            yield Token(_plain(subject), path, subject)


def _outer_sizes(scope: Node) -> Iterable[Node]:
    """The shape variables that a signature defines outside the signatures inside it (SC-16).

    Nothing has to be known of them beforehand unless there are signatures inside: without these,
    each is met first where it is defined.
    """
    found: list[Node] = []
    nested = False
    stack = [getattr(scope, field) for field in scope._fields if field in scope._binds_sizes]
    while stack:
        value = stack.pop()
        if isinstance(value, tuple):
            stack += reversed(value)
        elif isinstance(value, Node):
            if value._scope:
                nested = True
                continue
            if isinstance(value, Var):
                found.append(value)
            stack += [getattr(value, field) for field in reversed(value._fields)]
    return found if nested else ()


def _free_name(node: Node) -> object:
    """What a variable defined nowhere in the walk is known by: global ones by name."""
    hint = getattr(node, "name_hint", None)
    return ("global", hint) if type(node).__name__ == "GlobalVar" else id(node)


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return "array", value.dtype.name, value.shape, np.ascontiguousarray(value).tobytes()
    if isinstance(value, float):
        return "float", value.hex()
    if isinstance(value, bool):
        return "bool", value
    return value


def structural_key(node: object) -> tuple[object, ...]:
    """A hashable value equal for structurally equal nodes, as long as both are alive."""
    return tuple(token.value for token in tokens(node))


def structural_hash(node: object, map_free_vars: bool = False) -> int:
    """A hash that structurally equal nodes share."""
    return hash(tuple(token.value for token in tokens(node, map_free_vars=map_free_vars)))


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where two nodes first differ, and what stands there on either side."""

    path: str
    lhs: object
    rhs: object

    @override
    def __str__(self) -> str:
        return (
            f"the two differ at <root>{self.path}\n"
            f"  left:  {_snippet(self.lhs)}\n"
            f"  right: {_snippet(self.rhs)}"
        )


def _snippet(subject: object, limit: int = 300) -> str:
    text = (
        str(subject)
        if not isinstance(subject, np.ndarray)
        else np.array2string(subject, threshold=8)
    )
    text = "\n         ".join(text.splitlines()[:8])
    return text if len(text) <= limit else text[:limit] + " ..."


def first_mismatch(lhs: object, rhs: object, map_free_vars: bool = False) -> Mismatch | None:
    """The first place where the two differ, or None if they are structurally equal."""
    if lhs is rhs:
        return None
    left = tokens(lhs, map_free_vars=map_free_vars)
    right = tokens(rhs, map_free_vars=map_free_vars)
    for one, other in zip_longest(left, right):
        if one is None or other is None or one.value != other.value:
            present = one or other
            assert present is not None
            return Mismatch(
                _path_text(present.path),
                one.subject if one else "(nothing)",
                other.subject if other else "(nothing)",
            )
    return None


def _path_text(path: Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(step)
    return "".join(reversed(steps))


def structural_equal(lhs: object, rhs: object, map_free_vars: bool = False) -> bool:
    """Whether the two are the same program up to the names of variables.

    With `map_free_vars`, variables defined nowhere in them may differ in name, too.
    """
    return first_mismatch(lhs, rhs, map_free_vars) is None


def assert_structural_equal(lhs: object, rhs: object, map_free_vars: bool = False) -> None:
    """Check structural equality.

    Errors:
        StructuralMismatch (a ValueError and an AssertionError): they differ; the text shows where.
    """
    mismatch = first_mismatch(lhs, rhs, map_free_vars)
    if mismatch is not None:
        raise StructuralMismatch(str(mismatch))


class StructuralMismatch(RelaxpyError, ValueError, AssertionError):  # noqa: N818
    """Two nodes that were to be equal are not; the text shows the first difference."""
