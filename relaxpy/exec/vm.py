"""VirtualMachine: TVM's way of running an executable, keeping inputs and outputs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, RuntimeCheckError, UnknownNameError
from relaxpy.exec.executable import EntryPoint, Executable
from relaxpy.exec.values import FunctionValue, Value, describe


@dataclass(frozen=True, slots=True)
class SavedFunction:
    """A function with its arguments, to be called without any."""

    function: EntryPoint
    args: tuple[object, ...]
    include_return: bool

    def __call__(self) -> Value:
        """The function's result, or None where results were not asked for."""
        result = self.function(*self.args)
        return result if self.include_return else None


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """What a call took, repeat by repeat.

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
    """Runs functions of an executable; `device` is accepted, all values being in main memory."""

    @user_facing
    def __init__(self, executable: Executable, device: object = None) -> None:
        """Errors: MisuseError (also TypeError): `executable` is none."""
        if not isinstance(executable, Executable):
            raise MisuseError(
                f"a VirtualMachine runs an Executable, found {type(executable).__name__}",
                hint="compile the module first: relaxpy.compile(mod)",
            )
        self._executable = executable
        self.device = device
        self._saved: dict[str, SavedFunction] = {}
        self._inputs: dict[str, tuple[object, ...]] = {}
        self._outputs: dict[str, Value] = {}

    @user_facing
    def __getitem__(self, name: str) -> Callable[..., Value]:
        """The function `name`: one that was saved, else the executable's.

        Errors:
            UnknownNameError (also KeyError, ValueError): there is none.
        """
        return self._saved.get(name) or self._executable[name]

    @property
    def module(self) -> Executable:
        """The executable that is run."""
        return self._executable

    @user_facing
    def time_evaluator(
        self,
        func_name: str,
        dev: object = None,
        *,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
    ) -> Callable[..., BenchmarkResult]:
        """What times function `func_name` for the arguments it is called with.

        After one call to warm up there are `repeat` rounds of `number` calls each, or of as many
        more as take `min_repeat_ms`.

        Units:
            min_repeat_ms  milliseconds
        Errors:
            UnknownNameError: there is no such function. MisuseError: a number is not positive.
        """
        function = self[func_name]
        if number < 1 or repeat < 1:
            raise MisuseError(f"number and repeat are positive, found {number} and {repeat}")

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
            return BenchmarkResult(tuple(seconds(args, count) / count for _ in range(repeat)))

        return measure

    @user_facing
    def invoke_closure(self, closure: FunctionValue, *args: Value) -> Value:
        """What a closure that a function returned gives for `args`.

        Errors:
            MisuseError (also TypeError): it is no closure.
        """
        if not isinstance(closure, FunctionValue):
            raise MisuseError(f"invoke_closure takes a closure, found {describe(closure)}")
        return closure(*args)

    @user_facing
    def save_function(
        self,
        func_name: str,
        saved_name: str,
        *args: object,
        include_return: bool = True,
        **kwargs: object,
    ) -> None:
        """Keep a function with its arguments under a name of its own.

        Errors:
            UnknownNameError: there is no such function. MisuseError: the new name is taken.
            RuntimeCheckError: a wrong number of arguments.
        """
        function = self._executable[func_name]
        if saved_name in self._executable or saved_name in self._saved:
            raise MisuseError(f"there is already a function {saved_name!r}")
        placed = function.place(args, kwargs)
        self._saved[saved_name] = SavedFunction(function, placed, include_return)

    @user_facing
    def set_input(self, func_name: str, *args: object, **kwargs: object) -> None:
        """Keep arguments for `invoke_stateful(func_name)`.

        Errors:
            UnknownNameError: there is no such function. RuntimeCheckError: a wrong number of
            arguments.
        """
        self._inputs[func_name] = self._executable[func_name].place(args, kwargs)

    @user_facing
    def invoke_stateful(self, func_name: str) -> None:
        """Call a function with the arguments last set, and keep its result.

        Errors:
            RuntimeCheckError: none were set, or a check of the program failed.
        """
        function = self._executable[func_name]
        if func_name not in self._inputs:
            raise RuntimeCheckError(
                f"no input was set for {func_name}", hint=f"call set_input({func_name!r}, ...)"
            )
        self._outputs[func_name] = function(*self._inputs[func_name])

    @user_facing
    def get_outputs(self, func_name: str) -> Value:
        """The result of the last `invoke_stateful(func_name)`.

        Errors:
            UnknownNameError: there is no such function, or it was not invoked yet.
        """
        _ = self._executable[func_name]
        if func_name not in self._outputs:
            raise UnknownNameError(
                f"{func_name} has no outputs yet", hint=f"call invoke_stateful({func_name!r})"
            )
        return self._outputs[func_name]
