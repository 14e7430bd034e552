"""ExecBuilder: executables from instructions on registers, by TVM's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from types import NoneType
from typing import Any, NoReturn

import numpy as np
from typing_extensions import override

from relaxpy.errors import BuilderStateError, MisuseError, RuntimeCheckError, unexpected
from relaxpy.exec.executable import EntryPoint, Executable, Program
from relaxpy.exec.instructions import (
    VOID,
    Arg,
    ArgKind,
    Branch,
    CallFunction,
    Code,
    Goto,
    Instruction,
    Return,
    constant_text,
    program_python,
    program_text,
)
from relaxpy.exec.report import ExecutionReport
from relaxpy.exec.runtime.checks import Signature
from relaxpy.exec.runtime.instrument import Instrument, Instrumented
from relaxpy.exec.runtime.operators import truth
from relaxpy.exec.runtime.packed import call_users
from relaxpy.exec.runtime.registry import get_global_func
from relaxpy.exec.runtime.values import Closure, ShapeTuple, Value, from_packed
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import FuncStructInfo, ObjectStructInfo, Var
from relaxpy.ir.tir.ops import as_int
from relaxpy.support.entry import user_facing


class VMFuncKind(IntEnum):
    """The kind of a function: a packed function, or one with instructions."""

    PACKED_FUNC = 0
    VM_FUNC = 1


class ExecBuilder:
    """Describes functions of an executable by instructions.

    A function has registers; the first ones are its arguments. `with
    builder.function(...)` is the scope of its instructions, and `get` returns the executable.

    Errors:
        BuilderStateError (also ValueError): an instruction is emitted outside of a function.
    """

    def __init__(self) -> None:
        self._functions: dict[str, Code] = {}
        self._constants: list[Any] = []
        self._known: dict[object, Arg] = {}
        self._body: list[Instruction] | None = None

    @property
    def has_functions(self) -> bool:
        """True if a function has been described."""
        return bool(self._functions)

    def r(self, idx: int) -> Arg:
        """A register."""
        return Arg(ArgKind.REGISTER, _natural(idx, "a register"))

    def imm(self, value: int) -> Arg:
        """An integer. Errors: MisuseError (also TypeError) if it is something else."""
        return Arg(ArgKind.IMMEDIATE, as_int(value))

    def c(self, idx: int) -> Arg:
        """The constant that `convert_constant` returned at this position."""
        return Arg(ArgKind.CONSTANT, _natural(idx, "the position of a constant"))

    def f(self, name: str) -> Arg:
        """A function as a value: one of this builder, or a packed one."""
        self.declare_function(name)
        return Arg(ArgKind.FUNCTION, name)

    def void_arg(self) -> Arg:
        """The null object."""
        return VOID

    def vm_state(self) -> Arg:
        """The context of the run."""
        return Arg(ArgKind.VM_STATE)

    @user_facing
    def declare_function(self, func_name: str, kind: VMFuncKind = VMFuncKind.PACKED_FUNC) -> None:
        """Check the name of a function; its kind follows from the builder's definitions."""
        if not isinstance(func_name, str) or not func_name:
            raise MisuseError(f"the name of a function is a string, found {func_name!r:.60}")

    @contextmanager
    def function(
        self, func_name: str, num_inputs: int | None = 0, param_names: Sequence[str] | None = None
    ) -> Iterator[None]:
        """The scope of a new function, whose arguments are in registers 0, 1, ….

        Errors:
            BuilderStateError (also ValueError): there is one of this name, another one is open, a
                register is read before it is set, or the end is reached without a return.
        """
        self.declare_function(func_name)
        if self._body is not None or func_name in self._functions:
            problem = "is defined twice" if func_name in self._functions else "is inside another"
            raise BuilderStateError(f"function {func_name} {problem}", about=func_name)
        count = _natural(num_inputs or 0, "the number of arguments")
        names = [f"p{i}" for i in range(count)] if param_names is None else param_names
        if not isinstance(names, (list, tuple)) or len(names) != count:
            raise MisuseError(f"{func_name} has {count} arguments, and names {names!r:.60}")
        self._body = []
        try:
            yield
            code = Code(func_name, tuple(names), tuple(self._body))
            self._functions[func_name] = code.checked().renumbered()
        finally:
            self._body = None

    @user_facing
    def convert_constant(self, const: object) -> Arg:
        """A constant: a tensor, a shape, a datatype, a string or a number; equal ones are shared.

        Errors:
            MisuseError (also TypeError): it is something else.
        """
        value: Any = const
        if type(const) is tuple:
            value = ShapeTuple(const)
        elif isinstance(const, float):
            value = float(const)
        key: object = (type(value), repr(value))
        if isinstance(value, np.ndarray):
            value = np.array(value)
            value.flags.writeable = False
            key = (value.dtype, value.shape, value.tobytes())
        elif not isinstance(value, (ShapeTuple, DataType, str, int, float)):
            raise unexpected(
                const,
                "a constant is an array, a tuple of integers, a datatype, a string or a number",
            )
        if key not in self._known:
            self._known[key] = self.c(len(self._constants))
            self._constants.append(value)
        return self._known[key]

    @user_facing
    def emit_call(self, name: str, args: Sequence[object] | None = None, dst: Arg = VOID) -> None:
        """Call a function; store the result in `dst`, if it is a register.

        Arguments that are tensors, tuples of integers or datatypes become constants.

        Errors:
            MisuseError (also TypeError): an argument is something else.
        """
        self.declare_function(name)
        if not isinstance(args, (list, tuple, NoneType)):
            raise MisuseError(f"the arguments are a list, found {args}", about=args)
        operands = [arg if isinstance(arg, Arg) else self._operand(arg) for arg in args or ()]
        if not isinstance(dst, Arg) or dst.kind not in (ArgKind.REGISTER, ArgKind.VOID):
            raise MisuseError(f"results are stored in registers, found {dst}", about=dst)
        self._emit(CallFunction(name, tuple(operands), dst))

    @user_facing
    def emit_ret(self, result: Arg) -> None:
        """Return the value of a register."""
        self._emit(Return(_register(result)))

    @user_facing
    def emit_goto(self, pc_offset: int) -> None:
        """Continue so many instructions further down."""
        self._emit(Goto(_positive(pc_offset)))

    @user_facing
    def emit_if(self, cond: Arg, false_offset: int) -> None:
        """Continue with the next instruction, or further down if the register is zero or false."""
        self._emit(Branch(_register(cond), _positive(false_offset)))

    @user_facing
    def get(self) -> Executable:
        """The executable of the functions so far.

        Errors:
            BuilderStateError (also ValueError): a function is still open, or refers to a constant
                that does not exist.
        """
        if self._body is not None:
            raise BuilderStateError("the executable is requested inside a function")
        for code in self._functions.values():
            for step in code.body:
                for arg in step.args if isinstance(step, CallFunction) else ():
                    if arg.kind is ArgKind.CONSTANT and int(arg.value) >= len(self._constants):
                        raise BuilderStateError(f"{code.name} refers to constant {arg}", about=arg)
        return InstructionExecutable(dict(self._functions), list(self._constants))

    def _operand(self, arg: object) -> Arg:
        if isinstance(arg, (np.ndarray, tuple, DataType)):
            return self.convert_constant(arg)
        raise unexpected(
            arg,
            "an argument is ib.r, ib.imm, ib.f or a constant",
            hint="ib.convert_constant(value) is a constant",
        )

    def _emit(self, instruction: Instruction) -> None:
        if self._body is None:
            raise BuilderStateError(
                "an instruction is emitted outside of a function",
                hint="write it inside `with ib.function(name, num_inputs):`",
            )
        self._body.append(instruction)


