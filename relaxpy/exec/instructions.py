"""Register instructions of `ExecBuilder`: their checks and text form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import BuilderStateError
from relaxpy.exec.runtime.values import ShapeTuple
from relaxpy.ir.core.dtype import DataType
from relaxpy.support.dataclass import dataclass, replace


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
    """Call a function of the executable, or else a packed one; store the result in `dst`."""

    name: str
    args: tuple[Arg, ...]
    dst: Arg


@dataclass(frozen=True, slots=True)
class Return:
    """Return the value of a register."""

    result: Arg


@dataclass(frozen=True, slots=True)
class Goto:
    """Jump `pc_offset` instructions ahead."""

    offset: int


@dataclass(frozen=True, slots=True)
class Branch:
    """Continue with the next instruction, or further down if the register is zero or false."""

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
