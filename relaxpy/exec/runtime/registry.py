"""The registry of packed functions, and what users register for operators."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

from relaxpy import plugin
from relaxpy.errors import (
    MisuseError,
    PackedFuncError,
    RuntimeCheckError,
    Span,
    UnknownPackedFuncError,
    close_names,
    unexpected,
)
from relaxpy.exec.runtime.users import call_users
from relaxpy.exec.runtime.values import Value, from_packed
from relaxpy.ir.core.memo import note
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import Legalization, is_of_relaxpy
from relaxpy.ir.relax import nodes as rx
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

Planner: TypeAlias = Callable[[Any, Any, Any], Any]
"""The plan of calls on an object (`graph/sessions.py`), or None."""

F = TypeVar("F", bound=Callable[..., Any])

_functions: dict[str, Callable[..., Any]] = {}
registered = _functions.get
"""The function that is registered under a name, or None."""
_pure_names: set[str] = set()
_planners: dict[str, tuple[Callable[..., Any], Planner]] = {}
_legalizations: dict[str, tuple[Callable[..., Any], Legalization]] = {}
python_functions: dict[str, Callable[..., Any]] = {}
"""Functions of `vm.builtin.register_py_func`; packed functions of the same name take precedence."""
_PROVIDERS = (
    "relaxpy.exec.runtime.growing",
    "relaxpy.exec.runtime.operators",
    "relaxpy.exec.runtime.vm_builtins",
)
"""The modules of the core that provide packed functions when they are imported."""


@overload
def register_func(
    name: str, f: None = None, override: bool = False, *, pure: bool = False
) -> Callable[[F], F]: ...
@overload
def register_func(name: str, f: F, override: bool = False, *, pure: bool = False) -> F: ...
@overload
def register_func(name: F) -> F: ...
@user_facing
def register_func(
    name: str | F, f: F | None = None, override: bool = False, *, pure: bool = False
) -> F | Callable[[F], F]:
    """Register `f` under `name`, or return a decorator that does.

    `register_func(f)` uses the name of `f`.

    `pure` promises that calling `f` has no visible effect (PU-4), besides that it writes the
    outputs that `call_dps_packed` passes.

    Errors:
        PackedFuncError (also ValueError): the name is taken, and `override` is not set.
        MisuseError (also TypeError): the name is not a string, or `f` is not callable.
    """
    if callable(name):
        return _enter(getattr(name, "__name__", ""), name, override, pure)
    if f is not None:
        return _enter(name, f, override, pure)

    def enter(func: F) -> F:
        return _enter(name, func, override, pure)

    return enter


def provided(
    name: str,
    *,
    pure: bool = False,
    planned: Planner | None = None,
    alone: Legalization | None = None,
) -> Callable[[F], F]:
    """A decorator that registers a function of relaxpy, unless a user's has the name already.

    The calls of one that can be `planned` are steps of native functions, which may repeat them. In
    programs that are exported, `alone` replaces calls of the function by kernels.
    A function that replaces it is pure, too, since programs that were compiled before make their
    text when they first call it.
    """

    def enter(func: F) -> F:
        if planned is not None:
            _planners[name] = func, planned
            _pure_names.add(name)
        if alone is not None:
            _legalizations[name] = func, alone
        return func if name in _functions else _enter(name, func, False, pure)

    return enter


def planner(name: str) -> Planner | None:
    """The planner of calls of the function under `name`, unless a user has replaced that."""
    func = _found(name) or get_global_func(name, allow_missing=True)
    known, plan = _planners.get(name, (None, None))
    return plan if known is func else None


def legalization(name: str) -> Legalization | None:
    """The kernels that replace calls of a function, unless a user has replaced the function."""
    func = _found(name) or get_global_func(name, allow_missing=True)
    known, found = _legalizations.get(name, (None, None))
    return found if known is func else None


def _enter(name: str, func: F, override: bool, pure: bool) -> F:
    if not isinstance(name, str) or not name:
        raise unexpected(name, "a packed function's name is a string")
    if not callable(func):
        raise MisuseError(
            f"a packed function is callable, found {func!r:.60} for {name!r}", about=func
        )
    if name in _functions and not override:
        raise PackedFuncError(
            f"a packed function {name!r} is already registered",
            hint="pass override=True to replace it",
            about=name,
        )
    _functions[name] = func
    if pure or name in _planners:
        _pure_names.add(name)
    else:
        _pure_names.discard(name)
    return func


@overload
def get_global_func(name: str) -> Callable[..., Any]: ...
@overload
def get_global_func(name: str, allow_missing: bool) -> Callable[..., Any] | None: ...
@user_facing
def get_global_func(name: str, allow_missing: bool = False) -> Callable[..., Any] | None:
    """The packed function that is registered under `name`, or None if `allow_missing` is set.

    Errors:
        UnknownPackedFuncError (also ValueError, KeyError): there is no such function (EV-13).
    """
    func = _found(name)
    for module in () if func is not None else _providers():
        importlib.import_module(module)
        func = _found(name)
        if func is not None:
            break
    if func is None and plugin.load("functions"):
        func = _found(name)
    if func is None and not allow_missing:
        raise UnknownPackedFuncError(
            f"no packed function is registered as {name!r}",
            rule="EV-13",
            hint=close_names(str(name), _functions)
            or f"register it: relaxpy.register_func({name!r}, f)",
            about=name,
        )
    return func


def _providers() -> Iterator[str]:
    """The modules that provide packed functions: those of the core, and of plug-ins beside it.

    Those of packages that are installed take longer to find.
    """
    yield from _PROVIDERS
    for beside in plugin.own():
        yield from beside.functions


def _found(name: object) -> Callable[..., Any] | None:
    return _functions.get(name, python_functions.get(name)) if isinstance(name, str) else None


def is_registered_pure(name: str) -> bool:
    """True if the function under `name` was registered as pure; this is noted."""
    return _answer("pure", name)


def is_own(name: str) -> bool:
    """True if relaxpy's function is under `name`, which no user has replaced; this is noted."""
    return _answer("own", name)


