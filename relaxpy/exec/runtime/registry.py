"""The registry of packed functions, and the implementations of operators that users register."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, overload

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
from relaxpy.exec.runtime.packed import call_users
from relaxpy.exec.runtime.values import Value, from_packed
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import is_of_relaxpy
from relaxpy.ir.relax import nodes as rx
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

F = TypeVar("F", bound=Callable[..., Any])

_functions: dict[str, Callable[..., Any]] = {}
_pure_names: set[str] = set()
python_functions: dict[str, Callable[..., Any]] = {}
"""Functions of `vm.builtin.register_py_func`; packed functions of the same name take precedence."""
_PROVIDERS = (
    "relaxpy.exec.runtime.kv_cache",
    "relaxpy.exec.runtime.matrices",
    "relaxpy.exec.runtime.onnx_sequences",
    "relaxpy.exec.runtime.onnx_strings",
    "relaxpy.exec.runtime.operators",
    "relaxpy.exec.runtime.paged_kv_cache",
    "relaxpy.exec.runtime.sequences",
    "relaxpy.exec.runtime.tensor_cache",
    "relaxpy.exec.runtime.vm_builtins",
)
"""The modules that provide packed functions when they are imported."""


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


def provided(name: str, *, pure: bool = False) -> Callable[[F], F]:
    """A decorator that registers a function of relaxpy, unless a user's has the name already."""

    def enter(func: F) -> F:
        return func if name in _functions else _enter(name, func, False, pure)

    return enter


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
    if pure:
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
    if func is None:
        _import_providers()
        func = _found(name)
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


@cache
def _import_providers() -> None:
    for module in _PROVIDERS:
        importlib.import_module(module)


def _found(name: object) -> Callable[..., Any] | None:
    return _functions.get(name, python_functions.get(name)) if isinstance(name, str) else None


def is_registered_pure(name: str) -> bool:
    """Return whether the function under `name` was registered as pure."""
    if name not in _functions:
        get_global_func(name, allow_missing=True)  # which may register it
    return name in _pure_names


def list_global_func_names() -> list[str]:
    """The names of all packed functions, sorted."""
    _import_providers()
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
