"""Random kernels under all kinds of signatures: `python -m tests.fuzz.signatures COUNT [SEED]`.

The reference evaluator is the oracle, on the values and on what is written to arguments. What is
varied, each by itself:

- sizes of kernels and of the functions that call them: literals, variables, and sums of both; a
  variable of a kernel where its callers have a literal, and seldom the other way round; one
  variable for equal sizes, or several;
- parameters of kernels: no to three buffers, also of rank 0, by handles or as buffers; numbers,
  which may be sizes; what is not used; public kernels and private ones;
- what kernels in place store: all elements, or those that `T.where` or a branch leaves;
- calls: none, one or several; `call_tir`, `call_tir_inplace`, `call_dps_packed`; an operand twice;
  operands as a tuple; one result or two;
- functions: parameters in any order, unused ones, shapes and numbers; results that are parameters,
  the same twice, tuples in tuples; dataflow blocks, annotations, private functions in between;
- entries: executables, virtual machines and their inputs that are set, decorated functions that are
  called, public kernels, executables that were saved or pickled; with pipelines, and each fast path
  on and off;
- arguments: other sizes in each run, 0 among them; with gaps, reversed, transposed, the same array
  twice; and arguments that do not fit, whose errors are of one class.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import random
import re
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import relaxpy
from relaxpy.errors import RelaxpyError, RelaxpyWarning, RuntimeCheckError
from relaxpy.exec.machine.fast_paths import FAST_PATHS
from relaxpy.ir.module import IRModule
from relaxpy.script import from_source
from tests.fuzz.progress import command_line, noted, report

DTYPES = ("float32", "float32", "float64", "int32", "int64", "int8")
PIPELINES = ("default", "default", "default", "default_build", "zero", "legalize", None)
HEADER = "from relaxpy.script import relax as R, tir as T\n\n"
LARGEST = 100
"""The largest element that a kernel computes, so that sums of them are exact."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a function, with its dimensions as text."""

    name: str
    shape: tuple[str, ...]
    dtype: str

    @property
    def sinfo(self) -> str:
        """The struct info, in the scope of its variables."""
        return f'R.Tensor(({", ".join(self.shape)}{"," * (len(self.shape) == 1)}), "{self.dtype}")'


@dataclass(frozen=True)
class Number:
    """A parameter of a function that is a number or a shape of one dimension."""

    name: str
    symbol: str
    is_shape: bool


@dataclass(frozen=True)
class Program:
    """The text of the functions, and the parameters of `main` and of public kernels.

    The dimensions of those of kernels are variables of the function, or literals.
    """

    text: str
    params: tuple[Tensor | Number, ...]
    symbols: tuple[str, ...]
    kernels: Mapping[str, tuple[Tensor | str, ...]]
    may_share: bool
    """Whether parameters may be the same array."""

    def module(self) -> IRModule:
        """The functions as a module."""
        found = from_source(self.text)
        return found if isinstance(found, IRModule) else IRModule({"main": found})


