"""Executables: compiled functions by name, the generated source, and a report on the kernels."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from os import PathLike
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias, overload
from weakref import ref

import numpy as np
from typing_extensions import override

from relaxpy.errors import (
    MisuseError,
    RelaxpyError,
    RuntimeCheckError,
    UnknownNameError,
    close_names,
    unknown_attribute,
)
from relaxpy.exec.api.stateful import StatefulCalls
from relaxpy.exec.runtime.checks import Bindings, PublicFunctions, Signature, ValueInfo
from relaxpy.exec.runtime.report import CompileReport, ExecutionReport, kernel_sources
from relaxpy.exec.runtime.values import Value, user_argument
from relaxpy.exec.store.container import Container, Sections, path_to_write
from relaxpy.ir import hooks
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.node import CopiedByReference
from relaxpy.ir.core.target import target_facts
from relaxpy.ir.core.tensor import as_torch, has_torch
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import Constant
from relaxpy.ir.serialize import save_table
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.entry import user_facing
from relaxpy.support.frames import is_user_frame, keep_callback_frames
from relaxpy.support.progress import long_work
from relaxpy.support.screen import Table

if TYPE_CHECKING:
    from pathlib import Path

    from relaxpy.exec.api.cross import Native
    from relaxpy.exec.inspect.check_values import ValueCheck
    from relaxpy.exec.inspect.memory_use import MemoryUse
    from relaxpy.exec.inspect.profile import Profile, ProfileComparison
    from relaxpy.exec.program.graph.times import Times
    from relaxpy.exec.program.lower.python_module import Backend
    from relaxpy.exec.program.table import CompiledProgram
    from relaxpy.exec.runtime.instrument import Instrument

MachineCode: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
"""The machine code of a file in its JSON form: for this CPU, or for several."""
SourceKind: TypeAlias = Literal["tree", "python", "llvm", "asm"]
_DESCRIPTIONS: Final = frozenset(("as_text", "as_python", "stats"))
_ndarray: Final = np.ndarray
CHECKS_VALUES: Final = ContextVar("CHECKS_VALUES", default=False)
"""True if the values of calls are checked."""


class Form(Protocol):
    """Answers about a compiled module, besides its functions."""

    @property
    def new_backend(self) -> Callable[[], Backend] | None:
        """The factory that compiles kernels again, unless the reference evaluator runs them."""

    def source(self) -> str:
        """The generated Python source, or the program as text."""

    def instrumented(self, instrument: Instrument) -> Mapping[str, Callable[..., Value]]:
        """The functions by name, compiled to report calls to an instrument."""

    def timed(
        self, instrument: Instrument
    ) -> tuple[Mapping[str, Callable[..., Value]], Times | None]:
        """The functions by name, which report calls in Python, and the times of native code."""

    def machine_code(self, sections: Sections) -> MachineCode:
        """The code that a file contains besides the program, with the numbers of sections."""


class Program:
    """The module and target of an executable, and the function that compiles its saved form.

    The module may be a function that returns it lazily. `saved_target` is the one that was
    requested: a default is decided again where it is loaded. `codes` are the targets that a file
    has code for instead. `written` gives the module before the passes of `pipeline`, if it is
    known, and `public` has its functions. `compiled` is the table that runs, unless that is the
    reference evaluator, and `form` gives what else can be asked of the compiled module. `keep` is
    an object that has to outlive the program.
    """

    def __init__(
        self,
        module: IRModule | Callable[[], IRModule],
        target: str,
        saved_target: str,
        reload: Callable[[Container], Executable],
        keep: object = None,
        schedules: str | None = None,
    ) -> None:
        self.keep = keep
        self.written: Callable[[], IRModule | None] = lambda: None
        self.pipeline: str | Callable[[IRModule], IRModule] | None = "default"
        self.codes: Native | Sequence[Native] | None = None
        self.compiled: CompiledProgram | None = None
        self.public: PublicFunctions = {}
        self.form: Callable[[], Form]
        self._module = module
        self.target = target
        self.saved_target = saved_target
        self.reload = reload
        self.schedules = schedules

    @property
    def module(self) -> IRModule:
        """The program that runs, after all passes."""
        return self._module if isinstance(self._module, IRModule) else self._module()

    @late_property
    def saved(self) -> Container:
        """The saved form, which `reload` compiles, with machine code for the target native.

        Errors:
            MisuseError: the program contains an object without a JSON form.
        """
        sections = Sections()
        table = save_table(self.module, sections.add)
        code = self.form().machine_code(sections)
        content = {"target": self.saved_target, "module": table, "native": code}
        if self.schedules is not None:
            content["schedules"] = self.schedules
        return Container.of(content, sections)


def _saved_entry(reload: Callable[[Container], Executable], saved: Container, name: str) -> Any:
    return reload(saved)[name]


class EntryPoint(CopiedByReference):
    """A function of an executable, callable with arrays, scalars and objects that support DLPack.

    Results are tensors of torch if an argument is one, otherwise arrays. Arguments may be passed
    by name if the names of the parameters are unique. A pickle contains the saved executable, which
    a process loads once.

    Errors:
        RuntimeCheckError: the number of arguments is wrong, or a check of the program failed.
        FunctionSignatureError: an argument does not match its parameter.
    """

    __slots__ = ("__weakref__", "_arity", "_direct", "_program", "_run", "signature")

    def __init__(
        self,
        signature: Signature,
        run: Callable[..., Value],
        program: Program,
        direct: Callable[[Callable[..., Value]], Callable[..., Value]] | None = None,
    ) -> None:
        """`direct` returns a function that takes arguments unchanged, or else calls another."""
        self.signature = signature
        self._run = run
        self._program = program
        self._arity = len(signature.params)
        self._direct = None if direct is None else direct(self._converted_call)

    def __call__(self, /, *args: object, **kwargs: object) -> Value:
        """Call the function."""
        __tracebackhide__ = True
        try:
            if kwargs:
                args = self.positional_args(args, kwargs)
            if len(args) != self._arity:
                self.signature.check_count(len(args), args)
            if self._direct is not None:
                return self._direct(*args)
            for arg in args:
                if type(arg) is not _ndarray:
                    return self._converted_call(*args)
            result = self._run(*args)
            return self.signature.in_tree(result) if self.signature.returns_tree else result
        except RelaxpyError as error:
            if is_user_frame(sys._getframe().f_back):
                error.hide_internal_frames()
            raise
        except RecursionError:
            raise RuntimeCheckError(
                f"calls or expressions inside {self.signature.name} nest deeper than Python allows",
                span=self.signature.span,
                hint="bind subexpressions to variables, or use sys.setrecursionlimit(...)",
            ) from None
        except (Exception, KeyboardInterrupt) as error:  # one of user code is propagated
            if is_user_frame(sys._getframe().f_back):
                keep_callback_frames(error)
            raise

    @property
    def program(self) -> Program:
        """The program of the function."""
        return self._program

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """The names, datatypes and shapes of the parameters."""
        return self.signature.inputs

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """The names, datatypes and shapes of the results."""
        return self.signature.outputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs of the imported model, in their order; none if unknown."""
        return self.signature.output_names

    def check(self, args: tuple[object, ...]) -> tuple[Value, ...]:
        """The values of arguments, which are checked without a call.

        Errors:
            RuntimeCheckError (also FunctionSignatureError): they do not fit.
        """
        self.signature.check_count(len(args), args)
        values = self._converted(args)
        self.signature.bind(values, Bindings())
        return values

    def _converted_call(self, *args: object) -> Value:
        """The result for arguments of a user."""
        values = self._converted(args)
        result = self._run(*values)
        same = all(map(operator.is_, args, values))  # then none is a tensor of torch
        return self.signature.in_tree(result if same or not has_torch(args) else as_torch(result))

    def _converted(self, args: tuple[object, ...]) -> tuple[Value, ...]:
        return tuple(
            user_argument(
                arg, p.struct_info, f"parameter {p.name_hint} of {self.signature.name}", p.span
            )
            for p, arg in zip(self.signature.params, args, strict=True)
        )

    def positional_args(
        self, args: tuple[object, ...], named: Mapping[str, object]
    ) -> tuple[object, ...]:
        """The arguments in the order of the parameters.

        Errors:
            RuntimeCheckError: an argument is missing, unexpected, passed twice or has no parameter.
        """
        names = [param.name_hint for param in self.signature.params]
        positional, remaining = names[: len(args)], names[len(args) :]
        for name in named:
            if names.count(name) != 1 or name in positional:
                problem = f"has no parameter {name!r}"
                if names.count(name) > 1:
                    problem = f"has several parameters {name!r}"
                elif name in positional:
                    problem = f"gets parameter {name!r} twice"
                raise RuntimeCheckError(
                    f"{self.signature.name} {problem}",
                    rule="FN-11",
                    span=self.signature.span,
                    hint=close_names(name, names),
                    notes=(f"its signature is {self.signature}",),
                )
        if len(args) + len(named) != len(names):
            self.signature.check_count(len(args) + len(named), (*args, *named.values()))
        return (*args, *(named[name] for name in remaining))

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        program = self._program
        return _saved_entry, (program.reload, program.saved, self.signature.name)

    @override
    def __repr__(self) -> str:
        return f"<function {self.signature}>"


