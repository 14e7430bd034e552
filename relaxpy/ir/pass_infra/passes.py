"""Passes: functions from module to module, their options, their context, and their composition."""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import field, fields, is_dataclass
from functools import lru_cache
from os import PathLike
from types import NoneType, TracebackType, UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from typing_extensions import override

from relaxpy.errors import (
    MisuseError,
    RelaxpyWarning,
    TransformError,
    UnknownNameError,
    UnknownOptionError,
    WellFormedError,
    check_type,
    close_names,
    unexpected,
)
from relaxpy.ir.core.node import Attrs, Node, is_function
from relaxpy.ir.hooks import call
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes.expr import evaluating
from relaxpy.support import progress
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_constructed, user_facing

_NAMES: Mapping[object, tuple[str, str]] = {
    bool: ("True or False", "Booleans"),
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    Callable: ("a function", "functions"),
    Mapping: ("a dict", "dicts"),
    Any: ("a value", "values"),
    object: ("a value", "values"),
}


def check_options(step: Hashable) -> None:
    """Check the options of a pass, and store its lists as tuples.

    Errors:
        MisuseError (also TypeError): an option is not of its declared type.
    """
    for name, kind in _declared(type(step)).items():
        value = getattr(step, name)
        if not _has_type(value, kind):
            raise unexpected(value, f"{name} is {_described(kind)}")
        if isinstance(value, list):
            object.__setattr__(step, name, tuple(value))


@lru_cache(maxsize=256)
def _declared(cls: type) -> Mapping[str, object]:
    """The options of a class with their types, none if these cannot be evaluated."""
    options = [field.name for field in fields(cls) if field.init] if is_dataclass(cls) else ()
    if not options:
        return {}
    try:
        hints = get_type_hints(cls)
    except NameError:
        return {}
    return {name: hints[name] for name in options}


def _has_type(value: Any, kind: Any) -> bool:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_has_type(value, choice) for choice in args)
    if origin is Literal:
        return isinstance(value, str | int) and value in args
    if origin is Callable:
        return is_function(value)
    if origin is tuple and args[1:] != (...,):
        return (
            isinstance(value, tuple)
            and len(value) == len(args)
            and all(map(_has_type, value, args))
        )
    if origin in (Sequence, list, tuple):
        return isinstance(value, list | tuple) and all(_has_type(v, args[0]) for v in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _has_type(key, args[0]) and _has_type(member, args[1]) for key, member in value.items()
        )
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return kind is Any or not isinstance(kind, type) or isinstance(value, kind)


