"""A random program: its text, and the arguments it is called with, all of it as Python to read."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from relaxpy import tir
from relaxpy.ir import GlobalVar, IRModule
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Evaluate
from relaxpy.tir.stmt_functor import renew_defs
from tests.fuzz.kernels.memory import Array, kind_of
from tests.guard_pages import guarded

_GUARD = 96
"""The elements before and after each memory, of which each byte is as many, too."""
Origin = Literal["view", "copy", "pickle"]
"""Whether the elements are those of the memory itself, or copied, perhaps by way of a pickle."""
CALLERS = ("handles", "buffers")
"""What another kernel passes on to the function."""
Edge = Literal["", "start", "end"]
"""Whether a page that must not be accessed lies before the memory or after it."""


@dataclass(frozen=True)
class Scalar:
    """A number that is passed."""

    value: int | float | bool


@dataclass(frozen=True)
class View:
    """An array that is passed: some elements of one of the call's memories.

    Units:
        offset, strides  elements
    """

    memory: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    frozen: bool = False
    origin: Origin = "view"


Argument = Scalar | View


@dataclass(frozen=True)
class Memory:
    """Elements in a row, of which several arguments may be parts."""

    dtype: str
    values: tuple[Any, ...]
    edge: Edge = ""
    """Holds for the copies of its elements, too."""


@dataclass(frozen=True)
class Call:
    """The arguments of one call."""

    memories: tuple[Memory, ...]
    arguments: tuple[Argument, ...]

    def source(self) -> str:
        """Python that makes the list `args`."""
        lines = []
        for number, memory in enumerate(self.memories):
            values = ", ".join(map(_literal, memory.values))
            array = f'np.array([{values}], "{memory.dtype}")'
            if memory.edge:
                array = f"guarded({array}, at_end={memory.edge == 'end'})"
            lines.append(f"m{number} = {array}")
        found = []
        for argument in self.arguments:
            if isinstance(argument, Scalar):
                found.append(_literal(argument.value))
                continue
            layout = f"{argument.offset}, {argument.shape}, {argument.strides}"
            more = ", frozen=True" if argument.frozen else ""
            more += f", origin={argument.origin!r}" if argument.origin != "view" else ""
            if argument.origin == "copy" and self.memories[argument.memory].edge:
                more += f", edge={self.memories[argument.memory].edge!r}"
            found.append(f"part(m{argument.memory}, {layout}{more})")
        lines.append(f"args = [{', '.join(found)}]")
        return "\n".join(lines)

    def build(self) -> tuple[list[Any], list[Array]]:
        """The arguments, and all memory that can be looked at after the call, also around them."""
        bases: list[Array] = []
        memories: list[Array] = []
        for memory in self.memories:
            base, own = _beside_others(np.array(memory.values, kind_of(memory.dtype)), memory.edge)
            bases.append(base)
            memories.append(own)
        args = [
            a.value
            if isinstance(a, Scalar)
            else part(
                memories[a.memory], a.offset, a.shape, a.strides, frozen=a.frozen, origin=a.origin
            )
            for a in self.arguments
        ]
        for number, (arg, argument) in enumerate(zip(args, self.arguments, strict=True)):
            if isinstance(argument, View) and argument.origin == "copy":
                edge = self.memories[argument.memory].edge
                base, own = _beside_others(arg.reshape(-1), edge)
                bases.append(base)
                args[number] = own.reshape(arg.shape)
                args[number].flags.writeable = arg.flags.writeable
        return args, [*bases, *(a for a in args if isinstance(a, np.ndarray))]


def _beside_others(memory: Array, edge: Edge) -> tuple[Array, Array]:
    """The elements of `memory` and others, which no kernel may change, and the former alone."""
    before, after = _GUARD * (edge != "start"), _GUARD * (edge != "end")
    base = np.zeros(before + len(memory) + after, memory.dtype)
    base.view(np.uint8)[...] = _GUARD
    base[before : before + len(memory)] = memory
    if edge:
        base = guarded(base, at_end=edge == "end")
    return base, base[before : before + len(memory)]


def part(
    memory: Array,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    *,
    frozen: bool = False,
    origin: Origin = "view",
    edge: Edge = "",
) -> Array:
    """Elements of `memory` from `offset` on, `strides` elements apart."""
    kind = memory.dtype
    bits = memory.view(f"u{kind.itemsize}")[offset:]
    steps = [s * kind.itemsize for s in strides]
    array = np.lib.stride_tricks.as_strided(bits, shape, steps).view(kind)
    if origin == "copy":
        array = guarded(array, at_end=edge == "end") if edge else array.copy()
    if origin == "pickle":
        array = pickle.loads(pickle.dumps(array))
    if frozen:
        array.flags.writeable = False
    return array


def called(func: PrimFunc, caller: str) -> PrimFunc | IRModule:
    """A module whose kernel of the same name and parameters calls `func`; `func` without caller."""
    if not caller:
        return func
    inner, name = GlobalVar("inner"), str(func.attrs["global_symbol"])
    outer = renew_defs(func)
    buffers = outer.buffer_map if caller == "buffers" else {}
    args = [buffers[p].data if p in buffers else p for p in outer.params]
    outer = PrimFunc(outer.params, Evaluate(tir.Call("void", inner, args)), buffer_map=buffers)
    outer = outer.with_attr("global_symbol", name)
    return IRModule({inner: func.without_attr("global_symbol"), name: outer})


@dataclass(frozen=True)
class Program:
    """One function, and calls of it one after the other: a kernel is one for all sizes."""

    text: str
    calls: tuple[Call, ...]
    block: int = 0
    """Bytes after which rows are divided into blocks; 0 for the usual number."""
    threads: bool = True
    """Whether threads share the blocks, however small."""
    stack: int = 0
    """Bytes of the stack of the thread that calls native functions; 0 for the caller's own."""
    caller: str = ""
    """What the kernel that calls the function passes on, one of `CALLERS`; without one, empty."""

    @property
    def may_crash(self) -> bool:
        """Whether a fault may end the process, so that another one should run the program."""
        return bool(self.stack or any(m.edge for call in self.calls for m in call.memories))

    def limits(self) -> tuple[int, int]:
        """What `TARGET` and `WORTH_THREADS` are, if `block` is given."""
        return self.block, self.block if self.threads else 1 << 30

    def standalone(self, notes: Sequence[str] = ()) -> str:
        """A script that runs the program and prints its arguments afterwards."""
        lines = [f"# {line}" for note in notes for line in note.splitlines()]
        lines += [
            "import ml_dtypes",
            "import numpy as np",
            "",
            "import relaxpy",
            "from relaxpy.script import from_source",
            "from tests.fuzz.kernels.program import called, part",
            "from tests.guard_pages import guarded",
            "",
            'f = from_source("""',
            self.text.strip("\n"),
            '""")',
        ]
        if self.block:
            lines += [
                "from relaxpy.exec.machine.tuning import Blocks",
                "Blocks.TARGET, Blocks.WORTH_THREADS = {}, {}".format(*self.limits()),
                "Blocks.MUCH_WORK = 1",
            ]
        lines += [
            f"executable = relaxpy.compile(called(f, {self.caller!r}))",
            'function = executable[f.attrs["global_symbol"]]',
        ]
        run = "function(*args)"
        if self.stack:
            lines += ["import threading", f"threading.stack_size({self.stack})"]
            run = "t = threading.Thread(target=function, args=args); t.start(); t.join()"
        for call in self.calls:
            lines += [call.source(), run, "print(*args)"]
        return "\n".join(lines) + "\n"


def _literal(value: Any) -> str:
    if isinstance(value, float) and not np.isfinite(value):
        return "np.nan" if value != value else "np.inf" if value > 0 else "-np.inf"
    return repr(value)
