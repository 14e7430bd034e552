"""Name lookup: the names that a program binds, and those of its enclosing scopes."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, FunctionType
from typing import Any

from typing_extensions import override

from relaxpy.errors import ParseNameError, close_names
from relaxpy.ir.relax.nodes import GlobalVar

#: The built-in functions that a program may call while it is parsed.
BUILTINS: Mapping[str, object] = {
    name: getattr(builtins, name)
    for name in (
        *("abs", "all", "any", "bool", "dict", "divmod", "enumerate", "filter", "float", "int"),
        *("isinstance", "len", "list", "map", "max", "min", "range", "reversed", "round", "set"),
        *("slice", "sorted", "str", "sum", "tuple", "zip"),
    )
}


class Missing:
    """The type of the result of a lookup that finds nothing."""


MISSING = Missing()


class Poison:
    """The type of the value of a name whose definition failed; its uses are not reported again."""


POISON = Poison()


class Poisoned(Exception):  # noqa: N818
    """A value is used whose definition has already been reported as an error."""


class FromText:
    """Base of the functions that a text defines; calling one reads its text."""

    __slots__ = ()


class ModuleRef:
    """The module that is being parsed, as its functions refer to it: `cls.f`, `Module.f`."""

    def __init__(self, functions: Mapping[str, GlobalVar]) -> None:
        self.__functions__ = functions
        self.__poisoned__: set[str] = set()

    def __getattr__(self, name: str) -> GlobalVar:
        if name in self.__poisoned__:
            raise Poisoned
        gvar = self.__functions__.get(name)
        if gvar is None:
            raise AttributeError(name)
        return gvar

    @override
    def __dir__(self) -> list[str]:
        return list(self.__functions__)

    @override
    def __repr__(self) -> str:
        return "the module"


class Scope:
    """The names of a program, innermost scope first, inside the enclosing mappings."""

    __slots__ = ("_enclosing", "frames")

    def __init__(self, *enclosing: Mapping[str, object]) -> None:
        self.frames: list[dict[str, object]] = [{}]
        self._enclosing = enclosing

    def find(self, name: str) -> object:
        """The value of `name`, or MISSING."""
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        for mapping in self._enclosing:
            if name in mapping:
                return mapping[name]
        return MISSING

    def find_bound(self, name: str) -> object:
        """The value that the program itself has bound to `name`, or MISSING."""
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        return MISSING

    def set(self, name: str, value: object) -> None:
        """Bind `name` in the innermost scope."""
        self.frames[-1][name] = value

    def names(self) -> Iterator[str]:
        """All visible names."""
        for frame in reversed(self.frames):
            yield from frame
        for mapping in self._enclosing:
            yield from mapping

    @contextmanager
    def inner(self, names: Mapping[str, object] | None = None) -> Iterator[dict[str, object]]:
        """Open a scope inside this one until the context ends."""
        frame = dict(names or {})
        depth = len(self.frames)
        self.frames.append(frame)
        try:
            yield frame
        finally:
            del self.frames[depth:]

    def closure(self) -> Scope:
        """The scope of a lambda defined here; later bindings in these frames are visible."""
        scope = Scope(*self._enclosing)
        scope.frames = list(self.frames)
        return scope

    def for_function(self, *first: Mapping[str, object]) -> Scope:
        """A scope for a function defined here: the names of this scope, then `first`."""
        return Scope(*reversed(self.frames), *first, *self._enclosing)


def captured_names(function: FunctionType, frame: FrameType | None) -> list[Mapping[str, object]]:
    """The scopes of names used in `function`: closure, defining frame, module."""
    closure = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    scopes: list[Mapping[str, object]] = [closure]
    if frame is not None:
        scopes.extend(frame_names(frame))
    scopes.append(function.__globals__)
    return scopes


def frame_names(frame: FrameType) -> Iterator[Mapping[str, Any]]:
    """The current local names of a running frame, and of its callers that enclose it.

    The latter are those of annotations that Python does not evaluate, which no closure has.
    """
    code, caller = frame.f_code, frame.f_back
    if frame.f_locals is not frame.f_globals:
        yield dict(frame.f_locals)
    if caller is not None and any(code is constant for constant in caller.f_code.co_consts):
        yield from frame_names(caller)


def unknown_name(name: str, known: Iterable[str]) -> ParseNameError:
    """Create the error for an unknown name."""
    if hasattr(builtins, name):
        return ParseNameError(
            f"the built-in name {name!r} is not available inside a program",
            hint="a program is parsed, not run; " + _instead(name),
        )
    public = {n for n in known if not n.startswith("_")}
    return ParseNameError(f"unknown name {name!r}", hint=close_names(name, public))


def _instead(name: str) -> str:
    if name == "print":
        return "to print when the function runs use R.print(x) in a function with pure=False"
    return "call it outside and use its result, or a helper function that calls it"
