"""The registry of packed functions, Python functions of modules, and tail calls of functions."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MethodType
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
from relaxpy.exec.runtime.checks import declared_result
from relaxpy.exec.runtime.users import call_users
from relaxpy.exec.runtime.values import Value, from_packed
from relaxpy.ir.core.memo import note
from relaxpy.ir.core.traverse import strongly_connected, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import Legalization, is_of_relaxpy
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.python_function import python_function, python_function_of, text_of
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

Planner: TypeAlias = Callable[[Any, Any, Any], Any]
"""The plan of calls on an object (`graph/sessions.py`), or None."""


def takes_self(function: Callable[..., Any]) -> bool:
    """True if a function is an unbound method."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a function of C
        return False
    return names[:1] == ["self"]


def bound_to(instance: object, module: IRModule) -> IRModule:
    """`module` with its Python functions as methods of `instance`."""
    result = module
    for name, function in module.pyfuncs.items():
        if takes_self(function):
            result = module.clone() if result is module else result
            method = MethodType(function, instance)
            result[name] = python_function(name, text_of(module[name]), method)
    return result


def with_instance(module: IRModule) -> IRModule:
    """`module` with its Python functions as methods of an instance of their class."""
    if not any(map(takes_self, module.pyfuncs.values())):
        return module
    return bound_to(module(), module)


def symbols(module: IRModule) -> Mapping[str, Callable[..., Any]]:
    """The Python functions of `module` by symbol; packed functions cannot have these symbols."""
    funcs = (func for func in module.functions.values() if isinstance(func, rx.ExternFunc))
    pairs = ((symbol_of(func), python_function_of(func)) for func in funcs)
    return {symbol: function for symbol, function in pairs if function is not None}


def resolve_python_callee(module: IRModule, name: str) -> rx.ExternFunc:
    """The callee of `call_py_func`: a Python function of the module or a packed function."""
    func = module.functions_by_name.get(name)
    is_python = isinstance(func, rx.ExternFunc) and python_function_of(func) is not None
    return func if is_python else rx.ExternFunc(name)  # type: ignore[return-value]


def symbol_of(func: rx.ExternFunc) -> str:
    """The symbol by which generated code looks up a packed or a Python function."""
    name = func.global_symbol
    return name if python_function_of(func) is None else f"@I.pyfunc {name}"


FunctionKey: TypeAlias = tuple[str, rx.Var | None]
"""The name of a global function, and the variable of a local function in it or None."""


def split_result(seq: rx.Expr) -> tuple[list[rx.Binding], rx.Expr]:
    """The call or If that computes the result of a sequence, and the bindings before it.

    If there is none, all bindings and the expression of the result.
    """
    if not isinstance(seq, rx.SeqExpr):
        return [], seq
    bindings = [binding for block in seq.blocks for binding in block.bindings]
    before, result = list(bindings), seq.body
    while before and _is_plain(before[-1]) and before[-1].var is result:
        result = before.pop().value
        if isinstance(result, (rx.Call, rx.If)):
            return before, result
    return bindings, seq.body


def _is_plain(binding: rx.Binding) -> bool:
    """True if a binding has no check, and its variable is visible after its block."""
    return isinstance(binding, rx.VarBinding) and not isinstance(binding.var, rx.DataflowVar)


@dataclass(frozen=True, slots=True)
class Jumps:
    """The tail calls of one function that are eliminated.

    They jump to the start of the function or, if `by_steps`, return to a trampoline that makes the
    call.
    """

    calls: frozenset[rx.Call] = frozenset()
    by_steps: bool = False


def find_jumps(functions: Mapping[str, rx.Function]) -> dict[FunctionKey, Jumps]:
    """The recursive tail calls of the functions of a module, local functions included.

    A function that calls itself becomes a loop, unless it defines functions, which capture the
    variables of their iteration. Infinite recursion, which no path leaves, has no jumps.
    """
    members: dict[FunctionKey, rx.Function] = {}
    for name, func in functions.items():
        members[name, None] = func
        members |= {(name, var): inner for var, inner in _local_functions(func.body)}
    results = {key: list(_results(func.body)) for key, func in members.items()}
    callees = {key: [_callee(r, key[0], members) for r in results[key]] for key in members}
    graph = {key: [c for c in callees[key] if c is not None] for key in members}
    jumps = {}
    for group in map(frozenset, strongly_connected(graph)):
        if all(callee in group for key in group for callee in callees[key]):
            continue
        for key in group:
            pairs = zip(results[key], callees[key], strict=True)
            calls = frozenset(r for r, c in pairs if c in group and isinstance(r, rx.Call))
            if calls:
                by_steps = len(group) > 1 or _defines_functions(members[key])
                jumps[key] = Jumps(calls, by_steps)
    return jumps


def _callee(
    result: rx.Expr, name: str, members: Mapping[FunctionKey, rx.Function]
) -> FunctionKey | None:
    """The function of the module that `result`, in the function `name`, calls."""
    if not isinstance(result, rx.Call) or declared_result(result) is not None:
        return None
    match result.op:
        case rx.GlobalVar(name_hint=other):
            key: FunctionKey = (other, None)
        case rx.Var() as var:
            key = (name, var)
        case _:
            return None
    func = members.get(key)
    return key if func is not None and len(func.params) == len(result.args) else None


def _local_functions(expr: rx.Expr) -> Iterator[tuple[rx.Var, rx.Function]]:
    """The functions defined in `expr`, at any depth, with their variables."""
    match expr:
        case rx.SeqExpr(blocks=blocks):
            for binding in chain.from_iterable(block.bindings for block in blocks):
                if binding.var is not None and isinstance(binding.value, rx.Function):
                    yield binding.var, binding.value
                yield from _local_functions(binding.value)
        case rx.If(true_branch=yes, false_branch=no):
            yield from _local_functions(yes)
            yield from _local_functions(no)
        case rx.Function(body=body):
            yield from _local_functions(body)
        case _:
            pass


def _defines_functions(func: rx.Function) -> bool:
    return any(isinstance(node, rx.Function) for node in walk(func.body))


def _results(seq: rx.Expr) -> Iterator[rx.Expr]:
    _, result = split_result(seq)
    if isinstance(result, rx.If):
        yield from _results(result.true_branch)
        yield from _results(result.false_branch)
    else:
        yield result


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
    """What replaces calls of a function by kernels, unless a user has replaced the function."""
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
