"""Programs: the kernel calls, branches and loops of a Relax function, and its result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from relaxpy.exec.native.calls.entry import Tree
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.native.values.packing import Packing
from relaxpy.exec.program.graph.sessions import Session
from relaxpy.exec.program.memory import Memory
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import leaves, walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import MatchBufferRegion
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of the program, with its shape and its datatype."""

    memory: Memory
    sinfo: rx.TensorStructInfo

    @property
    def shape(self) -> tuple[PrimExpr, ...]:
        """The dimensions."""
        assert isinstance(self.sinfo.shape, rx.ShapeExpr)
        return self.sinfo.shape.values

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self.sinfo.dtype.numpy().itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Element:
    """An element of an int64 tensor, by its position in row-major order."""

    tensor: Tensor
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A shape; sizes that depend on data are elements of tensors."""

    sizes: Sequence[PrimExpr | Element]


@dataclass(frozen=True, slots=True)
class Passed:
    """A parameter that is only returned, by its number among all with the fields of tuples."""

    index: int


Value: TypeAlias = "Tensor | Shape | Passed | tuple[Value, ...]"


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A constant of the program, packed for the kernel that reads it if `packing` is not None."""

    literal: rx.Constant
    packing: Packing | None = None


@dataclass(frozen=True, slots=True, eq=False)
class KernelCall:
    """A call of the kernel `func`, whose Python name is `kernel`.

    The `arguments` are those of its signature; then follow the values of its `sizes`.
    """

    kernel: str
    func: PrimFunc
    arguments: Sequence[Tensor | PrimExpr]
    sizes: Sequence[PrimExpr]
    outputs: Sequence[Tensor]

    def reads(self) -> Iterator[Tensor]:
        """The tensors that are used."""
        return (argument for argument in self.arguments if isinstance(argument, Tensor))


@dataclass(frozen=True, slots=True, eq=False)
class Filling:
    """Stores `sizes` as the elements of the int64 tensor `output`."""

    output: Tensor
    sizes: Sequence[PrimExpr]

    @property
    def outputs(self) -> Sequence[Tensor]:
        """The tensors that are written."""
        return (self.output,)

    def reads(self) -> Iterator[Tensor]:
        """The tensors that are used."""
        yield self.output


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """Refuses the data unless both are equal."""

    found: PrimExpr | Element
    expected: PrimExpr
    outputs: Sequence[Tensor] = ()

    def reads(self) -> Iterator[Tensor]:
        """The tensors that are used."""
        if isinstance(self.found, Element):
            yield self.found.tensor