class DirectEntryPoint(EntryPoint):
    """A function that is called without a Python frame if its arguments match.

    `direct` returns such a function, which otherwise calls its fallback.
    """

    __slots__ = ("__call__",)

    def __init__(
        self,
        signature: Signature,
        run: Callable[..., Value],
        program: Program,
        direct: Callable[[Callable[..., Value]], Callable[..., Value]],
    ) -> None:
        EntryPoint.__init__(self, signature, run, program)
        self.__call__ = direct(MethodType(EntryPoint.__call__, self))  # type: ignore[method-assign]


def checking(entry: EntryPoint) -> EntryPoint:
    """The function, with calls whose values are checked in a `with` statement for that."""
    if not CHECKS_VALUES.get():
        return entry
    checked: EntryPoint = hooks.call("checking", entry)
    return checked


def how_to_run(lib: object) -> str:
    """A hint for what stands where an executable is expected."""
    if isinstance(lib, Executable):
        return "it is an executable already"
    if isinstance(lib, (str, PathLike)):
        return "load the executable first: relaxpy.load_executable(path)"
    return "compile the module first: relaxpy.compile(mod)"


class _CalledDirectly:
    """The method `__call__` of executables: that of the function, which saves a frame."""

    def __get__(self, ex: Executable | None, kind: type[Executable]) -> Callable[..., Value]:
        if ex is None:
            return kind._call
        return ex._call if ex._main is None or CHECKS_VALUES.get() else ex._main


