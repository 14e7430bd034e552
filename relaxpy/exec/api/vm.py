"""VirtualMachine: TVM's interface to executables, with stored inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, unknown_attribute
from relaxpy.exec.api.assembled import instrumented
from relaxpy.exec.api.executable import EntryPoint, Executable, how_to_run
from relaxpy.exec.api.stateful import StatefulCalls
from relaxpy.exec.runtime.checks import Signature
from relaxpy.exec.runtime.tensors import as_tensors
from relaxpy.exec.runtime.users import passing_tensors
from relaxpy.exec.runtime.values import FunctionValue, Value, describe
from relaxpy.ir.core.device import Device
from relaxpy.ir.core.tensor import check_device
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.exec.inspect.profile import Profile
    from relaxpy.exec.runtime.instrument import Instrument


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
    """A function of a machine. Returned tensors have the methods of TVM's."""

    entry: EntryPoint

    @user_facing
    def __call__(self, /, *args: object, **kwargs: object) -> Value:
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


class VirtualMachine(StatefulCalls):
    """Runs functions of an executable with the interface of TVM.

    `device` is the CPU, and `memory_cfg` has no effect: Python manages the memory of values.
    """

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    @user_facing
    def __init__(
        self,
        rt_mod: Executable,
        device: Device | str | Sequence[Device | str] | None = None,
        memory_cfg: object = None,
        profile: bool = False,
    ) -> None:
        """Errors: MisuseError (also TypeError): no Executable, or a device that is not a CPU."""
        if not isinstance(rt_mod, Executable):
            raise MisuseError(
                f"a VirtualMachine runs an Executable, found {type(rt_mod).__name__}",
                hint=how_to_run(rt_mod),
                about=rt_mod,
            )
        StatefulCalls.__init__(self)
        self._executable = rt_mod
        for one in device if isinstance(device, (list, tuple)) else (device,):
            check_device(one)
        self.device = device
        self._saved: dict[str, SavedFunction] = {}
        self._instrument: Instrument | None = None
        self._instrumented_entries: Mapping[str, EntryPoint] | None = None

    @user_facing
    @override
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
    def __call__(self, /, *args: object, **kwargs: object) -> Value:
        """Call `main`, or the only function (TOP-2)."""
        names = list(self)
        return self[names[0] if len(names) == 1 else "main"](*args, **kwargs)

    if not TYPE_CHECKING:  # it would make a type checker accept every name

        @user_facing
        def __getattr__(self, name):
            """Errors: UnknownAttributeError (also AttributeError), with the known names."""
            raise unknown_attribute(self, name, "vm", () if name.startswith("_") else self)

    @override
    def _function(self, name: str) -> EntryPoint:
        entry = self._executable._function(name)
        return entry if self._instrument is None else self._instrumented()[name]

    def _instrumented(self) -> Mapping[str, EntryPoint]:
        """The functions, compiled to report their calls to the active instrument."""
        if self._instrumented_entries is None:
            self._instrumented_entries = instrumented(self._executable, self._report_call)
        return self._instrumented_entries

    def _report_call(self, *call: Value) -> object:
        return None if self._instrument is None else self._instrument(*as_tensors(call))

    @override
    def __getstate__(self) -> dict[str, object]:
        """The state for a pickle, without compiled functions."""
        return {k: v for k, v in vars(self).items() if k != "_instrumented_entries"}

    def __setstate__(self, state: Mapping[str, object]) -> None:
        vars(self).update(state, _instrumented_entries=None)

    @property
    def module(self) -> Executable:
        """The executable whose functions the machine runs."""
        return _MachineModule(self, self._executable)

    @user_facing
    def bind(
        self,
        weights: Mapping[str, object] | None = None,
        /,
        *,
        function: str | None = None,
        **named: object,
    ) -> VirtualMachine:
        """A machine for `Executable.bind`: weights are constants of its function, not arguments."""
        bound = self._executable.bind(weights, function=function, **named)
        return VirtualMachine(bound, self.device)

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
    def profile(self, func_name: str, *args: object) -> Profile:
        """The time of a call of the function `func_name`, by the functions that it calls.

        The function is called once before, as a warm-up; arguments stay unchanged, as for
        `Executable.profile`. Without arguments, it is called with the inputs that were set. Calls
        in other threads are not counted.

        Errors:
            UnknownNameError: there is no such function. RuntimeCheckError: a check failed.
        """
        args = args or self._inputs.get(func_name, ())
        with passing_tensors():
            return self._executable.profile(*args, function=func_name, repeat=1)

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
        function = self._executable._function(func_name)
        check_type(saved_name, str, "a name is a string")
        if saved_name in self._executable or saved_name in self._saved:
            raise MisuseError(f"there is already a function {saved_name!r}", about=saved_name)
        positional = function.positional_args(args, kwargs)
        self._saved[saved_name] = SavedFunction(self, func_name, positional, include_return)


class _MachineModule(Executable):
    def __init__(self, machine: VirtualMachine, executable: Executable) -> None:
        vars(self).update(vars(executable), _main=None)
        self._machine = machine

    @user_facing
    @override
    def __getitem__(self, name: str) -> Callable[..., Value]:  # type: ignore[override]
        return self._machine[name]

    @override
    def _function(self, name: str) -> EntryPoint:
        return self._machine._function(name)
