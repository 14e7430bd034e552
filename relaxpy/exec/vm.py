"""VirtualMachine: the interface of TVM to executables, with stored inputs and outputs."""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, RuntimeCheckError, UnknownNameError, unknown_attribute
from relaxpy.exec.executable import EntryPoint, Executable
from relaxpy.exec.runtime.checks import Signature
from relaxpy.exec.runtime.instrument import Instrument, Profiler, ProfileReport
from relaxpy.exec.runtime.packed import passing_tensors
from relaxpy.exec.runtime.registry import get_global_func
from relaxpy.exec.runtime.tensors import as_tensors
from relaxpy.exec.runtime.values import FunctionValue, Value, describe


@dataclass(frozen=True, slots=True)
class SavedFunction:
    """A function with its arguments, which is called without arguments."""

    machine: VirtualMachine
    func_name: str
    args: tuple[object, ...]
    include_return: bool

    def __call__(self) -> Value:
        """Call the function; return its result, or None if results are not included."""
        result = self.machine[self.func_name](*self.args)
        return result if self.include_return else None


@dataclass(frozen=True, slots=True)
class MachineFunction:
    """A function of a machine. Tensors that it returns have the methods of those of TVM."""

    entry: EntryPoint

    @user_facing
    def __call__(self, *args: object, **kwargs: object) -> Value:
        """Call the function.

        Errors:
            RuntimeCheckError: the number of arguments is wrong, or a check of the program failed.
            FunctionSignatureError: an argument does not match its parameter.
        """
        with passing_tensors():
            result = self.entry(*args, **kwargs)
        return as_tensors(result, (*args, *kwargs.values()))

    @property
    def signature(self) -> Signature:
        """The parameters and the result."""
        return self.entry.signature

    @override
    def __repr__(self) -> str:
        return repr(self.entry)


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """The mean time of a call in each repeat.

    Units: seconds.
    """

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean of the repeats."""
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        """The median of the repeats."""
        return statistics.median(self.results)

    @property
    def min(self) -> float:
        """The quickest repeat."""
        return min(self.results)

    @property
    def max(self) -> float:
        """The slowest repeat."""
        return max(self.results)

    @property
    def std(self) -> float:
        """The standard deviation of the repeats."""
        return statistics.pstdev(self.results)

    @override
    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        return ", ".join(f"{name} {getattr(self, name) * 1e3:.4f} ms" for name in names)


class VirtualMachine:
    """Runs functions of an executable with the interface of TVM.

    `device` and `memory_cfg` have no effect, since Python manages the memory of all values.
    """

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    @user_facing
    def __init__(
        self,
        rt_mod: Executable,
        device: object = None,
        memory_cfg: object = None,
        profile: bool = False,
    ) -> None:
        """Errors: MisuseError (also TypeError) if `rt_mod` is not an Executable."""
        if not isinstance(rt_mod, Executable):
            raise MisuseError(
                f"a VirtualMachine runs an Executable, found {type(rt_mod).__name__}",
                hint="compile the module first: relaxpy.compile(mod)",
                about=rt_mod,
            )
        self._executable = rt_mod
        self.device = device
        self._saved: dict[str, SavedFunction] = {}
        self._inputs: dict[str, tuple[object, ...]] = {}
        self._outputs: dict[str, Value] = {}
        self._instrument: Instrument | None = None
        self._per_thread = threading.local()
        """Its attribute `profiler` is that of a thread that profiles."""
        self._instrumented_entries: Mapping[str, EntryPoint] | None = None

    @user_facing
    def __getitem__(self, name: str) -> Callable[..., Value]:
        """The saved function `name`, or else that of the executable.

        Errors:
            UnknownNameError (also KeyError, ValueError): there is no such function.
        """
        saved = self._saved.get(name) if isinstance(name, str) else None
        return saved or MachineFunction(self._function(name))

    def __contains__(self, name: object) -> bool:
        return name in self._saved or name in self._executable

    def __iter__(self) -> Iterator[str]:
        """The names that can be called."""
        yield from {**self._saved, **dict.fromkeys(self._executable)}

    @user_facing
    def __call__(self, *args: object, **kwargs: object) -> Value:
        """Call `main`, or the only function (TOP-2)."""
        names = list(self)
        return self[names[0] if len(names) == 1 else "main"](*args, **kwargs)

    if not TYPE_CHECKING:  # it would make a type checker accept every name

        @user_facing
        def __getattr__(self, name):
            """Errors: UnknownAttributeError (also AttributeError), with the known names."""
            raise unknown_attribute(self, name, "vm", () if name.startswith("_") else self)

    def _function(self, name: str) -> EntryPoint:
        entry = self._executable[name]
        return entry if self._active_instrument() is None else self._instrumented()[name]

    def _instrumented(self) -> Mapping[str, EntryPoint]:
        """The functions, compiled to report their calls to the active instrument."""
        if self._instrumented_entries is None:
            self._instrumented_entries = self._executable.instrumented(self._report_call)
        return self._instrumented_entries

    def _report_call(self, *call: Value) -> object:
        instrument = self._active_instrument()
        return None if instrument is None else instrument(*call)

    def _active_instrument(self) -> Instrument | None:
        profiler: Instrument | None = getattr(self._per_thread, "profiler", None)
        return profiler or self._instrument

    @override
    def __getstate__(self) -> dict[str, object]:
        """The state for a pickle, without that of threads and without compiled functions."""
        return {
            k: v for k, v in vars(self).items() if k not in ("_per_thread", "_instrumented_entries")
        }

    def __setstate__(self, state: Mapping[str, object]) -> None:
        vars(self).update(state, _per_thread=threading.local(), _instrumented_entries=None)

    @property
    def module(self) -> Executable:
        """The executable."""
        return self._executable

    @user_facing
    def set_instrument(self, instrument: Instrument | None) -> None:
        """Report every call that functions make to `instrument`, until it is set to None.

        These are calls of kernels, of functions of the module by name, of packed functions, and of
        operators that are lowered at run time. `instrument(function, name, True, None, *args)` is
        called before each of them, and `instrument(function, name, False, result, *args)` after it.
        The outputs of a kernel are among its arguments. If the first call returns
        `VMInstrumentReturnKind.SKIP_RUN`, the function is not called: no output is written, and the
        result is the null object. Functions that were taken from the machine before are not
        instrumented.

        Errors:
            MisuseError (also TypeError): it is not callable.
        """
        if instrument is not None and not callable(instrument):
            raise MisuseError(
                f"an instrument is a function, found {describe(instrument)}", about=instrument
            )
        self._instrument = instrument

    @user_facing
    def profile(self, func_name: str, *args: object) -> ProfileReport:
        """The time of a call of the function `func_name`, by the functions that it calls.

        The function is first called without an instrument, as a warm-up. Without arguments, it is
        called with the inputs that were set. Calls in other threads are not counted.

        Errors:
            UnknownNameError: there is no such function. RuntimeCheckError: a check failed.
        """
        function = self._executable[func_name]
        args = args or self._inputs.get(func_name, ())
        function(*args)
        instrumented = self._instrumented()[func_name]
        outer = getattr(self._per_thread, "profiler", None)
        try:
            self._per_thread.profiler = Profiler()
            instrumented(*args)
            profiler = self._per_thread.profiler = Profiler()
            profiler.begin(func_name)
            instrumented(*args)
            return profiler.report(profiler.end())
        finally:
            self._per_thread.profiler = outer

    @user_facing
    def time_evaluator(
        self,
        func_name: str,
        dev: object = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """The function that measures the time of `func_name` for the arguments that it gets.

        The argument of "invoke_stateful" is the name of a function whose inputs were set.

        After a warm-up call there are `repeat` repeats of `number` calls each, or of more calls if
        these take less than `min_repeat_ms`. The packed function `f_preproc` is called with the
        arguments before each repeat. There is a pause after every `repeats_to_cooldown` repeats.

        Units:
            min_repeat_ms, cooldown_interval_ms  milliseconds
        Errors:
            UnknownNameError: there is no such function.
            MisuseError: a number is not positive, or a time is negative.
        """
        function: Callable[..., object] = self.invoke_stateful
        if func_name != "invoke_stateful":
            function = self[func_name]
        for name, count in (
            ("number", number),
            ("repeat", repeat),
            ("repeats_to_cooldown", repeats_to_cooldown),
        ):
            if not isinstance(count, int) or count < 1:
                raise MisuseError(f"{name} is a positive integer, found {count!r}", about=count)
        for name, time in (
            ("min_repeat_ms", min_repeat_ms),
            ("cooldown_interval_ms", cooldown_interval_ms),
        ):
            if not isinstance(time, (int, float)) or not 0 <= time < math.inf:
                raise MisuseError(f"{name} is a time in ms, found {time!r:.60}", about=time)
        prepare = get_global_func(f_preproc) if f_preproc else None

        def seconds(args: tuple[object, ...], count: int) -> float:
            start = perf_counter()
            for _ in range(count):
                function(*args)
            return perf_counter() - start

        def measure(*args: object) -> BenchmarkResult:
            function(*args)
            count = number
            while min_repeat_ms > 0 and (taken := seconds(args, count)) * 1e3 < min_repeat_ms:
                missing = min_repeat_ms / max(taken * 1e3, min_repeat_ms / 10)
                count = math.ceil(count * min(10.0, 1.2 * missing))
            results = []
            for i in range(repeat):
                if i and i % repeats_to_cooldown == 0:
                    sleep(cooldown_interval_ms / 1e3)
                if prepare is not None:
                    prepare(*args)
                results.append(seconds(args, count) / count)
            return BenchmarkResult(tuple(results))

        return measure

    @user_facing
    def invoke_closure(self, closure: FunctionValue, *args: object) -> Value:
        """Call a closure that a function returned.

        Errors:
            MisuseError (also TypeError): it is not a closure.
        """
        if not isinstance(closure, FunctionValue):
            raise MisuseError(f"invoke_closure takes a closure, found {describe(closure)}")
        with passing_tensors():
            result = closure.call_with(args, from_user=True)
        return as_tensors(result, args)

    @user_facing
    def save_function(
        self,
        func_name: str,
        saved_name: str,
        *args: object,
        include_return: bool = True,
        **kwargs: object,
    ) -> None:
        """Save a function with its arguments under a new name.

        Errors:
            UnknownNameError: there is no such function. MisuseError: the new name is taken.
            RuntimeCheckError: the number of arguments is wrong.
        """
        function = self._executable[func_name]
        if not isinstance(saved_name, str):
            raise MisuseError(f"a name is a string, found {saved_name!r:.60}", about=saved_name)
        if saved_name in self._executable or saved_name in self._saved:
            raise MisuseError(f"there is already a function {saved_name!r}", about=saved_name)
        positional = function.positional_args(args, kwargs)
        self._saved[saved_name] = SavedFunction(self, func_name, positional, include_return)

    @user_facing
    def set_input(self, func_name: str, *args: object, **kwargs: object) -> None:
        """Store arguments for `invoke_stateful(func_name)`.

        Errors:
            UnknownNameError: there is no such function.
            RuntimeCheckError: the number of arguments is wrong.
        """
        self._inputs[func_name] = self._executable[func_name].positional_args(args, kwargs)

    @user_facing
    def invoke_stateful(self, func_name: str) -> None:
        """Call a function with its stored arguments, and store its result.

        Errors:
            RuntimeCheckError: no arguments are stored, or a check of the program failed.
        """
        function = self._function(func_name)
        if func_name not in self._inputs:
            raise RuntimeCheckError(
                f"no input was set for {func_name}", hint=f"call set_input({func_name!r}, ...)"
            )
        with passing_tensors():
            self._outputs[func_name] = function(*self._inputs[func_name])

    @user_facing
    def get_outputs(self, func_name: str) -> Value:
        """The result of the last `invoke_stateful(func_name)`.

        Errors:
            UnknownNameError: there is no such function, or it was not invoked.
        """
        _ = self._executable[func_name]
        if func_name not in self._outputs:
            raise UnknownNameError(
                f"{func_name} has no outputs yet", hint=f"call invoke_stateful({func_name!r})"
            )
        return as_tensors(self._outputs[func_name], self._inputs[func_name])
