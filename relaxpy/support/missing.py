"""The errors for names that modules of relaxpy do not have, with what to write instead."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from pkgutil import get_data
from types import FrameType, ModuleType
from typing import Any, Final

from relaxpy.support.absent import ABSENT_MODULES, instead_of


def described(value: object) -> str:
    """Describe `value` for a message: its type and text, or its name in programs."""
    name = getattr(value, "display_name", None)
    if isinstance(value, type):
        return f"class {name if isinstance(name, str) else value.__name__}"
    if inspect.isroutine(value):
        return f"function {getattr(value, '__name__', value)!r}"
    if inspect.ismodule(value):
        return f"module {value.__name__!r}"
    if isinstance(name, str):
        return name if name[:2] in ("I.", "R.", "T.") else f"{article(name)} {name}"
    return "None" if value is None else f"{type(value).__name__} {value!r:.60}"


def article(noun: str) -> str:
    """The indefinite article of `noun`."""
    return "an" if noun[:1] in "AEIOUaeiou" or noun[:2] == "R." else "a"


def digits(value: object) -> str:
    """The repr of a value; of a very large integer, its magnitude."""
    if isinstance(value, int) and value.bit_length() > 400:
        return f"{'-' if value < 0 else ''}2**{value.bit_length() - 1}…"
    try:
        return f"{value!r:.130}"
    except ValueError:
        return f"a {type(value).__name__} of integers of too many digits"


_LONGEST_NAME = 200
_MOST_NAMES = 8_000


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """At most two of the names in `known` with the least edit distance from `name`.

    The distance is at most one edit for three letters. A name of over 200 letters, or more than
    8,000 names, give no result, since a comparison takes time quadratic in the lengths.
    """
    limit = len(name) // 3
    ranks: dict[tuple[int, int], list[str]] = {}
    others = set(known) - {name}
    if len(name) > _LONGEST_NAME or len(others) > _MOST_NAMES:
        return []
    for other in sorted(others):
        edits = edit_distance(name.casefold(), other.casefold(), limit)
        if edits <= limit:
            # The case of letters is not an edit, but decides between names of equal distance.
            case_changes = sum(
                a.isupper() != b.isupper() for a, b in zip(name, other, strict=False)
            )
            ranks.setdefault((edits, case_changes), []).append(other)
            limit = edits
    return ranks[min(ranks)][:2] if ranks else []


def edit_distance(a: str, b: str, limit: int) -> int:
    """Count the insertions, deletions, substitutions and transpositions that turn `a` into `b`.

    If there are more than `limit`, the result is any number above the limit.

    Rule:
        Optimal string alignment distance (Damerau, CACM 7(3), 1964).
    """
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    previous: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before_previous, previous, row = previous, row, [i]
        for j, y in enumerate(b, 1):
            cost = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before_previous[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return row[-1]


LOOKS_UP_NAMES: Final = True
"""Each module with functions that look up names of other modules has this name."""

#: How a program imports the namespaces by their usual names.
NAMESPACES: Final[Mapping[str, str]] = {
    name: f"write from relaxpy.script import {module} as {name}"
    for name, module in (("I", "ir"), ("R", "relax"), ("T", "tir"))
}

_TRANSFORMS: Final = ("relaxpy.transform", "relaxpy.relax.transform", "relaxpy.tir.transform")

#: The modules in which the names are looked up that a program expects in another one.
_NEIGHBOURS: Final[Mapping[str, tuple[str, ...]]] = {
    "relaxpy": ("relaxpy.relax.frontend.onnx", "relaxpy.relax.frontend.torch", *_TRANSFORMS),
    **dict.fromkeys(_TRANSFORMS, _TRANSFORMS),
}


def _neighbour(module: str, name: str) -> str | None:
    """The hint that a name is public in another module than the one in which it is looked up."""
    for other in _NEIGHBOURS.get(module, ()):
        if other != module and name in import_module(other).__all__:
            return f"it is {other}.{name}"
    return None


def attribute_error(
    module: str, name: str, later: Iterable[str] = (), hint: str | None = None
) -> AttributeError | ImportError:
    """The error for a name that a module of relaxpy does not have; it finds `later` ones itself."""
    message = f"module {module!r} has no attribute {name!r}"
    if _caller().f_globals.get("__name__") == "importlib._bootstrap":
        return AttributeError(message)  # which imports the module of this name next
    hint = hint or instead_of(f"{module}.{name}")
    if module == "relaxpy":
        hint = hint or NAMESPACES.get(name)
    if hint is None and name.startswith("_"):
        return AttributeError(message)
    from relaxpy.errors import UnknownAttributeError, close_names  # `import relaxpy` is fast

    known = {*dir(sys.modules[module]), *later}
    public = sorted(other for other in known if not other.startswith("_"))
    hint = hint or _neighbour(module, name) or close_names(name, public)
    error = from_import_error(module, name, hint)
    return error or UnknownAttributeError(message, hint=hint, about=name)


def from_import_error(module: str, name: str, hint: str | None) -> ImportError | None:
    """The error with a hint of `from module import name`, if this is how the name is looked up.

    Python would replace an AttributeError there, and drop its hint.
    """
    if not hint:
        return None
    from opcode import opname  # only for an error: `import relaxpy` is fast

    frame = _caller()
    if opname[frame.f_code.co_code[frame.f_lasti]] != "IMPORT_FROM":
        return None
    from relaxpy.errors import UnknownImportError

    return UnknownImportError(f"cannot import name {name!r} from {module!r}", hint=hint)


def _caller() -> FrameType:
    """The innermost frame outside of the modules that look up names."""
    frame = sys._getframe(1)
    while frame.f_back is not None and "LOOKS_UP_NAMES" in frame.f_globals:
        frame = frame.f_back
    return frame


def hint_at_absent(namespace: dict[str, Any]) -> None:
    """Give a module its `__getattr__` (PEP 562), which type checkers do not see."""

    def __getattr__(name: str) -> Any:  # noqa: N807
        raise attribute_error(namespace["__name__"], name)

    namespace["__getattr__"] = __getattr__


@cache
def names_toml() -> str:
    """The text of the tables of public names: a program needs few of them, so nothing parses all.

    To import `tomllib` takes as long as to import `relaxpy`.
    """
    return (get_data("relaxpy", "names.toml") or b"").decode()


def part_of(place: str) -> str:
    """The package of a part of relaxpy, which may be left out, of a module or "module:name"."""
    names = place.partition(":")[0].split(".")
    return ".".join(names[: 3 if names[1:2] == ["plugins"] else 2])


class AbsentModules:
    """The last of the finders of modules, which knows those of the table, and tvm_ffi."""

    @staticmethod
    def find_spec(module: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The specification of an absent module, whose names are errors with its hint.

        Errors:
            ModuleNotFoundError: by whatever else is listed, or below it.
        """
        if module == _FFI:
            stand_in: Any = _FfiLoader()
            return ModuleSpec(module, stand_in)
        root, _, rest = module.partition(".")
        if root != "relaxpy":
            return None
        if rest in ABSENT_MODULES:
            loader: Any = _AbsentLoader()  # which needs no base class
            return ModuleSpec(module, loader, is_package=True)
        if module == part_of(module) and (
            rest.startswith("plugins.") or f"\n{module}." in names_toml()
        ):
            message = f"{module} is a part of relaxpy that is not installed"
            raise ModuleNotFoundError(message, name=module)
        names = rest.split(".")
        for count in range(1, len(names) + 1):
            if hint := instead_of(".".join(names[:count])):
                raise ModuleNotFoundError(f"no module named {module!r}; {hint}", name=module)
        return None


_FFI: Final = "tvm_ffi"
"""The package that programs of TVM import beside TVM."""


class _FfiLoader:
    """Finds the module of relaxpy where that package is not installed."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Leave the creation of a module to Python, which `exec_module` replaces."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Let the module of relaxpy be the one that is imported."""
        sys.modules[_FFI] = import_module(f"relaxpy.{_FFI}")


class _AbsentLoader:
    """Creates empty modules instead of absent ones."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Leave the creation of the module to Python."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Let every name of the module be an error with its hint."""
        hint_at_absent(vars(module))