@dataclass(frozen=True, slots=True, eq=False)
class Assertion:
    """Refuses the data unless a condition is true; the `message` is that of the program.

    The `numbers` are those that the message shows.
    """

    condition: Tensor | PrimExpr
    message: str
    numbers: Sequence[PrimExpr] = ()
    outputs: Sequence[Tensor] = ()

    def reads(self) -> Iterator[Tensor]:
        """The tensors that are used."""
        if isinstance(self.condition, Tensor):
            yield self.condition


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """Runs one of two regions, by a bool; the results of each become its `targets`.

    These are the `outputs`, or else tensors of a loop, whose iteration the branch ends. After
    the regions with the numbers `again`, the loop continues.
    """

    condition: Tensor
    regions: tuple[Region, Region]
    targets: tuple[Sequence[Tensor], Sequence[Tensor]]
    outputs: Sequence[Tensor] = ()
    again: tuple[int, ...] = ()

    def reads(self) -> Iterator[Tensor]:
        """The tensors that are used."""
        yield self.condition
        for region, targets in zip(self.regions, self.targets, strict=True):
            yield from targets
            yield from region.taken()


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop, whose iterations run until a branch ends it.

    Fields:
        states: the loop-carried tensors: in the first iteration, copies of `initial`.
        following: the location of each state in the next iteration; None if it is unchanged.
        results: new tensors, some of which may have the memory of states.
        iteration: its last step is a branch that continues or ends the loop.
    """

    states: Sequence[Tensor]
    initial: Sequence[Tensor]
    following: Sequence[Tensor | None]
    results: Sequence[Tensor]
    iteration: Region

    @property
    def regions(self) -> tuple[Region, ...]:
        """The nested regions."""
        return (self.iteration,)

    @property
    def outputs(self) -> Sequence[Tensor]:
        """The tensors that are written, each memory once."""
        following = (tensor for tensor in self.following if tensor is not None)
        written = (*self.states, *following, *self.results)
        return [*{tensor.memory: tensor for tensor in written}.values()]

    def reads(self) -> Iterator[Tensor]:
        """The tensors that are used."""
        yield from (*self.initial, *self.outputs)
        yield from self.iteration.taken()


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """Reads sizes that depend on data, and runs a region with them: the rest of its own region.

    The results of the region become the `outputs`, whose shapes are the largest ones.
    """

    sizes: Mapping[Var, Element]
    region: Region
    outputs: Sequence[Tensor] = ()

    @property
    def regions(self) -> tuple[Region, ...]:
        """The nested regions."""
        return (self.region,)

    def reads(self) -> Iterator[Tensor]:
        """The tensors that are used."""
        yield from (element.tensor for element in self.sizes.values())
        yield from self.outputs
        yield from self.region.taken()


@dataclass(frozen=True, slots=True, eq=False)
class Recursion:
    """Runs a region that may run itself: the body of the function `name`, which calls itself.

    Fields:
        params: the tensors that the region reads, in which the elements of `arguments` are.
        sizes: the variables, in the region, that differ in nested calls, with their first values.
        depth: the variable, in the region, of the calls that may be nested, with the current one.
        most: the largest number of these.
    """

    name: str
    params: Sequence[Tensor]
    arguments: Sequence[Tensor]
    region: Region
    outputs: Sequence[Tensor]
    sizes: Mapping[Var, PrimExpr]
    depth: Var
    most: int

    @property
    def regions(self) -> tuple[Region, ...]:
        """The nested regions."""
        return (self.region,)

    def reads(self) -> Iterator[Tensor]:
        """The tensors that are used."""
        own = {tensor.memory for tensor in self.params}
        yield from (*self.arguments, *self.outputs)
        yield from (tensor for tensor in self.region.taken() if tensor.memory not in own)


@dataclass(frozen=True, slots=True, eq=False)
class RecursiveCall:
    """Runs the region of a `Recursion`, whose variable is `depth`, in itself."""

    name: str
    arguments: Sequence[Tensor]
    outputs: Sequence[Tensor]
    sizes: Mapping[Var, PrimExpr]
    depth: Var
    most: int

    def reads(self) -> Iterator[Tensor]:
        """The tensors that are used."""
        return iter((*self.arguments, *self.outputs))


@dataclass(frozen=True, slots=True, eq=False)
class PackedStep:
    """A call of the packed function `symbol`, which writes `outputs`.

    It is call `number` of those in a `session`, a tensor of words. The first dimension of all other
    tensors is equal.
    """

    symbol: str
    session: Tensor
    number: int
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]

    def reads(self) -> Iterator[Tensor]:
        """The tensors that are used."""
        return iter((self.session, *self.inputs, *self.outputs))


@dataclass(frozen=True, slots=True, eq=False)
class ExternCall:
    """A call of a function of C, which writes `outputs`; `name` is that of a packed function."""

    name: str
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]

    def reads(self) -> Iterator[Tensor]:
        """The tensors that are used."""
        return iter((*self.inputs, *self.outputs))


Step: TypeAlias = (
    "KernelCall | Filling | Check | Assertion | Branch | Loop | Finding | Recursion | RecursiveCall"
    "| PackedStep | ExternCall"
)

NESTING: Final = (Branch, Loop, Finding, Recursion)
"""The steps that have `regions`."""


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A sequence of steps, and its result tensors."""

    steps: Sequence[Step]
    results: Sequence[Tensor]

    def new_tensors(self) -> Iterator[Tensor]:
        """The outputs of the steps, without those inside their regions."""
        return (output for step in self.steps for output in step.outputs)

    def taken(self) -> Iterator[Tensor]:
        """The captured tensors: those that are used and not new here."""
        new = {tensor.memory for tensor in self.new_tensors()}
        used = (tensor for step in self.steps for tensor in step.reads())
        return (tensor for tensor in (*used, *self.results) if tensor.memory not in new)

    def all_steps(self) -> Iterator[Step]:
        """The steps, with those in their regions."""
        for step in self.steps:
            yield step
            if isinstance(step, NESTING):
                for region in step.regions:
                    yield from region.all_steps()


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A Relax function all of whose kernels are native.

    Fields:
        params: the parameters as its entry checks them; other fields number these and the fields of
            tuples, without the tuples.
        sizes: the shape variables, and other dimensions, which parameters must equal.
        limit: the exclusive upper bound of the absolute values of variables.
        tensors: the parameters that are arrays, with their positions, in order.
        constants: the constants, each with the order of its elements in memory, if not its own.
        region: the steps; its results are, or have the memory of, the new `results`.
        results: the new tensors of the `result`, each of them once.
        found: the largest values of sizes that depend on data.
        measured: the numbers of results that have such sizes; the last results of the region are
            their shapes.
        written: the positions of the parameters that kernels write in place, none of them a tuple.
        sessions: those of packed functions; the last parameters are their words.
    """

    params: Sequence[Tree]
    sizes: Collection[PrimExpr]
    limit: int
    tensors: Mapping[int, Tensor]
    constants: Sequence[Constant]
    region: Region
    results: Sequence[Tensor]
    found: Mapping[Var, PrimExpr]
    measured: Sequence[int]
    result: Value
    written: Sequence[int]
    sessions: Sequence[Session]

    @property
    def variables(self) -> Sequence[Var]:
        """The shape variables."""
        return [size for size in self.sizes if isinstance(size, Var)]

    def packed(self, call: KernelCall) -> frozenset[int]:
        """The numbers of the arguments of a kernel that are packed constants."""
        memories = (
            (number, argument.memory)
            for number, argument in enumerate(call.arguments)
            if isinstance(argument, Tensor)
        )
        return frozenset(
            number
            for number, memory in memories
            if memory.origin == "constant" and self.constants[memory.index].packing is not None
        )


def tensors_of(value: Value) -> list[Tensor]:
    """The tensors of a value, from left to right.

    Errors:
        RefusedError: it has a shape.
    """
    found = [*leaves(value)]
    if any(isinstance(leaf, Shape) for leaf in found):
        raise RefusedError("a result is a shape: return R.shape_to_tensor of it")
    return [leaf for leaf in found if isinstance(leaf, Tensor)]


def sinfo_of(value: Value) -> rx.StructInfo:
    """The struct info of a value; that of a shape or a passed parameter is not known."""
    if isinstance(value, Tensor):
        return value.sinfo
    if isinstance(value, tuple):
        return rx.TupleStructInfo(tuple(map(sinfo_of, value)))
    return rx.ObjectStructInfo()


def shape_text(sizes: Iterable[PrimExpr]) -> str:
    """The text of a shape, for messages."""
    from relaxpy.ir.short_text.nodes import ShortText  # only for errors

    return f"({', '.join(ShortText().prim(size, INT64) for size in sizes)})"


def elements(tensor: Value) -> Shape:
    """The elements of an integer tensor as a shape.

    Errors:
        RefusedError: their number is not known.
    """
    if isinstance(tensor, Tensor) and tensor.sinfo.dtype == "int64" and len(tensor.shape) == 1:
        [count] = tensor.shape
        if isinstance(count, IntImm):
            return Shape([Element(tensor, position) for position in range(count.value)])
    raise RefusedError(
        "the sizes of a shape are elements of a value that is not a tensor of int64 with a shape"
        ' such as (3,): write that, R.match_cast(..., R.Tensor((3,), "int64"))'
    )


def have_shape(tensor: Tensor, sizes: Sequence[tir.PrimExpr]) -> bool:
    """True if a tensor certainly has this shape."""
    pairs = zip(tensor.shape, sizes, strict=False)
    return len(tensor.shape) == len(sizes) and all(prove_equal(a, b) is True for a, b in pairs)


def may_run_again(
    kernel: PrimFunc | None, index: int, tensors: Iterable[Tensor], before: Iterable[Step]
) -> bool:
    """True if a kernel that writes its parameter `index` can run twice after the same steps.

    It and the steps before it must not have read that memory. `tensors` are its arguments.
    """
    tensors = list(tensors)
    memory = tensors[index].memory
    others = [tensor for number, tensor in enumerate(tensors) if number != index]
    read = (*others, *(tensor for step in before for tensor in step.reads()))
    return not _has(read, memory) and kernel is not None and not _reads(kernel, index)


def _has(tensors: Iterable[Tensor], memory: Memory) -> bool:
    return any(tensor.memory is memory for tensor in tensors)


def _reads(kernel: PrimFunc, index: int) -> bool:
    """True if a kernel may read a parameter."""
    buffer = kernel.buffer_map_items[index]
    if buffer is None:
        return True
    nodes = set(walk(kernel.body))
    sources = {node.source.buffer for node in nodes if isinstance(node, MatchBufferRegion)}
    loads = {node.buffer for node in nodes if isinstance(node, BufferLoad)}
    return buffer in sources | loads or buffer.data in nodes


def constants_name(symbol: str) -> str:
    """The table with the addresses of the constants of a graph; the library has to export it."""
    return f"{symbol}.constants"