@dataclass
class Kernel:
    """A kernel that is being written: its axes have extents in the caller and in its own text."""

    rng: random.Random
    name: str
    extents: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    params: list[str] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    may_not_fit: bool = False
    """Whether the kernel has a literal where its caller has a variable."""

    def axis(self, extent: str) -> int:
        """An axis of this extent: one that there is, or a new one."""
        same = [k for k, found in enumerate(self.extents) if found == extent]
        if same and self.rng.random() < 0.8:
            return self.rng.choice(same)
        self.extents.append(extent)
        related = [k for k, found in enumerate(self.extents[:-1]) if f"{found} + 1" == extent]
        equal = [self.own[k] for k in same]
        is_literal = extent.isdecimal()
        if related and self.own[related[0]].isidentifier() and self.rng.random() < 0.5:
            own = f"{self.own[related[0]]} + 1"
        elif is_literal and self.rng.random() < 0.5:
            own = extent
        elif not is_literal and self.rng.random() < 0.02:
            own, self.may_not_fit = "4", True
        elif equal and self.rng.random() < 0.5:
            own = equal[0]
        else:
            own = f"p{len(self.symbols)}"
            self.symbols.append(own)
        self.own.append(own)
        return len(self.own) - 1

    def buffer(self, name: str, axes: Sequence[int], dtype: str) -> None:
        """A parameter with these axes as dimensions."""
        shape = "".join(f"{self.own[axis]}, " for axis in axes)
        if self.rng.random() < 0.5 and all(self.own[axis].isdecimal() for axis in axes):
            self.params.append(f'{name}: T.Buffer(({shape}), "{dtype}")')
            return
        self.params.append(f"{name.lower()}_h: T.handle")
        self.lines.append(f'    {name} = T.match_buffer({name.lower()}_h, ({shape}), "{dtype}")')

    def store(
        self,
        block: str,
        target: str,
        axes: Sequence[int],
        dtype: str,
        value: str,
        *,
        partly: str = "",
    ) -> None:
        """A block that writes `target`; axes that it does not have are summed over.

        It writes a part of the elements by `partly`, a branch or `T.where`.
        """
        order = [*range(len(self.own))]
        self.rng.shuffle(order)
        place = f"{target}[{', '.join(f'v{axis}' for axis in axes) or '()'}]"
        if not order:
            self.lines.append(f"    {place} = {value}")
            return
        variables = ", ".join(f"v{axis}" for axis in order)
        kinds = "".join("S" if axis in axes else "R" for axis in order)
        loops = ", ".join(f"i{axis}" for axis in order)
        self.lines += [
            f"    for {loops} in T.grid({', '.join(self.own[axis] for axis in order)}):",
            f'        with T.block("{block}"):',
            f'            {variables} = T.axis.remap("{kinds}", [{loops}])',
        ]
        if "R" in kinds:
            zero = f"T.{dtype}(0)"
            self.lines += [f"            with T.init():\n                {place} = {zero}"]
            value = f"{place} + {value}"
        if partly:
            i = self.rng.choice(order)
            tests = (f"i{i} > 0", f"i{i} % 2 == 0", f"i{i} * 2 < {self.own[i]}", f"i{i} != 1")
            self.lines.append(f"            {partly.format(self.rng.choice(tests))}")
        self.lines.append(f"            {'    ' * partly.endswith(':')}{place} = {value}")

    def text(self, *, is_private: bool) -> str:
        """The text, once everything is written."""
        options = "(private=True)" if is_private else ""
        of_numbers = {param.split(":")[0] for param in self.params}
        own = [symbol for symbol in self.symbols if symbol not in of_numbers]
        head = f"@T.prim_func{options}\ndef {self.name}({', '.join(self.params)}):\n"
        bound = [f"    {symbol} = T.int64()" for symbol in own]
        return head + "\n".join([*bound, *self.lines, ""])


