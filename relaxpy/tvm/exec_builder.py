"""ExecBuilder: executables from instructions on registers; and TVM's two compilation steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, IntEnum
from types import NoneType
from typing import Any, NoReturn, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import BuilderStateError, MisuseError, RuntimeCheckError, unexpected
from relaxpy.exec.api.compile import TargetLike, build
from relaxpy.exec.api.executable import EntryPoint, Executable, Program, SourceKind
from relaxpy.exec.runtime.checks import Signature
from relaxpy.exec.runtime.instrument import Instrument, Instrumented
from relaxpy.exec.runtime.operators import truth
from relaxpy.exec.runtime.registry import get_global_func
from relaxpy.exec.runtime.report import ExecutionReport
from relaxpy.exec.runtime.users import call_users
from relaxpy.exec.runtime.values import Closure, ShapeTuple, Value, from_packed
from relaxpy.exec.store.container import Sections
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import FuncStructInfo, ObjectStructInfo, Var
from relaxpy.ir.tir.ops import as_int
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing


class ArgKind(Enum):
    """The kind of an argument of an instruction; the value is its prefix in text form."""

    REGISTER = "%"
    IMMEDIATE = "i"
    CONSTANT = "c"
    FUNCTION = "f"
    VM_STATE = "%vm"
    VOID = "%void"


@dataclass(frozen=True, slots=True)
class Arg:
    """An argument: the number of a register or constant, an integer, or the name of a function."""

    kind: ArgKind
    value: int | str = 0

    @override
    def __str__(self) -> str:
        match self.kind:
            case ArgKind.VM_STATE | ArgKind.VOID:
                return str(self.kind.value)
            case ArgKind.CONSTANT | ArgKind.FUNCTION:
                return f"{self.kind.value}[{self.value}]"
            case ArgKind.REGISTER | ArgKind.IMMEDIATE:
                return f"{self.kind.value}{self.value}"

    @property
    def python(self) -> str:
        """The call of the builder that returns this argument."""
        match self.kind:
            case ArgKind.VM_STATE:
                return "ib.vm_state()"
            case ArgKind.VOID:
                return "ib.void_arg()"
            case ArgKind.CONSTANT:
                return f"constants[{self.value}]"
            case ArgKind.FUNCTION:
                return f"ib.f({self.value!r})"
            case ArgKind.REGISTER:
                return f"ib.r({self.value})"
            case ArgKind.IMMEDIATE:
                return f"ib.imm({self.value})"


VOID = Arg(ArgKind.VOID)


@dataclass(frozen=True, slots=True)
class CallFunction:
    """Calls a function of the executable, or else a packed one; stores the result in `dst`."""

    name: str
    args: tuple[Arg, ...]
    dst: Arg


@dataclass(frozen=True, slots=True)
class Return:
    """Returns the value of a register."""

    result: Arg


@dataclass(frozen=True, slots=True)
class Goto:
    """Jumps `pc_offset` instructions ahead."""

    offset: int


@dataclass(frozen=True, slots=True)
class Branch:
    """Continues with the next instruction, or further down if the register is zero or false."""

    condition: Arg
    false_offset: int


Instruction: TypeAlias = CallFunction | Return | Goto | Branch


@dataclass(frozen=True, slots=True)
class Code:
    """A function: the names of its parameters, which are the first registers, and instructions."""

    name: str
    params: tuple[str, ...]
    body: tuple[Instruction, ...]

    def checked(self) -> Code:
        """The function itself.

        Errors:
            BuilderStateError: a register is read that no instruction before has set, a jump leaves
                the function, or the end is reached without a return.
        """
        known = {Arg(ArgKind.REGISTER, i) for i in range(len(self.params))}
        for index, instruction in enumerate(self.body):
            for arg in _reads(instruction):
                if arg.kind is ArgKind.REGISTER and arg not in known:
                    raise BuilderStateError(
                        f"instruction {index} of function {self.name} reads register {arg}, "
                        "which has no value yet",
                        about=arg,
                    )
            for target in _targets(instruction, index):
                if target >= len(self.body):
                    raise BuilderStateError(
                        f"instruction {index} of function {self.name} continues at {target}, "
                        f"but there are {len(self.body)} instructions",
                        hint="a function ends with emit_ret, and jumps are to instructions below",
                    )
            if isinstance(instruction, CallFunction):
                known.add(instruction.dst)
        if not self.body:
            raise BuilderStateError(f"function {self.name} has no instructions")
        return self

    def renumbered(self) -> Code:
        """The function with registers numbered in the order in which they are set."""
        names = {Arg(ArgKind.REGISTER, i): i for i in range(len(self.params))}

        def renamed(arg: Arg) -> Arg:
            if arg.kind is not ArgKind.REGISTER:
                return arg
            return Arg(ArgKind.REGISTER, names.setdefault(arg, len(names)))

        return replace(self, body=tuple(_map_args(step, renamed) for step in self.body))

    @property
    def text(self) -> str:
        """The instructions, one on a line."""
        lines = [f"@{self.name}({', '.join(self.params)}):"]
        return "\n".join([*lines, *(f"  {_text(step)}" for step in self.body)])

    @property
    def python(self) -> str:
        """The calls of a builder that describe the function."""
        header = f"with ib.function({self.name!r}, {len(self.params)}, {list(self.params)}):"
        return "\n".join([header, *(f"    {_python(step)}" for step in self.body)])


def _reads(instruction: Instruction) -> Sequence[Arg]:
    match instruction:
        case CallFunction(args=args):
            return args
        case Return(result=arg) | Branch(condition=arg):
            return (arg,)
        case Goto():
            return ()


def _targets(instruction: Instruction, index: int) -> Sequence[int]:
    """The instructions that may follow the one at `index`."""
    match instruction:
        case CallFunction():
            return (index + 1,)
        case Return():
            return ()
        case Goto(offset=offset):
            return (index + offset,)
        case Branch(false_offset=offset):
            return (index + 1, index + offset)


def _map_args(instruction: Instruction, change: Any) -> Instruction:
    match instruction:
        case CallFunction(args=args, dst=dst):
            return replace(instruction, args=tuple(map(change, args)), dst=change(dst))
        case Return(result=arg):
            return Return(change(arg))
        case Branch(condition=arg):
            return replace(instruction, condition=change(arg))
        case Goto():
            return instruction


def _text(instruction: Instruction) -> str:
    match instruction:
        case CallFunction(name=name, args=args, dst=dst):
            return f"call  {name:<16} in: {', '.join(map(str, args)):<12} dst: {dst}"
        case Return(result=arg):
            return f"ret   {arg}"
        case Branch(condition=arg, false_offset=offset):
            return f"if    {arg}, {offset}"
        case Goto(offset=offset):
            return f"goto  {offset}"


def _python(instruction: Instruction) -> str:
    match instruction:
        case CallFunction(name=name, args=args, dst=dst):
            operands = ", ".join(arg.python for arg in args)
            return f"ib.emit_call({name!r}, args=[{operands}], dst={dst.python})"
        case Return(result=arg):
            return f"ib.emit_ret({arg.python})"
        case Branch(condition=arg, false_offset=offset):
            return f"ib.emit_if({arg.python}, {offset})"
        case Goto(offset=offset):
            return f"ib.emit_goto({offset})"


def constant_python(value: object) -> str:
    """The Python expression of a constant."""
    match value:
        case ShapeTuple():
            return repr(tuple(value))
        case DataType():
            return f"relaxpy.runtime.DataType({str(value)!r})"
        case np.ndarray():
            data = f"np.frombuffer(bytes.fromhex({value.tobytes().hex()!r}), {value.dtype.name!r})"
            return f"{data}.reshape({value.shape})"
        case float():
            return f"float({str(value)!r})"
        case _:
            return repr(value)


def constant_text(value: object) -> str:
    """A constant in one short line."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name} tensor of shape {value.shape}"
    return constant_python(value) if not isinstance(value, DataType) else str(value)