def _described(kind: Any, *, several: bool = False) -> str:
    """The name of a type in messages; its plural for `several`, after "of"."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_described(k, several=several) for k in args if k is not NoneType)
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin is tuple and args[1:] != (...,):
        return "tuples" if several else "a tuple"
    if origin in (Sequence, list, tuple):
        return f"{'lists' if several else 'a list'} of {_described(args[0], several=True)}"
    if origin is Mapping and not several:
        return f"a dict from {' to '.join(_described(k, several=True) for k in args)}"
    if (names := _NAMES.get(origin or kind)) is not None:
        return names[several]
    name = kind.__name__ if isinstance(kind, type) else "value"
    if several:
        return f"{name}s"
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


V = TypeVar("V")
C = TypeVar("C")
Requirement: TypeAlias = "str | Pass | type[Pass]"
_known: dict[str, dict[str, type[Pass]]] = {}
"""The classes of passes by their names, and those of each name by their full names."""


def _full_name(cls: type[Pass]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


@dataclass(frozen=True, slots=True)
class PassInfo:
    """The name of a pass, the optimisation level from which on it runs, and its required passes.

    `full_name` includes the module of its class, and so does `name` if several classes share it.
    """

    opt_level: int
    name: str
    required: tuple[Requirement, ...] = ()
    traceable: bool = False
    full_name: str = field(default="", kw_only=True, compare=False)

    @override
    def __str__(self) -> str:
        required = ", ".join(
            step if isinstance(step, str) else required_pass(step).info.name
            for step in self.required
        )
        return f"pass name: {self.name}, opt_level: {self.opt_level}, required passes: [{required}]"


class Pass(ABC):
    """A pure function from module to module, whose options are fields of a frozen dataclass.

    If nothing changes, it returns the module itself. `required` are passes, classes of passes, or
    names; the name of a pass of relaxpy refers to that pass even if other classes have the name.
    """

    opt_level: ClassVar[int] = 0
    required: ClassVar[tuple[Requirement, ...]] = ()
    module_kind: ClassVar[type[Node]] = IRModule

    @override
    def __init_subclass__(cls) -> None:
        _known.setdefault(cls.__name__, {})[_full_name(cls)] = cls

    @user_facing
    def __new__(cls, *args: object, **options: object) -> Self:
        """A pass of the class, which takes options.

        Errors:
            MisuseError (also TypeError): the first option is the module.
        """
        if args and isinstance(args[0], IRModule):
            name = cls.__name__
            raise MisuseError(
                f"{name}(...) makes the pass, which takes options; it found an IRModule",
                hint=f"write {name}()(mod)",
                about=args[0],
            )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def info(self) -> PassInfo:
        """Name, level and requirements."""
        cls = type(self)
        name, full_name = cls.__name__, _full_name(cls)
        candidates = _candidates(name)
        if full_name not in candidates or len(candidates) > 1:
            name = full_name
        return PassInfo(self.opt_level, name, self.required, full_name=full_name)

    @abstractmethod
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The module after the pass; `mod` itself if nothing changed."""

    def verify(self, mod: IRModule) -> None:
        """Check that the result is well-formed.

        Errors:
            WellFormedError: it is not; the error has all violations.
        """
        verify(mod)

    @user_facing
    def __call__(self, mod: IRModule) -> IRModule:
        """The module after the pass, run in the current PassContext.

        Errors:
            MisuseError (also TypeError): `mod` is not an IRModule.
            TransformError: the pass cannot be applied to it.
        """
        if not isinstance(mod, self.module_kind):
            raise MisuseError(
                f"pass {self.info.name} takes an IRModule, found {type(mod).__name__}",
                hint="decorate the class with @I.ir_module"
                if isinstance(mod, type)
                else "IRModule.from_expr makes a module of one function",
                about=mod,
            )
        from relaxpy.ir.pass_infra.reproducer import reproducible  # programs from the disk: unused

        progress.now(self.info.name)
        context = PassContext.current()
        with evaluating(None), reproducible(self, mod, context.reproducer_dir, context.options):
            return context.run(self, mod)