class Executable(CopiedByReference, StatefulCalls):
    """Compiled functions by name, which are those of a compiled program.

    The program is a table (`relaxpy.exec.program.table.CompiledProgram`): native functions with
    their machine code, the text that runs in Python, signatures, and how each kernel runs. Files
    and the disk cache contain it, and functions are made of it alike wherever it comes from;
    `print(ex["main"].program.compiled)` shows it.

    Only the arguments of `set_input` change, so a copy is the executable itself. A pickle contains
    the saved program with its machine code, and a process loads it once; packed functions must be
    registered there, too.
    """

    @user_facing
    def __new__(cls, *args: object, **compiled: object) -> Self:
        """Errors: MisuseError (also TypeError): it does not come from `relaxpy.compile`."""
        if cls is Executable and not compiled:
            lib = args[0] if args else None
            raise MisuseError(
                f"an Executable comes from relaxpy.compile(mod), found {type(lib).__name__}",
                hint=how_to_run(lib),
                about=lib,
            )
        return object.__new__(cls)

    def __init__(
        self,
        entries: Mapping[str, EntryPoint],
        *,
        program: Program,
        report: ExecutionReport,
        private_names: Collection[str],
    ) -> None:
        StatefulCalls.__init__(self)
        self._program = program
        self._entries = dict(entries)
        self._main = entries.get("main") if len(entries) != 1 else next(iter(entries.values()))
        self._report = report
        self._private_names = frozenset(private_names)
        self._origin: Executable | None = None
        self._written: IRModule | None = None
        self._stages: Mapping[str, float] = {}

    def sharing(self, program: Program | None = None) -> Executable:
        """An executable of the same code, without stored arguments; `program` saves it."""
        new = Executable(
            self._entries,
            program=program or self._program,
            report=self._report,
            private_names=self._private_names,
        )
        new._origin = self._origin or self  # which is in use as long as this is
        return new

    @user_facing
    @override
    def __getitem__(self, name: str) -> EntryPoint:
        """The function that can be called under `name` (TOP-3).

        `as_text`, `as_python` and `stats` are found by their names, too, as in TVM, unless the
        program has functions of these names.

        Errors:
            UnknownNameError (also KeyError, ValueError, AttributeError): there is no such function,
                or it is private (TOP-4).
        """
        return checking(self.entry_point(name))

    def entry_point(self, name: str) -> EntryPoint:
        """The function that `[]` returns, with calls whose values are not checked."""
        try:
            return self._entries[name]
        except (KeyError, TypeError):  # unhashable objects are not names
            pass
        if isinstance(name, str) and name in self._private_names:
            raise UnknownNameError(
                f"function {name!r} is private: it has no global_symbol", rule="TOP-4"
            )
        if isinstance(name, str) and name in _DESCRIPTIONS:
            return getattr(self, name)  # type: ignore[no-any-return]
        known = ", ".join(self._entries) or "none"
        raise UnknownNameError(
            f"the executable has no function {name!r}; it has {known}",
            hint=close_names(str(name), self._entries),
            rule="TOP-2" if str(name) == "main" else None,
        )

    @override
    def _function(self, name: str) -> EntryPoint:
        return self[name]

    @user_facing
    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Value]:
        """The function that `[]` returns; there are no imported modules to look in."""
        return self[name]

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """True if there is a function of this name, as `in` says."""
        return name in self

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        """The names that can be called."""
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    if not TYPE_CHECKING:  # it would make a type checker accept every name

        @user_facing
        def __getattr__(self, name):
            """Errors: UnknownAttributeError (also AttributeError), with the known names."""
            functions = () if name.startswith("_") else self._entries
            raise unknown_attribute(self, name, "ex", functions)

    @user_facing
    def _call(self, /, *args: object, **kwargs: object) -> Value:
        """Call `main`, or the only function (TOP-2)."""
        return self._default('ex["{}"](...)')(*args, **kwargs)

    __call__ = _CalledDirectly()

    @property
    def entry_name(self) -> str:
        """The name of the function that a call of the executable calls.

        Errors:
            UnknownNameError: there are several, and none is called `main`.
        """
        return self._default('ex["{}"]').signature.name

    def _default(self, usage: str) -> EntryPoint:
        """The function `main`, or the only one; `usage` says how to name another."""
        try:
            return self._function(next(iter(self._entries)) if len(self._entries) == 1 else "main")
        except UnknownNameError as error:
            if not self._entries:
                raise
            hint = f"name one of them: {usage.format(next(iter(self._entries)))}"
            raise error.hinted(hint) from None

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """The names, datatypes and shapes of the parameters of `main`, or of the only function.

        Errors:
            MisuseError: there are several functions, and none is called `main`.
        """
        return self._described('ex["{}"].inputs').inputs

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """The names, datatypes and shapes of the results of `main`, or of the only function.

        Names are those of the imported model, empty where it has none.

        Errors:
            MisuseError: there are several functions, and none is called `main`.
        """
        return self._described('ex["{}"].outputs').outputs

    def _described(self, usage: str) -> EntryPoint:
        """The function that properties are about; an AttributeError would hide them."""
        try:
            return self._default(usage)
        except UnknownNameError as error:
            raise MisuseError(error.diagnostics) from None

    @user_facing
    def bind(
        self,
        weights: Mapping[str, object] | None = None,
        /,
        *,
        function: str | None = None,
        **named: object,
    ) -> Executable:
        """An executable with weights as constants: `ex.bind(w=array)`, or of a mapping by name.

        The function is `main`, or the only one, unless `function` names another; it loses these
        parameters. The program is compiled once more with the same target and passes, which fold
        and convert what depends on weights alone, and pack the weights for the kernels. Packed
        copies are shared by executables with equal weights. Arrays are copied, unless nobody can
        write them: later changes of the elements have no effect. This executable does not change.

        Errors:
            UnknownNameError (also KeyError, ValueError): there is no such function or parameter.
            MisuseError (also TypeError, ValueError): a parameter is bound twice, nothing is bound,
                `weights` is not a mapping, or the function is a kernel.
            StructInfoError: a value does not fit its parameter.
        """
        entry = self._function(function) if function else self._default('bind(..., function="{}")')
        found: Executable = hooks.call("bind", self, entry.signature.name, weights, named)
        return found

    @overload
    def profile(
        self,
        *args: object,
        function: str | None = ...,
        repeat: int = ...,
        trace: str | PathLike[str] | None = ...,
        compare: None = ...,
    ) -> Profile: ...

    @overload
    def profile(
        self,
        *args: object,
        function: str | None = ...,
        repeat: int = ...,
        trace: str | PathLike[str] | None = ...,
        compare: Executable | Profile,
    ) -> ProfileComparison: ...

    @user_facing
    def profile(
        self,
        *args: object,
        function: str | None = None,
        repeat: int = 5,
        trace: str | PathLike[str] | None = None,
        compare: Executable | Profile | None = None,
    ) -> Profile | ProfileComparison:
        """The time of a call by kernel, with bytes, operations and the share of measured peaks.

        The function is `main`, or the only one, unless `function` names another. It is called
        `repeat` times after a warm-up; the fastest call counts. The program is compiled once more
        for this: native code notes the times of its kernels, which are those of a call, and what
        runs in Python has an instrument. Each call gets copies of caches and of all other objects
        that the function may change, so that arguments stay unchanged. If one of them cannot be
        copied, there is one call only, which changes it.

        The time line is written to the file `trace` for Chrome or Perfetto; if a call fails, up to
        the failure. With `compare`, another executable or profile, the result has both times.

        Errors:
            UnknownNameError (also KeyError, ValueError): there is no such function.
            RuntimeCheckError: a check of the program failed.
            MisuseError (also TypeError, ValueError): `repeat` is not a positive integer, `trace`
                is not a path, `compare` is something else, or the first argument too many is the
                name of a function.
            OSError: the file cannot be written.
        """
        entry = (
            self._function(function) if function else self._default('profile(..., function="{}")')
        )
        signature, first = entry.signature, args[0] if args else None
        is_name = isinstance(first, str) and first in self._entries
        if is_name and len(args) != len(signature.params):
            raise MisuseError(
                f"expected the arguments of a function, found the name {first!r} before them",
                hint=f'write profile(..., function="{first}")',
                about=first,
            )
        path = None if trace is None else path_to_write(trace)
        entry.check(args)
        profile: Profile = hooks.call("profile", self, signature.name, args, repeat, path)
        if compare is None:
            return profile
        if isinstance(compare, Executable):
            compare = compare.profile(*args, function=function, repeat=repeat)
        return profile.compare(compare)

    @user_facing
    def check_values(self, *args: object, function: str | None = None) -> ValueCheck:
        """The first operator of a call that makes NaN, infinities or many subnormal numbers.

        The function is `main`, or the only one, unless `function` names another. The program is
        compiled once more with one kernel for each operator, not fused, and runs until the
        first of them whose result has a problem that no operand has; the result has its line, and
        the statistics of its operands. NaN in an argument is also a problem. An infinity is none
        where an operand or a literal of the operator is infinite, as masks are. Arguments stay
        unchanged, as for `profile`. A program from a file has its kernels after fusion only.

        Errors:
            UnknownNameError (also KeyError, ValueError): there is no such function.
            RuntimeCheckError: a check of the program failed.
        """
        entry = self._function(function) if function else self._default("check_values(...)")
        found: ValueCheck = hooks.call("check_values", entry, args)
        return found

    @user_facing
    def memory(self, name: str | None = None) -> MemoryUse:
        """The bytes that a call of a function takes at most, as a formula in its symbolic sizes.

        The function is `main`, or the only one, unless `name` is another. `.bytes(n=...)` is the
        number for certain sizes. The program is lowered once more for this, and does not run.

        Errors:
            UnknownNameError (also KeyError, ValueError): there is no such function.
            MisuseError: the reference evaluator runs the program.
        """
        entry = self.entry_point(name) if name else self._default('memory("{}")')
        found: MemoryUse = hooks.call("memory_use", entry)
        return found

    @property
    def target(self) -> str:
        """The target of the executable."""
        return self._program.target

    @property
    def source(self) -> str:
        """The generated Python source; for the target reference, the program as text."""
        return self._program.form().source()

    @property
    def function_names(self) -> tuple[str, ...]:
        """The names that can be called, in the module's order."""
        return tuple(self._entries)

    @user_facing
    def kernel_source(self, name: str, kind: SourceKind = "python") -> str:
        """The source of a kernel, which is compiled once more for it.

        The kinds are "tree" (its loops), "python" (the NumPy kernel, also the fallback of native
        code), "llvm" (LLVM IR) and "asm" (assembly). The last two exist for native kernels, which
        `report` lists.

        Errors:
            UnknownNameError (also KeyError, ValueError): there is no such kernel.
            MisuseError (also TypeError, ValueError): the kind is unknown, or the kernel has no
                source of this kind; the message says why.
        """
        source: str = hooks.call("kernel_source", self._program, name, kind)
        return source

    def report(self) -> ExecutionReport:
        """The method by which each kernel runs, and the reasons for slow methods."""
        return self._report.located(kernel_sources(self._program.module))

    def compile_report(self) -> CompileReport:
        """The time of the compilation of this executable by stage, as a table and as data."""
        return CompileReport(self._stages, self._report.remark)

    def written_as(
        self, module: IRModule, pipeline: str | Callable[[IRModule], IRModule] | None
    ) -> Executable:
        """The executable itself, which was compiled from `module` with a pipeline."""
        self._written = module
        self._program.written, self._program.pipeline = ref(module), pipeline
        return self

    @property
    def written(self) -> IRModule:
        """The module before the passes if it is known, or else the one after them."""
        return self._program.module if self._written is None else self._written

    def timed(self, stages: Mapping[str, float]) -> Executable:
        """The executable itself, with the seconds of the stages of its compilation."""
        self._stages = stages
        return self

    def as_python(self) -> str:
        """The generated Python source, like `source`; the name is that of TVM."""
        return self.source

    def as_text(self) -> str:
        """The text of the program that runs, after all passes."""
        return self._program.module.script()

    @user_facing
    def graph(self, fold: bool | None = None) -> Any:
        """The program that runs, after all passes, as a picture: see `IRModule.graph`."""
        return hooks.call("graph", self._program.module, fold)

    @user_facing
    def memory_chart(
        self, function: str | None = None, sizes: Mapping[str, int] | None = None
    ) -> Any:
        """The bytes that a function holds over its bindings: see `IRModule.memory_chart`.

        Its peak is that of `memory`, which also counts the memory of kernels.
        """
        name = function or self.entry_name
        is_planned = name in self._entries and not target_facts(self.target).runs_as_written
        use = self.memory(name) if is_planned else None
        return hooks.call("memory_chart", self._program.module, function, sizes, use)

    def stats(self) -> str:
        """The target, the functions that can be called, and the number of kernels and constants."""
        functions = self._program.module.functions.values()
        kernels = sum(isinstance(func, PrimFunc) for func in functions)
        constants = [c for func in functions for c in walk(func) if isinstance(c, Constant)]
        size = sum(constant.nbytes for constant in constants)
        return "\n".join(
            (
                f"target: {self.target}",
                f"functions: {', '.join(self._entries) or 'none'}",
                f"kernels: {kernels}",
                f"constants: {len(constants)}, {size} bytes",
            )
        )

    @property
    def mod(self) -> Executable:
        """The executable itself, which is a module of functions; the name is that of TVM."""
        return self

    @property
    def imports(self) -> list[Executable]:
        """The modules of kernels: always empty, as kernels belong to the executable."""
        return []

    def jit(self) -> Executable:
        """The executable itself, which is compiled; the name is that of TVM."""
        return self

    @user_facing
    def save(self, path: str | PathLike[str]) -> None:
        """Write the program to a file that `load_executable` maps: a table and all constants.

        For the target "native" the file also contains the machine code. Everything has hashes. A
        file of this name is replaced when the new one is complete.

        Errors:
            MisuseError: the program contains an object without a JSON form.
            MisuseError (also TypeError, ValueError): `path` is not a path.
            OSError: the file cannot be written.
        """
        new = path_to_write(path)  # before the work
        self._program.saved.write(new)

    @user_facing
    def export(
        self,
        path: str | PathLike[str],
        *,
        target: Native | str | None = None,
        name: str | None = None,
        weights: str | PathLike[str] | None = None,
        pool: bool = False,
        extern: Sequence[str] = (),
        at_most: Mapping[str, int] | None = None,
    ) -> tuple[Path, ...]:
        """Write the program as a library for C, without Python, with its header; return the files.

        The suffix decides: `.o`, `.a`, or `.so`, `.dylib` and `.dll`, which the C compiler of this
        machine links, or else that of the package `ziglang`. A `.wasm` has JavaScript that loads it
        instead of a header, and one for engines without relaxed SIMD beside it. The symbols and the
        header are named `name`, by default as the file. The code is for this kind of CPU, or for a
        `target` such as `"linux-aarch64:generic"`. Constants are in the library, or in the file
        `weights`, which the caller maps. `pool` adds a header with a pool of threads.
        The packed functions that `extern` names are functions of C, which the caller defines; the
        header declares them. `at_most` has the largest values of sizes that depend on data, by
        name.

        Errors:
            CompileError: functions need Python, all of which are named; or there is no linker.
            MisuseError (also TypeError, ValueError): the suffix, the target or a name is unknown,
                or there are too many weights for a library.
            OSError: a file cannot be written.
        """
        with long_work("exporting"):
            found: tuple[Path, ...] = hooks.call(
                "export",
                *(self, path),
                target=target,
                name=name,
                weights=weights,
                pool=pool,
                extern=extern,
                at_most=at_most,
            )
        return found

    @property
    def program(self) -> Program:
        """The program of the executable."""
        return self._program

    @user_facing
    def export_library(self, file_name: str | PathLike[str], **options: object) -> None:
        """Write the file of `save`, which is not a shared library; the name is that of TVM.

        Options of compilers and linkers (`fcompile`, `workspace_dir`, ...) have no effect.

        Errors:
            As for `save`.
        """
        self.save(file_name)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return self._program.reload, (self._program.saved,)

    def _repr_html_(self) -> str:
        signatures = tuple((str(entry.signature),) for entry in self._entries.values())
        functions = Table((f"functions, for {self.target}",), signatures, text_columns=1).html()
        return functions + (self._report._repr_html_() if self._report.rows else "")

    @override
    def __repr__(self) -> str:
        signatures = "".join(f"\n  {entry.signature}" for entry in self._entries.values())
        return f"<Executable for {self.target}>{signatures}"


#: TVM's name for the executables of its virtual machine.
VMExecutable = Executable