def program_text(functions: Mapping[str, Code]) -> str:
    """The functions, then the packed functions that they call."""
    called = [
        s.name for code in functions.values() for s in code.body if isinstance(s, CallFunction)
    ]
    packed = [f"@{name} packed_func" for name in dict.fromkeys(called) if name not in functions]
    return "\n\n".join([*(code.text for code in functions.values()), *packed])


def program_python(functions: Mapping[str, Code], constants: Sequence[object]) -> str:
    """The Python that builds the functions and their constants."""
    values = [f"ib.convert_constant({constant_python(value)})" for value in constants]
    imports = "import numpy as np\n\nimport relaxpy\nfrom relaxpy import relax\n"
    lines = [imports, "ib = relax.ExecBuilder()", f"constants = [{', '.join(values)}]"]
    return "\n".join([*lines, *(code.python for code in functions.values())])


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
        """The value of a register."""
        self._emit(Return(_register(result)))

    @user_facing
    def emit_goto(self, pc_offset: int) -> None:
        """Continue so many instructions further down."""
        self._emit(Goto(_positive(pc_offset)))

    @user_facing
    def emit_if(self, cond: Arg, false_offset: int) -> None:
        """Continues with the next instruction, or further down if the register is zero or false."""
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


class _Instructions:
    """The form of functions of instructions."""

    new_backend = None

    def __init__(self, functions: Mapping[str, Code], constants: Sequence[Any]) -> None:
        self._functions, self._constants = functions, constants

    def source(self) -> str:
        """The text that builds them again."""
        return program_python(self._functions, self._constants)

    def instrumented(self, instrument: Instrument | None) -> Mapping[str, Callable[..., Value]]:
        """The functions by name, which report calls to an instrument."""
        machine = _Machine(self._functions, self._constants, instrument)
        return {name: machine.runner(name) for name in self._functions}

    def timed(self, instrument: Instrument) -> tuple[Mapping[str, Callable[..., Any]], None]:
        """The functions by name: there is no native code."""
        return self.instrumented(instrument), None

    def machine_code(self, sections: Sections) -> None:
        """Nothing: there is no file of them."""