@dataclass
class Writer:
    """A function that is being written, with its kernels."""

    rng: random.Random
    symbols: tuple[str, ...]
    tensors: list[Tensor] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    public: dict[str, tuple[Tensor | str, ...]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    needed: dict[str, Tensor] = field(default_factory=dict)
    """The last tensor in the memory of parameters that are overwritten, and of calls that may fail.

    They are results, since a call whose result is not used is removed, or not.
    """
    last: list[Tensor] = field(default_factory=list)
    """The results of the last call."""
    params: frozenset[str] = frozenset()
    names: int = 0

    def fresh(self, stem: str) -> str:
        """A new name."""
        self.names += 1
        return f"{stem}{self.names}"

    def size(self) -> str:
        """A size in terms of the variables of the function."""
        if self.symbols and self.rng.random() < 0.5:
            symbol = self.rng.choice(self.symbols)
            return self.rng.choice((symbol, symbol, symbol, f"{symbol} + 1"))
        return self.rng.choice(("1", "2", "3", "4", "4", "9"))

    def call(self) -> None:
        """A call of a kernel that is written for it."""
        kernel = Kernel(self.rng, self.fresh("k"))
        operands: list[Tensor] = []
        own_axes: list[list[int]] = []
        for tensor in self.rng.choices(self.tensors, k=self.rng.choice((0, 1, 1, 1, 2, 2, 3))):
            if len(kernel.extents) + len(tensor.shape) <= 3:
                operands.append(tensor)
                own_axes.append([kernel.axis(size) for size in tensor.shape])
        while len(kernel.extents) < 3 and self.rng.random() < (0.2 if operands else 0.6):
            kernel.axis(self.size())
        for k, (tensor, axes) in enumerate(zip(operands, own_axes, strict=True)):
            kernel.buffer(f"A{k}", axes, tensor.dtype)
        # Each element is written once, so that the order does not matter.
        inplace = (
            self.rng.random() < 0.3
            and operands.count(operands[0] if operands else None) == 1  # type: ignore[arg-type]
            and sorted(own_axes[0]) == [*range(len(kernel.extents))]
        )
        value = self.value(kernel, operands, own_axes, plain=inplace)
        results = self.results(kernel, own_axes, operands, inplace=inplace)
        numbers = self.numbers(kernel)
        for name, axes, dtype in results:
            added = [f' + T.Cast("{dtype}", {number})' for number, used, _ in numbers if used]
            element = "".join([f'T.Cast("{dtype}", {value})', *added])
            ways = ("", "T.where({})", "if {}:") if name == "A0" else ("",)
            way = self.rng.choice(ways)
            kernel.store(f"b{name}", name, axes, dtype, element, partly=way)
        is_private = self.rng.random() < 0.6
        self.kernels.append(kernel.text(is_private=is_private))
        outputs = [
            Tensor("", tuple(kernel.extents[axis] for axis in axes), dtype)
            for _, axes, dtype in results
        ]
        passed = [*operands, *(outputs[1:] if inplace else outputs)]
        if not is_private and all(
            size.isdecimal() or size in self.symbols for t in passed for size in t.shape
        ):
            self.public[kernel.name] = (*passed, *(given for _, _, given in numbers))
        self.emit(kernel.name, operands, outputs, [given for *_, given in numbers], inplace=inplace)
        if kernel.may_not_fit:
            self.needed[self.last[0].name] = self.last[0]

    def value(
        self,
        kernel: Kernel,
        operands: Sequence[Tensor],
        own_axes: Sequence[Sequence[int]],
        *,
        plain: bool,
    ) -> str:
        """An element computed of the operands, each of which is used or not."""
        kind = "float32" if any(t.dtype.startswith("float") for t in operands) else "int32"
        terms = [f"T.{kind}({self.rng.randint(-3, 3)})"]
        for k, axes in enumerate(own_axes):
            if self.rng.random() < 0.2 and not (plain and k == 0):
                continue
            flipped = [not plain and self.rng.random() < 0.2 for _ in axes]
            index = ", ".join(
                f"{kernel.own[axis]} - 1 - v{axis}" if back else f"v{axis}"
                for axis, back in zip(axes, flipped, strict=True)
            )
            terms.append(f'T.Cast("{kind}", A{k}[{index or "()"}])')
        if self.rng.random() < 0.3 and kernel.own:
            terms.append(f'T.Cast("{kind}", v{self.rng.randrange(len(kernel.own))})')
        value = terms[0]
        for term in terms[1:]:
            form = self.rng.choice(("{} + {}", "{} - {}", "{} * {}", "T.max({}, {})"))
            value = f"({form.format(value, term)})"
        limits = (f"T.{kind}({-LARGEST})", f"T.{kind}({LARGEST})")
        return f"T.min(T.max({value}, {limits[0]}), {limits[1]})"

    def results(
        self,
        kernel: Kernel,
        own_axes: Sequence[Sequence[int]],
        operands: Sequence[Tensor],
        *,
        inplace: bool,
    ) -> list[tuple[str, list[int], str]]:
        """The buffers that the kernel writes: name, axes and datatype."""
        found: list[tuple[str, list[int], str]] = []
        unbound = {*range(len(kernel.extents))} - {axis for axes in own_axes for axis in axes}
        if inplace:
            found.append(("A0", [*own_axes[0]], operands[0].dtype))
        if not inplace or self.rng.random() < 0.2:
            axes = [
                axis
                for axis in range(len(kernel.extents))
                if axis in unbound or self.rng.random() < 0.7
            ]
            self.rng.shuffle(axes)
            found.append(("B0", axes, self.rng.choice(DTYPES)))
            kernel.buffer(*found[-1])
        if self.rng.random() < 0.2:
            found.append(("B1", [*range(len(kernel.extents))], self.rng.choice(DTYPES)))
            kernel.buffer(*found[-1])
        return found

    def numbers(self, kernel: Kernel) -> list[tuple[str, bool, str]]:
        """The numbers of a kernel: name, whether it is used, and what callers pass."""
        found = []
        if kernel.symbols and self.rng.random() < 0.15:
            symbol = self.rng.choice(kernel.symbols)
            kernel.params.append(f"{symbol}: T.int64")
            found.append((symbol, False, kernel.extents[kernel.own.index(symbol)]))
        if self.rng.random() < 0.2:
            kernel.params.append("s: T.int64")
            found.append(("s", self.rng.random() < 0.7, self.size()))
        return found

    def emit(
        self,
        kernel: str,
        operands: Sequence[Tensor],
        outputs: Sequence[Tensor],
        numbers: Sequence[str],
        *,
        inplace: bool,
    ) -> None:
        """The call, and its results as tensors."""
        listed = "".join(f"{t.name}, " for t in operands)
        args = f"({listed})"
        if operands and self.rng.random() < 0.1:
            name = self.fresh("t")
            self.lines.append(f"{name} = {args}")
            args = name
        sinfos = ", ".join(t.sinfo for t in outputs)
        out = sinfos if len(outputs) == 1 else f"[{sinfos}]"
        extra = f", tir_vars=R.shape([{', '.join(numbers)}])" if numbers else ""
        called = "call_tir"
        if inplace:
            called = "call_tir_inplace"
            indices = [0, *[-1] * (len(outputs) - 1)]
            extra += f", inplace_indices={indices}"
        self.bind(f"R.{called}({kernel}, {args}, out_sinfo={out}{extra})", outputs)
        if inplace:
            self.overwrite(operands[0].name)
            self.tensors = [t for t in self.tensors if t.name != operands[0].name]

    def overwrite(self, name: str) -> None:
        """Note that the last call has written the memory of a tensor, if that matters."""
        roots = {last.name: root for root, last in self.needed.items()}
        root = roots.get(name, name)
        if root in self.params or root in self.needed:
            self.needed[root] = self.last[0]

    def packed(self) -> None:
        """A call of a packed function, which gives twice its operand."""
        operand = self.rng.choice(self.tensors)
        args = f'"tests.fuzz.twice", ({operand.name},), out_sinfo={operand.sinfo}'
        self.bind(f"R.call_dps_packed({args})", [operand])

    def bind(self, value: str, outputs: Sequence[Tensor]) -> None:
        """Name the results of a call."""
        name = self.fresh("y")
        annotation = ""
        if len(outputs) == 1 and self.rng.random() < 0.2:
            annotation = f": {outputs[0].sinfo}"
        self.lines.append(f"{name}{annotation} = {value}")
        names = [name]
        if len(outputs) > 1:
            names = [self.fresh("y") for _ in outputs]
            self.lines += [f"{each} = {name}[{k}]" for k, each in enumerate(names)]
        self.last = [
            Tensor(each, output.shape, output.dtype)
            for each, output in zip(names, outputs, strict=True)
        ]
        self.tensors += self.last


def twice(x: Any, out: Any) -> None:
    """What the packed function does."""
    np.multiply(x, 2, out=out)


relaxpy.register_func("tests.fuzz.twice", twice, override=True, pure=True)


def write(seed: object) -> Program:
    """The program of this seed."""
    rng = random.Random(str(seed))
    symbols = ("n", "m")[: rng.choice((0, 0, 1, 1, 2))]
    writer = Writer(rng, symbols)
    params: list[Tensor | Number] = []
    for symbol in symbols:
        kind = rng.choice(("tensor", "tensor", "tensor", "shape", "number"))
        if kind == "tensor":
            others = [writer.size() for _ in range(rng.choice((0, 0, 1)))]
            shape = [symbol, *(size for size in others if size.isidentifier() or size.isdecimal())]
            rng.shuffle(shape)
            params.append(Tensor(writer.fresh("x"), tuple(shape), rng.choice(DTYPES)))
        else:
            params.append(Number(writer.fresh("s"), symbol, kind == "shape"))
    for _ in range(rng.choice((1, 1, 2, 3))):
        shape = [writer.size() for _ in range(rng.choice((0, 1, 1, 2, 2)))]
        params.append(Tensor(writer.fresh("x"), tuple(shape), rng.choice(DTYPES)))
    rng.shuffle(params)
    writer.tensors = [p for p in params if isinstance(p, Tensor)]
    writer.params = frozenset(p.name for p in params)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        if writer.tensors and rng.random() < 0.1:
            writer.packed()
        else:
            writer.call()
    if rng.random() < 0.5:
        params = used(writer, params)
    return finished(writer, params)


def used(writer: Writer, params: Sequence[Tensor | Number]) -> list[Tensor | Number]:
    """The parameters without those that no call takes and that bind no variable alone."""
    kept = [*params]
    words = {word for line in writer.lines for word in re.findall(r"\w+", line)}
    for param in params:
        rest = [p for p in kept if p is not param]
        bound = {s for p in rest for s in (p.shape if isinstance(p, Tensor) else (p.symbol,))}
        if param.name not in words and rest and {*writer.symbols} <= bound:
            kept = rest
    gone = {p.name for p in params} - {p.name for p in kept}
    writer.tensors = [t for t in writer.tensors if t.name not in gone]
    return kept


def finished(writer: Writer, params: Sequence[Tensor | Number]) -> Program:
    """The whole program: kernels, and `main`, which may call another function to do it all."""
    rng, symbols = writer.rng, writer.symbols
    pool = writer.tensors[-4:]
    kept = rng.sample(pool, rng.randint(1, len(pool))) if rng.random() < 0.5 else [pool[-1]]
    kept += [last for last in writer.needed.values() if last not in kept]
    names = [t.name for t in kept]
    sinfos = [t.sinfo for t in kept]
    if rng.random() < 0.1:
        names, sinfos = [*names, names[0]], [*sinfos, sinfos[0]]
    result, sinfo = names[0], sinfos[0]
    if len(names) > 1 or rng.random() < 0.1:
        result, sinfo = f"({', '.join(names)},)", f"R.Tuple({', '.join(sinfos)})"
        if rng.random() < 0.2:
            result, sinfo = f"({result}, {names[0]})", f"R.Tuple({sinfo}, {sinfos[0]})"
    body = [f"{symbol} = T.int64()" for symbol in symbols]
    in_block = rng.random() < 0.5
    outputs = sorted({*names} - {p.name for p in params})
    if in_block and writer.lines:
        body += ["with R.dataflow():", *(f"    {line}" for line in writer.lines)]
        made = ["whole"] if "(" in result else outputs
        if "(" in result:
            body.append(f"    whole = {result}")
            result = "whole"
        body.append(f"    R.output({', '.join(made)})" if made else "    R.output()")
    else:
        body += writer.lines
    listed = ", ".join(map(parameter, params))
    returns = f" -> {quoted(sinfo, symbols)}" if rng.random() < 0.5 else ""
    texts = [*writer.kernels]
    if rng.random() < 0.3:
        option = rng.choice(("", "(private=True)"))
        returns = f" -> {quoted(sinfo, symbols)}"
        texts.append(function(f"@R.function{option}", "inner", listed, returns, body, result))
        passed = ", ".join(p.name for p in params)
        body, result = [*body[: len(symbols)], f"r = inner({passed})"], "r"
    texts.append(function("@R.function", "main", listed, returns, body, result))
    may_share = not writer.needed
    return Program("\n\n".join(texts), tuple(params), symbols, writer.public, may_share)


def function(
    decorator: str, name: str, listed: str, returns: str, body: Sequence[str], result: str
) -> str:
    """The text of a function."""
    lines = "\n    ".join([*body, f"return {result}"])
    return f"{decorator}\ndef {name}({listed}){returns}:\n    {lines}\n"


def quoted(sinfo: str, symbols: Sequence[str]) -> str:
    """A struct info in a signature, where sizes are strings."""
    for symbol in symbols:
        for size in (f"{symbol} + 1", symbol):
            for before, after in ((" ", ","), ("(", ","), (" ", ")"), ("(", ")")):
                sinfo = sinfo.replace(f"{before}{size}{after}", f'{before}"{size}"{after}')
    return sinfo


def parameter(param: Tensor | Number) -> str:
    """A parameter of a function, as text."""
    if isinstance(param, Tensor):
        symbols = {name for size in param.shape for name in size.split() if name.isidentifier()}
        return f"{param.name}: {quoted(param.sinfo, sorted(symbols))}"
    if param.is_shape:
        return f'{param.name}: R.Shape(["{param.symbol}"])'
    return f'{param.name}: R.Prim(value="{param.symbol}")'


# --- arguments


def array(rng: random.Random, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """An array of small integers, contiguous or not."""
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    gap = rng.choice((1, 1, 1, 2))
    wide = (*shape[:-1], shape[-1] * gap) if shape else ()
    found = np.asarray(numbers.integers(-4, 5, wide)).astype(dtype)
    if shape:
        found = found[..., ::gap]
        if rng.random() < 0.15:
            found = found[::-1]
        if len(shape) == 2 and rng.random() < 0.15:
            found = found.T.copy().T
    return found


def arguments(program: Program, rng: random.Random) -> list[Any]:
    """Arguments for `main`, of some sizes."""
    sizes = {symbol: rng.choice((0, 1, 1, 2, 3, 3, 4, 4, 5, 9, 33)) for symbol in program.symbols}
    found: list[Any] = []
    for param in program.params:
        if isinstance(param, Number):
            size = sizes[param.symbol]
            found.append(relaxpy.runtime.ShapeTuple([size]) if param.is_shape else size)
            continue
        shape = tuple(eval(size, {}, dict(sizes)) for size in param.shape)
        alike = [a for a in found if getattr(a, "shape", None) == shape and a.dtype == param.dtype]
        if alike and program.may_share and rng.random() < 0.3:
            found.append(rng.choice(alike))
        else:
            found.append(array(rng, shape, param.dtype))
    return found


def spoiled(args: Sequence[Any], rng: random.Random) -> list[Any]:
    """The arguments, one of which has another size, rank or datatype, or is missing."""
    found = [*args]
    k = rng.randrange(len(found))
    given = found[k]
    if not isinstance(given, np.ndarray) or rng.random() < 0.2:
        del found[k]
    elif rng.random() < 0.5 and given.ndim:
        axis = rng.randrange(given.ndim)
        more = [(0, int(axis == at)) for at in range(given.ndim)]
        found[k] = np.pad(given, more)
    elif rng.random() < 0.5:
        found[k] = given[None]
    else:
        found[k] = given.astype("int16")
    return found


def copied(args: Sequence[Any]) -> list[Any]:
    """Arguments with the same layout, of which those that were one array are one again."""
    new: dict[int, Any] = {}
    for given in args:
        if isinstance(given, np.ndarray) and id(given) not in new:
            base = given if given.base is None else given.base
            start = given.__array_interface__["data"][0] - base.__array_interface__["data"][0]
            new[id(given)] = (
                np.ndarray(given.shape, given.dtype, base.copy(), start, given.strides)
                if given.size
                else given.copy()
            )
    return [new.get(id(given), given) for given in args]


# --- entries

Call = Callable[..., Any]


def by_inputs(executable: Any) -> Call:
    """The entry of a machine whose inputs are set first."""
    machine = relaxpy.VirtualMachine(executable)

    def call(*args: Any) -> Any:
        machine.set_input("main", *args)
        machine.invoke_stateful("main")
        return machine.get_outputs("main")

    return call


def loaded(executable: Any, folder: Path, *, native_code: bool) -> Call:
    """`main` of the executable that was saved and is loaded again."""
    path = folder / "saved.rx"
    executable.save(path)
    return relaxpy.load_executable(path, native_code=native_code)["main"]


ENTRIES: Mapping[str, Callable[[Any, Path], Call]] = {
    "executable": lambda ex, _: ex["main"],
    "machine": lambda ex, _: relaxpy.VirtualMachine(ex)["main"],
    "inputs": lambda ex, _: by_inputs(ex),
    "saved": lambda ex, folder: loaded(ex, folder, native_code=False),
    "saved with code": lambda ex, folder: loaded(ex, folder, native_code=True),
    "pickled": lambda ex, _: pickle.loads(pickle.dumps(ex))["main"],
}


def decorated(program: Program, folder: Path, name: str) -> Call:
    """`main` as a function that Python has decorated, with the kernels beside it."""
    path = folder / f"decorated_{name.replace('.', '_')}.py"
    path.write_text(HEADER + program.text, encoding="utf-8")
    names: dict[str, Any] = {"__name__": path.stem}
    exec(compile(HEADER + program.text, str(path), "exec"), names)
    return names["main"]  # type: ignore[no-any-return]


def outcome(call: Call, args: Sequence[Any]) -> tuple[Any, list[Any]]:
    """What a call returns, or the class of its error; and the arguments after it."""
    passed = copied(args)
    with np.errstate(all="ignore"):
        try:
            return call(*passed), passed
        except RelaxpyError as error:
            return type(error), list(args)


def check_equal(found: Any, expected: Any, what: str) -> None:
    """Compare results, or arguments after a call, element by element.

    Errors:
        AssertionError: they differ.
    """
    if isinstance(expected, tuple | list):
        assert isinstance(found, tuple | list), f"{what}: {found!r} instead of {expected!r}"
        assert len(found) == len(expected), what
        for a, b in zip(found, expected, strict=True):
            check_equal(a, b, what)
    elif isinstance(expected, type):
        # Which dimensions a kernel compares depends on those that are fused with it.
        alike = isinstance(found, type) and issubclass(found, RuntimeCheckError)
        is_same = alike and issubclass(expected, RuntimeCheckError)
        assert is_same or found is expected, f"{what}: {found!r} instead of {expected.__name__}"
    else:
        assert not isinstance(found, type), f"{what}: {found.__name__} instead of {expected!r}"
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected), err_msg=what)
        assert np.asarray(found).dtype == np.asarray(expected).dtype, what