def _natural(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise unexpected(value, f"{what} is an integer from 0")
    return value


def _positive(offset: object) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 1:
        raise unexpected(offset, "jumps are to instructions below")
    return offset


def _register(arg: object) -> Arg:
    if not isinstance(arg, Arg) or arg.kind is not ArgKind.REGISTER:
        raise MisuseError(f"expected a register ib.r(...), found {arg}", about=arg)
    return arg


class _Unsaved(Program):
    """A program of instructions, which cannot be saved."""

    @property
    @override
    def saved(self) -> NoReturn:
        raise MisuseError(
            "an executable of instructions is not saved",
            hint="as_python() is the text that builds it again",
        )


class InstructionExecutable(Executable):
    """Functions that an `ExecBuilder` described."""

    def __init__(self, functions: Mapping[str, Code], constants: Sequence[Any]) -> None:
        self._code = functions
        self._constants = constants
        program = _Unsaved(IRModule(), "instructions", "instructions", _no_saved)

        def entries(instrument: Instrument | None = None) -> dict[str, EntryPoint]:
            machine = _Machine(functions, constants, instrument)
            signatures = {
                name: Signature(name, tuple(map(Var, code.params)), None)
                for name, code in functions.items()
            }
            return {
                name: EntryPoint(signature, machine.runner(name), program)
                for name, signature in signatures.items()
            }

        super().__init__(
            entries(),
            program=program,
            source=lambda: program_python(functions, constants),
            report=ExecutionReport(()),
            private_names=(),
            instrumented=entries,
            kernel_source=_no_kernels,
            profile=_no_kernels,
        )

    @override
    def as_text(self) -> str:
        """The instructions of all functions."""
        return program_text(self._code)

    @override
    def stats(self) -> str:
        """The functions and the constants."""
        constants = ", ".join(map(constant_text, self._constants)) or "none"
        return f"functions: {', '.join(self._code) or 'none'}\nconstants: {constants}"


def _no_saved(saved: object) -> NoReturn:
    raise MisuseError("an executable of instructions has no saved form")


def _no_kernels(*args: object) -> NoReturn:
    raise MisuseError(
        "an executable of instructions has no kernels",
        hint="VirtualMachine(ex).profile(name, *args) measures the functions that it calls",
    )


class _Registers(dict[int | str, Value]):
    """The values of registers."""

    def __missing__(self, register: int | str) -> NoReturn:
        raise RuntimeCheckError(
            f"register %{register} has no value: a jump omitted the instruction that sets it"
        )


class _Machine:
    """Runs instructions, one after the other."""

    def __init__(
        self, functions: Mapping[str, Code], constants: Sequence[Any], instrument: Instrument | None
    ) -> None:
        self._functions = functions
        self._constants = constants
        self._instrument = instrument

    def runner(self, name: str) -> Callable[..., Value]:
        """The function of this name."""
        return lambda *args: self._run(self._functions[name], args)

    def _run(self, code: Code, args: tuple[Value, ...]) -> Value:
        registers = _Registers(enumerate(args))
        index = 0
        while True:
            match code.body[index]:
                case Return(result=arg):
                    return registers[arg.value]
                case Goto(offset=offset):
                    index += offset
                case Branch(condition=arg, false_offset=offset):
                    index += 1 if _is_true(registers[arg.value]) else offset
                case CallFunction(name=name, args=operands, dst=dst):
                    values = tuple(self._value(arg, registers) for arg in operands)
                    result = self._call(name, values)
                    if dst.kind is ArgKind.REGISTER:
                        registers[dst.value] = result
                    index += 1

    def _value(self, arg: Arg, registers: _Registers) -> Value:
        match arg.kind:
            case ArgKind.REGISTER:
                return registers[arg.value]
            case ArgKind.IMMEDIATE:
                return arg.value
            case ArgKind.CONSTANT:
                return self._constants[int(arg.value)]
            case ArgKind.FUNCTION:
                return self._function_value(str(arg.value))
            case ArgKind.VM_STATE:
                return self
            case ArgKind.VOID:
                return None

    def _function_value(self, name: str) -> Value:
        if name not in self._functions:
            return get_global_func(name)
        params = (ObjectStructInfo(),) * len(self._functions[name].params)
        sinfo = FuncStructInfo(params, ObjectStructInfo(), False)
        return Closure(self.runner(name), sinfo, name)

    def _call(self, name: str, args: tuple[Value, ...]) -> Value:
        own = name in self._functions
        function = self._function_value(name)
        if self._instrument is not None:
            observed = Instrumented(function, name, self._instrument, is_user_function=not own)
            return from_packed(observed(*args), ())
        return function(*args) if own else from_packed(call_users(function, name, args), ())


def _is_true(value: Value) -> bool:
    return bool(value) if isinstance(value, (bool, int)) else truth(value)