class InstructionExecutable(Executable):
    """Functions that an `ExecBuilder` described."""

    def __init__(self, functions: Mapping[str, Code], constants: Sequence[Any]) -> None:
        self._code = functions
        self._constants = constants
        program = _Unsaved(IRModule(), "instructions", "instructions", _no_saved)
        form = _Instructions(functions, constants)
        program.form = lambda: form
        program.public = {
            name: (name, Signature(name, tuple(map(Var, code.params)), None))
            for name, code in functions.items()
        }
        runs = form.instrumented(None)
        entries = {
            name: EntryPoint(signature, runs[name], program)
            for name, signature in program.public.values()
        }
        super().__init__(entries, program=program, report=ExecutionReport(()), private_names=())

    @override
    def kernel_source(self, name: str, kind: SourceKind = "python") -> NoReturn:
        """Errors: MisuseError: there are no kernels."""
        _no_kernels()

    @override
    def profile(self, *args: object, **options: object) -> NoReturn:
        """Errors: MisuseError: there are no kernels."""
        _no_kernels()

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


def _no_kernels() -> NoReturn:
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


@user_facing
def vm_codegen(builder: ExecBuilder, mod: IRModule, exec_mode: str = "bytecode") -> IRModule:
    """The module, which `vm_link` compiles; the builder has to be new.

    Errors:
        MisuseError (also TypeError, ValueError): an argument is of another class, the mode is
            unknown, or the builder has functions.
    """
    if not isinstance(builder, ExecBuilder) or builder.has_functions:
        raise unexpected(builder, "expected a new ExecBuilder")
    if not isinstance(mod, IRModule) or exec_mode not in ("bytecode", "compiled"):
        raise MisuseError(
            f"expected an IRModule and 'bytecode' or 'compiled', found {type(mod).__name__} and "
            f"{exec_mode!r:.60}",
            about=mod,
        )
    return mod


@user_facing
def vm_link(
    builder: ExecBuilder,
    target: TargetLike | None = None,
    tir_mod: IRModule | None = None,
    tir_pipeline: str | None = "default",
    ext_libs: Sequence[object] | None = None,
    params: Mapping[str, object] | None = None,
    *,
    system_lib: bool | None = None,
) -> Executable:
    """The executable of a module without further passes, or of the functions of the builder.

    Errors:
        MisuseError (also TypeError, ValueError): there are external libraries, or an option has an
            unknown value.
        CompileError: the module cannot run on this target.
    """
    if ext_libs:
        raise MisuseError("external libraries are not linked; register packed functions instead")
    if tir_mod is None:
        return builder.get()
    return build(tir_mod, target, params, None, tir_pipeline, system_lib=system_lib)