def compiled(mod: IRModule, target: str, pipeline: str | None) -> Any:
    """The executable, or the class of the error with which it is refused."""
    try:
        return relaxpy.compile(mod, target, relax_pipeline=pipeline)
    except RelaxpyError as error:
        return type(error)


def run(program: Program, seed: object, folder: Path) -> None:
    """Run the program in one way, which is drawn, beside the reference.

    Errors:
        AssertionError: results, changed arguments or classes of errors differ.
    """
    rng = random.Random(f"way {seed}")
    target = rng.choice(("native", "native", "numpy"))
    pipeline = rng.choice(PIPELINES)
    mod = program.module()
    reference = compiled(mod, "reference", "default")
    off = rng.choice(FAST_PATHS).off() if rng.random() < 0.3 else contextlib.nullcontext()
    with off:
        executable = compiled(mod, target, pipeline)
        if isinstance(reference, type) or isinstance(executable, type):
            check_equal(executable, reference, f"compile for {target}, {pipeline}")
            return
        entry = rng.choice((*ENTRIES, "decorated"))
        if entry == "decorated":
            call = decorated(program, folder, str(seed))
        else:
            call = ENTRIES[entry](executable, folder)
        for _ in range(3):
            args = arguments(program, rng)
            compare(call, reference["main"], args, f"{entry} for {target}, {pipeline}")
        wrong = spoiled(arguments(program, rng), rng)
        compare(call, reference["main"], wrong, f"wrong arguments of {entry} for {target}")
        for name, params in program.kernels.items():
            args = kernel_arguments(program, params, rng)
            compare(executable[name], reference[name], args, f"kernel {name} for {target}")


