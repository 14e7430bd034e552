"""Stored arguments and timing of calls, for machines and executables."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import perf_counter, sleep
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, RuntimeCheckError, UnknownNameError, unexpected
from relaxpy.exec.runtime.registry import get_global_func
from relaxpy.exec.runtime.tensors import as_tensors
from relaxpy.exec.runtime.users import passing_tensors
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.core.tensor import Tensor
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.exec.api.executable import EntryPoint


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """The mean time of a call in each repeat.

    Units: seconds.
    """

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean of the repeats."""
        return float(np.mean(self.results))

    @property
    def median(self) -> float:
        """The median of the repeats."""
        return float(np.median(self.results))

    @property
    def min(self) -> float:
        """The fastest repeat."""
        return min(self.results)

    @property
    def max(self) -> float:
        """The slowest repeat."""
        return max(self.results)

    @property
    def std(self) -> float:
        """The standard deviation of the repeats."""
        return float(np.std(self.results))

    @override
    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        return ", ".join(f"{name} {getattr(self, name) * 1e3:.4f} ms" for name in names)


class StatefulCalls(ABC):
    """A mixin for containers of functions: it stores the arguments and results of their calls."""

    def __init__(self) -> None:
        self._inputs: dict[str, tuple[object, ...]] = {}
        self._outputs: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Callable[..., Value]:
        """The function that is called by this name."""
        return self._function(name)

    @abstractmethod
    def _function(self, name: str) -> EntryPoint:
        """The function of the program. Errors: UnknownNameError: there is none of this name."""

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
                raise unexpected(time, f"{name} is a time in ms")
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
    def set_input(self, func_name: str, *args: object, **kwargs: object) -> None:
        """Store arguments for `invoke_stateful(func_name)`.

        Errors:
            UnknownNameError: there is no such function.
            RuntimeCheckError: the number of arguments is wrong.
        """
        self._inputs[func_name] = self._function(func_name).positional_args(args, kwargs)

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
        """The result of the last `invoke_stateful(func_name)`, whose arrays are tensors.

        Errors:
            UnknownNameError: there is no such function, or it was not invoked.
        """
        self._function(func_name)
        if func_name not in self._outputs:
            raise UnknownNameError(
                f"{func_name} has no outputs yet", hint=f"call invoke_stateful({func_name!r})"
            )
        tensors = [arg for arg in self._inputs[func_name] if isinstance(arg, Tensor)]
        return as_tensors(self._outputs[func_name], tensors)