class PassInstrument:
    """Watches passes run; subclasses override what they need."""

    @property
    def name(self) -> str:
        """The name of the instrument."""
        return type(self).__name__

    def enter_pass_ctx(self) -> None:
        """The context is entered."""

    def exit_pass_ctx(self) -> None:
        """The context is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """True if the pass is to run; it runs if all instruments agree."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """The pass is about to run on `mod`."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """The pass has returned `mod`."""


def pass_instrument(pi_cls: type[C]) -> type[C]:
    """The decorated class as an instrument, whose other methods do nothing.

    Errors:
        MisuseError (also TypeError): `pi_cls` is not a class.
    """
    check_type(pi_cls, type, "an instrument is a class")
    if issubclass(pi_cls, PassInstrument):
        return pi_cls
    mixed: type[C] = type(pi_cls.__name__, (pi_cls, PassInstrument), {"__doc__": pi_cls.__doc__})
    return mixed


_configs: dict[str, type] = {}
_positive: set[str] = set()
_fields_by_option: dict[str, Mapping[str, int]] = {}
_no_effect: dict[str, str] = {}


def register_config(
    name: str,
    kind: type,
    *,
    positive: bool = False,
    fields: Mapping[str, int] | None = None,
    no_effect: str | None = None,
) -> None:
    """Register an option: contexts accept a value of type `kind` as `config[name]`.

    If it has to be `positive`, other numbers are refused. `fields` are the names that a table may
    have, with their defaults: `config[name].field` is a value of the table, or else the default.
    Entering a context with an option that has `no_effect`, for this reason, is a warning.
    """
    _configs[name] = kind
    if positive:
        _positive.add(name)
    if fields is not None:
        _fields_by_option[name] = fields
    if no_effect is not None:
        _no_effect[name] = no_effect


def _with_defaults(key: str, value: Any) -> Any:
    """The value of an option, with the defaults of fields that its table leaves out."""
    defaults = _fields_by_option.get(key)
    if defaults is None:
        return value
    for name in value:
        if name not in defaults:
            raise MisuseError(
                f"{key} has no option {name!r:.60}",
                hint=close_names(str(name), defaults),
                about=value,
            )
    return Attrs({**defaults, **value})


def _option(key: str) -> str:
    """The key of an option, which may have its name in TVM 0.27."""
    for prefix in ("tirx.", "s_tir."):
        if isinstance(key, str) and key.startswith(prefix):
            name = key.removeprefix(prefix)
            return f"tir.{name.removeprefix('Stmt') if name == 'StmtSimplify' else name}"
    return key


@dataclass(slots=True, eq=False)
class PassContext:
    """The options of passes: their level, required and disabled passes, and instruments.

    With `check`, the result of each pass is checked for well-formedness. With `check="values"`, the
    reference evaluator also calls the public functions before and after each pass: those in
    `check_inputs` with the arguments that it has for their names; without it, all with random ones.

    If a pass fails, the module and the passes that were left are written to a file in
    `reproducer_dir`, or else in the folder that RELAXPY_REPRODUCER_DIR names, for `relaxpy opt`.

    `running` are the passes that run at present, each inside the one before it. Names of passes
    that do not exist have no effect; leaving the context warns of those that are close to the name
    of one that exists. Options of TVM without effect are accepted, and entering the context warns.

    Errors:
        MisuseError: a key of `config` is unknown, its value has the wrong type, one of
            `instruments` is not an instrument, or there are inputs without a check of values.
    """

    opt_level: int = 2
    required_pass: Sequence[str] | None = None
    disabled_pass: Sequence[str] | None = None
    instruments: Sequence[Any] | None = None
    config: Mapping[str, Any] | None = None
    check: bool | Literal["values"] = field(default=False, kw_only=True)
    check_inputs: Mapping[str, Sequence[Any]] | None = field(default=None, kw_only=True)
    reproducer_dir: str | PathLike[str] | None = field(default=None, kw_only=True)
    running: list[PassInfo] = field(default_factory=list, init=False, repr=False)
    _met: set[str] = field(default_factory=set, init=False, repr=False)
    _checks: tuple[PassInstrument, ...] = field(default=(), init=False, repr=False)
    _entered: list[Any] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.opt_level, bool) or not isinstance(self.opt_level, int):
            raise unexpected(self.opt_level, "opt_level is an integer")
        self.required_pass = listed(self.required_pass, "names of passes")
        self.disabled_pass = listed(self.disabled_pass, "names of passes")
        self.instruments = _instruments(self.instruments)
        self._checks = self._value_checks()
        check_type(self.config, Mapping | None, "config is a table")
        self.config = {_option(key): value for key, value in (self.config or {}).items()}
        for key, value in self.config.items():
            if key not in _configs:
                call("passes")  # which register their options when they are loaded
            kind = _configs.get(key)
            if kind is None:
                raise UnknownOptionError(
                    f"there is no option {key!r} for passes",
                    hint=close_names(str(key), _configs, "PassContext"),
                    about=key,
                )
            is_of_kind = isinstance(value, kind)
            if not is_of_kind:
                expected = f"option {key} is of type {kind.__name__}"
                raise UnknownOptionError(unexpected(value, expected).diagnostic)
            if key in _positive and value < 1:
                raise unexpected(value, f"option {key} is at least 1")
            self.config[key] = _with_defaults(key, value)

    def _value_checks(self) -> tuple[PassInstrument, ...]:
        """The instrument that compares values, if `check` requests it."""
        if not isinstance(self.check, bool) and str(self.check) != "values":
            raise unexpected(self.check, 'check is a bool or "values"')
        inputs = self.check_inputs
        if inputs is None:
            return (call("value_check"),) if self.check == "values" else ()
        if self.check != "values":
            raise MisuseError('check_inputs is for check="values"', about=inputs)
        if not isinstance(inputs, Mapping) or not all(
            isinstance(args, (list, tuple)) for args in inputs.values()
        ):
            raise unexpected(
                inputs,
                "check_inputs has arguments by names of functions",
                hint='write check_inputs={"main": (x, y)}',
            )
        return (call("value_check", inputs),)

    @property
    def options(self) -> dict[str, Any]:
        """Settings of which passes run, and how, where they differ from the default context."""
        level = {} if self.opt_level == 2 else {"opt_level": self.opt_level}
        names = ("required_pass", "disabled_pass", "config")
        return level | {name: getattr(self, name) for name in names if getattr(self, name)}

    def with_instruments(
        self, instruments: Sequence[PassInstrument], **changes: Any
    ) -> PassContext:
        """A context with these instruments, and otherwise the options of this one or `changes`."""
        options = (f.name for f in fields(self) if f.init)
        kept = {name: getattr(self, name) for name in options}
        return PassContext(**kept | {"instruments": instruments} | changes)

    @staticmethod
    def current() -> PassContext:
        """The innermost context entered with `with`, or the default one of the thread."""
        context = _current.get()
        return _defaults.context if context is None else context

    @property
    def is_default(self) -> bool:
        """True if this context has the options of the default one."""
        options = self.required_pass, self.disabled_pass, self.instruments, self.config
        return not any((*options, self.check, self.reproducer_dir)) and self.opt_level == 2

    @staticmethod
    def list_configs() -> dict[str, dict[str, str]]:
        """Every option that `config` may hold, with its type."""
        call("passes")
        return {name: {"type": kind.__name__} for name, kind in sorted(_configs.items())}

    def __enter__(self) -> Self:
        outer = PassContext.current().config or {}
        for key in sorted((self.config or {}).keys() & _no_effect.keys() - outer.keys()):
            message = f"option {key} has no effect: {_no_effect[key]}"
            warnings.warn(message, RelaxpyWarning, stacklevel=2)
        self._enter_instruments()
        self._entered.append(_current.set(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _current.reset(self._entered.pop())
        self._exit_instruments()
        if error is not None:
            return
        for name in (*(self.required_pass or ()), *(self.disabled_pass or ())):
            hint = None if name in self._met else _hint_of_name(name)
            if hint is not None:
                message = f"there is no pass named {name!r}; {hint}"
                warnings.warn(message, RelaxpyWarning, stacklevel=2)

    def _enter_instruments(self) -> None:
        with ExitStack() as entered:
            for instrument in self.instruments or ():
                instrument.enter_pass_ctx()
                entered.callback(instrument.exit_pass_ctx)
            entered.pop_all()

    def _exit_instruments(self) -> None:
        """Leave all instruments, in order, even if one of them fails."""
        with ExitStack() as exits:
            for instrument in reversed(self.instruments or ()):
                exits.callback(instrument.exit_pass_ctx)

    def override_instruments(self, instruments: Sequence[PassInstrument] | None) -> None:
        """Leave the present instruments and enter others instead."""
        others = _instruments(instruments)
        try:
            self._exit_instruments()
        finally:
            self.instruments = ()
        self.instruments = others
        try:
            self._enter_instruments()
        except BaseException:
            self.instruments = ()  # so that instruments that were not entered are not left
            raise

    def is_enabled(self, info: PassInfo) -> bool:
        """True if a pass of a sequence runs in this context.

        Errors:
            MisuseError: the context names it by a name that several classes have.
        """
        self._met |= {info.name, info.full_name}
        if _is_named(info, self.disabled_pass or ()):
            return False
        return _is_named(info, self.required_pass or ()) or info.opt_level <= self.opt_level

    def run(self, step: Pass, mod: IRModule) -> IRModule:
        """The module after one pass, which runs with instruments and checks.

        Errors:
            WellFormedError: `check` is set, and the result is ill-formed.
            TransformError: it is "values", and the result computes something else.
        """
        info = step.info
        self._met |= {info.name, info.full_name}
        instruments = (*(self.instruments or ()), *self._checks)
        required = _is_named(info, self.required_pass or ())
        agreed = [required or i.should_run(mod, info) for i in instruments]
        if not all(agreed):
            return mod
        self.running.append(info)
        try:
            for instrument in instruments:
                instrument.run_before_pass(mod, info)
            with _noting(f"in pass {info.name}"):
                result = step.transform(mod, self)
            if not isinstance(result, step.module_kind):
                raise TransformError(
                    f"pass {info.name} returned {type(result).__name__}, not an IRModule",
                    hint="return the module" if result is None else None,
                )
            if self.check and result is not mod:
                with _noting(f"after pass {info.name}"):
                    step.verify(result)
            with _noting(f"after pass {info.name}"):
                for instrument in instruments:
                    instrument.run_after_pass(result, info)
        finally:
            self.running.pop()
        return result


def listed(values: Sequence[V] | None, what: str) -> tuple[V, ...]:
    """The values of a list, or none for None.

    Errors:
        MisuseError (also TypeError): it is neither.
    """
    if isinstance(values, str) or not isinstance(values, Sequence | None):
        hint = None if isinstance(values, str) else "write a list, also for one: [...]"
        raise unexpected(values, f"expected a list of {what}", hint=hint)
    return tuple(values or ())


def _instruments(values: Sequence[PassInstrument] | None) -> tuple[PassInstrument, ...]:
    """The instruments of a list. Errors: MisuseError if one of them is something else."""
    for value in listed(values, "instruments"):
        if not isinstance(value, PassInstrument):
            is_class = isinstance(value, type)
            raise unexpected(
                value,
                "expected an instrument",
                hint=f"create an instance: {value.__name__}()"
                if is_class
                else "derive its class from PassInstrument, or decorate it with pass_instrument",
            )
    return tuple(values or ())


_current: ContextVar[PassContext | None] = ContextVar("relaxpy_pass_context", default=None)


class _Defaults(threading.local):
    """The context of each thread outside of `with`, which has nothing set at first."""

    def __init__(self) -> None:
        self.context = PassContext()


_defaults = _Defaults()


@contextmanager
def _noting(note: str) -> Iterator[None]:
    """Add a note to errors of a pass, unless a nested pass has added one."""
    try:
        yield
    except Exception as error:  # of any kind: it is raised again with a note
        if not getattr(error, "__notes__", None):
            error.add_note(note)
        raise


def verify(mod: IRModule) -> None:
    """Check that the module is well-formed.

    Errors:
        WellFormedError: it is not; the error has all violations.
    """
    from relaxpy.ir.relax.analysis.well_formed import check_well_formed  # most start without it

    violations = check_well_formed(mod)
    if violations:
        raise WellFormedError(violations)


@user_constructed
@dataclass(frozen=True)
class Sequential(Pass):
    """Runs the passes that the context enables in order, each after the passes it requires."""

    passes: Sequence[Pass] = ()
    opt_level: int = 0  # type: ignore[misc]
    name: str = "sequential"
    required: Sequence[Requirement] = ()  # type: ignore[misc,assignment]
    traceable: bool = False

    @override
    def __post_init__(self) -> None:
        for step in listed(self.passes, "passes"):
            if not isinstance(step, Pass):
                is_class = isinstance(step, type) and issubclass(step, Pass)
                name = step.__name__ if is_class else step if isinstance(step, str) else None
                raise unexpected(
                    step, "expected a pass", hint=f"create an instance: {name}()" if name else None
                )
        object.__setattr__(self, "passes", tuple(self.passes or ()))

    @property
    @override
    def module_kind(self) -> type[Node]:  # type: ignore[override]
        """The kind of module that its first pass takes."""
        return self.passes[0].module_kind if self.passes else IRModule

    @override
    def verify(self, mod: IRModule) -> None:
        for step in self.passes[-1:]:
            step.verify(mod)

    @property
    @override
    def info(self) -> PassInfo:
        return PassInfo(self.opt_level, self.name, tuple(self.required or ()), self.traceable)

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for index, step in enumerate(self.passes):
            info = step.info
            if not ctx.is_enabled(info):
                continue
            try:
                for required in info.required:
                    mod = required_pass(required)(mod)
                mod = step(mod)
            except Exception as error:  # of any kind: it is raised again
                from relaxpy.ir.pass_infra.reproducer import add_remaining  # only for an error

                add_remaining(error, self._after(index, ctx))
                raise
        return mod

    def _after(self, failed: int, ctx: PassContext) -> list[Pass]:
        """The passes that are still to run after one that failed."""
        return [step for step in self.passes[failed + 1 :] if ctx.is_enabled(step.info)]


def required_pass(step: object) -> Pass:
    """The pass that is required: itself, or one of a class or name, without options.

    Errors:
        UnknownNameError: there is no pass of that name.
        MisuseError: there are several, the pass needs options, or it is not a pass.
    """
    if isinstance(step, Pass):
        return step
    cls = _named_class(step) if isinstance(step, str) else step
    if not isinstance(cls, type) or not issubclass(cls, Pass):
        raise unexpected(step, "a required pass is a pass or its name")
    try:
        return cls()
    except TypeError:
        raise MisuseError(
            f"pass {cls.__name__} has options, so that it cannot be required without them",
            hint=f"require the pass itself: {cls.__name__}(...)",
            about=step,
        ) from None


def _candidates(plain: str) -> Mapping[str, type[Pass]]:
    """The classes that a plain name can refer to: those of relaxpy, or else all of that name."""
    classes = _known.get(plain, {})
    own = {name: cls for name, cls in classes.items() if name.startswith("relaxpy.")}
    return own or classes


def _is_named(info: PassInfo, names: Sequence[str]) -> bool:
    """True if a list of plain or full names has the name of a pass."""
    if info.name in names or info.full_name in names:
        return True
    plain = info.full_name.rpartition(".")[2]
    return plain in names and _named_class(plain) is _known[plain].get(info.full_name)


def _hint_of_name(name: str) -> str | None:
    """The names close to one that no class of passes has."""
    plain = name.rpartition(".")[2]
    if plain not in _known:
        call("passes")
    return None if plain in _known else close_names(plain, _known)


def _named_class(name: str) -> type[Pass]:
    """The class of a full name, or of a plain name: that of relaxpy, or the only one."""
    plain = name.rpartition(".")[2]
    if plain not in _known:
        call("passes")
    if plain not in _known:
        raise UnknownNameError(
            f"there is no pass named {name!r}", hint=close_names(plain, _known), about=name
        )
    if name in _known[plain]:
        return _known[plain][name]
    candidates = _candidates(plain)
    if len(candidates) > 1:
        raise MisuseError(
            f"several passes are called {plain}: {', '.join(sorted(candidates))}",
            hint="use one of these names, or require the class itself",
            about=name,
        )
    return next(iter(candidates.values()))