def compare(call: Call, reference: Call, args: Sequence[Any], what: str) -> None:
    """Compare a call with that of the reference."""
    expected, after = outcome(reference, args)
    found, changed = outcome(call, args)
    check_equal(found, expected, what)
    check_equal(
        [a for a in changed if isinstance(a, np.ndarray)],
        [a for a in after if isinstance(a, np.ndarray)],
        f"arguments after {what}",
    )


def kernel_arguments(
    program: Program, params: Sequence[Tensor | str], rng: random.Random
) -> list[Any]:
    """Arguments for a kernel: operands, results, numbers."""
    sizes = {symbol: rng.choice((0, 1, 3, 9)) for symbol in program.symbols}
    return [
        eval(param, {}, dict(sizes))
        if isinstance(param, str)
        else array(rng, tuple(eval(size, {}, dict(sizes)) for size in param.shape), param.dtype)
        for param in params
    ]


def failure(name: str) -> str | None:
    """What happens to the program of this seed, if it is not what the reference does."""
    with TemporaryDirectory() as folder:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RelaxpyWarning)
                run(write(name), name, Path(folder))
        except Exception:  # whatever it is, it is reported with its program
            return traceback.format_exc()
    return None


def main(count: int, seed: str) -> int:
    """Report failures of `count` programs, crashes among them; 1 if there are any."""
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(1, context)

    def check(name: str, number: int) -> None:
        nonlocal pool
        with noted(write(name).text):
            try:
                what = pool.submit(failure, name).result()
            except BrokenProcessPool:
                pool = ProcessPoolExecutor(1, context)
                raise
            assert what is None, what

    bad = report("kernels of all signatures", count, seed, check)
    pool.shutdown()
    return bad


if __name__ == "__main__":
    command_line(main)