def is_planned(name: str) -> bool:
    """True if calls of the function under `name` can be planned; this is noted."""
    return _answer("planned", name)


def _is_pure(name: str) -> bool:
    if name not in _functions:
        get_global_func(name, allow_missing=True)  # which may register it
    return name in _pure_names


_QUESTIONS: Mapping[str, Callable[[str], bool]] = {
    "pure": _is_pure,
    "own": lambda name: is_of_relaxpy(get_global_func(name, allow_missing=True)),
    "planned": lambda name: planner(name) is not None,
}
"""The facts that compilation asks about a packed function."""


class Answer(NamedTuple):
    """The answers of the registry, on which compiled programs depend."""

    question: str
    name: str
    is_so: bool


def _answer(question: str, name: str) -> bool:
    is_so = _QUESTIONS[question](name)
    note(Answer(question, name, is_so))
    return is_so


def answers_in(reads: Iterable[object]) -> tuple[Answer, ...]:
    """The answers among `noted_reads`, sorted."""
    return tuple(sorted(reading for reading in reads if isinstance(reading, Answer)))


def still_hold(answers: Iterable[Sequence[Any]]) -> bool:
    """True if the registry answers the same now; these answers are noted, too.

    Errors:
        LookupError, TypeError, ValueError: they are not answers.
    """
    return all(_answer(question, name) == is_so for question, name, is_so in answers)


def list_global_func_names() -> list[str]:
    """The names of all packed functions, sorted."""
    for module in _PROVIDERS:
        importlib.import_module(module)
    plugin.load("functions")
    return sorted(_functions)


@user_facing
def remove_global_func(name: str) -> None:
    """Remove the function under `name` from the registry.

    Errors:
        UnknownPackedFuncError (also ValueError, KeyError): there is no such function.
    """
    get_global_func(name)
    del _functions[name]
    _pure_names.discard(name)


def packed_function(name: str, default: Value | None, span: Span | None) -> Callable[..., Any]:
    """The function that is registered under `name`, or else `default` (EV-13, EV-14).

    Errors:
        UnknownPackedFuncError: there is neither; its position is `span`.
    """
    func = _functions.get(name, default)
    if func is not None:
        return func
    try:
        return get_global_func(name)
    except UnknownPackedFuncError as error:
        raise error.located(span) from None


def call_packed(name: str, args: tuple[Value, ...]) -> Value:
    """Call the packed function under `name`; return its result as a value (EV-19)."""
    return from_packed(call_users(get_global_func(name), name, args), ())


_VALUES = (rx.TensorStructInfo, rx.ShapeStructInfo, rx.PrimStructInfo)


@dataclass(frozen=True, slots=True)
class UsersImplementation:
    """An implementation that a user registered; its result is converted to a value."""

    operator: str
    function: Callable[..., object]
    result: rx.StructInfo
    span: Span | None

    def __call__(self, *args: Value, **attrs: object) -> Value:
        """The result, as a value.

        Errors:
            RuntimeCheckError: it is None instead of a tensor, a shape or a scalar.
        """
        found = self.function(*args, **attrs)
        if found is None and isinstance(self.result, _VALUES):
            raise RuntimeCheckError(
                f"the implementation of {self.operator} returned None, expected {self.result}",
                span=self.span,
            )
        return from_packed(found, (self.result,))


def implementation(call: rx.Call) -> Callable[..., Value]:
    """The implementation of the operator of a call, which has one."""
    assert isinstance(call.op, Op)
    function = call.op.record.runtime
    assert function is not None
    if is_of_relaxpy(function):
        return function
    sinfo = call.struct_info or rx.ObjectStructInfo()
    return UsersImplementation(call.op.name, function, sinfo, call.span)
