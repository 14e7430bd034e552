"""Emits a kernel as a function in LLVM IR: its obligations, its memory, and its loop tree."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from relaxpy.exec.loops.nest.nodes import WhileLoop, walk_items
from relaxpy.exec.loops.plan.tree import For, Tile, Tree, accesses
from relaxpy.exec.machine.tuning import Allocations, Cost
from relaxpy.exec.native.calls.entry import Array, Integer, Number, sizes_of
from relaxpy.exec.native.calls.interrupt import Interrupt
from relaxpy.exec.native.entry_parameters import EntrySignature
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import F64, I8, I32, I64, POINTER, Function, Value
from relaxpy.exec.native.loops.tree_loops import TreeLoops
from relaxpy.exec.native.threads.code import slots
from relaxpy.exec.native.trees.cost import has_long_tasks, time_of
from relaxpy.exec.native.trees.obligations import Obligation
from relaxpy.exec.native.trees.program import KernelProgram, Tasks, may_fail
from relaxpy.exec.native.values.datatypes import RefusedError, storage_type
from relaxpy.exec.native.values.expressions import Values
from relaxpy.exec.native.values.failures import Failures
from relaxpy.exec.native.values.packing import Packing
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.ops import int_range
from relaxpy.ir.tir.substitution import substitute


class KernelMemory(NamedTuple):
    """The bytes of the blocks that a kernel takes besides its stack.

    Those `of_tasks` are there for each thread. The sizes that a caller knows by the numbers of the
    arguments are in `sizes`.
    """

    blocks: Sequence[IndexPoly]
    of_tasks: Sequence[IndexPoly]
    sizes: Mapping[Var, int]

    def of_call(self, arguments: Sequence[object]) -> KernelMemory:
        """The memory for a call with these arguments, over the sizes of its caller."""
        passed = {var: arguments[number] for var, number in self.sizes.items()}
        values = {var: size for var, size in passed.items() if isinstance(size, PrimExpr)}
        blocks, of_tasks = (
            [as_poly(simplify(substitute(size.expr(), values))) for size in each]
            for each in (self.blocks, self.of_tasks)
        )
        return KernelMemory(blocks, of_tasks, {})


class KernelEmitter:
    """Emits `program` as a function `name` whose parameters are those of `signature`.

    The function returns 0 on success. Otherwise it has either only written memory that it does not
    read, or raised a Python exception: that of an obligation, which `report` numbers, or that of a
    signal that interrupted it. The parameters of a class have `multiples`, powers of two that
    divide the sizes among them, which are long, and need no tests. The function takes those of the
    arguments at the positions `constants` packed that may be packed.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        program: KernelProgram,
        signature: EntrySignature,
        report: Callable[[Obligation], int],
        multiples: Mapping[Var, int] = MappingProxyType({}),
        constants: Container[int] = (),
    ) -> None:
        self.report, self.multiples = report, multiples
        self.program, self.plan, self.signature = program, program.plan, signature
        is_array = [isinstance(p, Array) for p in signature.params]
        params = [(POINTER if array else I64, f"p{n}") for n, array in enumerate(is_array)]
        sizes = sizes_of(signature.params)
        params += [(I64, f"size{n}") for n in range(len(sizes))]
        if module.is_exported:
            params += [(POINTER, "memory"), (POINTER, "context")]
        self.function = f = module.function(name, params, I32)
        if module.is_exported:
            f.memory, f.context = f.params[-2:]
        self.memory = KernelMemory((), (), {})
        """The memory of the function, known after it was emitted; its caller's if exported."""
        self._blocks: list[IndexPoly] = []
        self._blocks_of_tasks: list[IndexPoly] = []
        arrays = [p for p, array in zip(f.params, is_array, strict=False) if array]
        pointers = dict(zip(signature.buffers, arrays, strict=True))
        given = f.params[len(is_array) : len(is_array) + len(sizes)]
        self.sizes = dict(zip(sizes, given, strict=True))
        for param, value in zip(signature.params, f.params, strict=False):
            if isinstance(param, Integer):
                self.sizes[param.value] = value
        variables = {size: v for size, v in self.sizes.items() if isinstance(size, Var)}
        for size in multiples.keys() & variables.keys():
            variables[size].multiple = multiples[size]
        zero = f.const(I64, 0)
        variables |= {o: zero for o in signature.offsets if isinstance(o, Var)}
        self.offsets = [o for o in signature.offsets if not isinstance(o, Var)]
        shape_vars = self.plan.shape_vars
        self.frame = Values(f, pointers, variables, program.written, shape_vars)
        self.frame.long = {size for size in multiples if isinstance(size, Var)}
        uses = self.plan.uses
        once = (b for b in signature.buffers if uses[b] == 1 and b not in program.written)
        self.frame.packable = dict.fromkeys(once)
        self.frame.packed = {b for n, b in enumerate(signature.buffers) if n in constants}
        self.loops = TreeLoops(program, self.frame)
        numbers = zip(self.plan.func.params, signature.params, f.params, strict=False)
        self.numbers = [(var, v) for var, p, v in numbers if isinstance(p, Number)]

    @property
    def packings(self) -> dict[int, Packing]:
        """The packings of parameters that some form takes, known after the function was emitted."""
        arrays = [n for n, p in enumerate(self.signature.params) if isinstance(p, Array)]
        numbers = dict(zip(self.signature.buffers, arrays, strict=True))
        return {numbers[b]: how for b, how in self.frame.packable.items() if how is not None}

    def _memory(self) -> KernelMemory:
        f = self.function
        numbers = {value.name: number for number, value in enumerate(f.params)}
        sizes = {s: numbers[v.name] for s, v in self.sizes.items() if isinstance(s, Var)}
        blocks = [*self._blocks, as_poly(f.stack.more)]
        return KernelMemory(blocks, [*self._blocks_of_tasks, as_poly(f.task_bytes)], sizes)

    def emit(self) -> Function:
        """The function.

        Errors:
            RefusedError: a part of the kernel has no native form.
        """
        f = self.function
        [status] = f.attempt(self._tested, self._refused)
        f.ret(status)
        self.memory = self._memory()  # what is on the stack is forgotten with the text
        return f

    def _refused(self) -> list[Value]:
        """The status where a test fails before the first write."""
        failures = self.frame.failures if self.function.context is not None else None
        return [self.function.const(I32, 1) if failures is None else failures.status()]

    def _tested(self) -> list[Value]:
        """Test early obligations, and run the trees with memory for local buffers."""
        f, frame, is_exported = self.function, self.frame, self.function.context is not None
        if is_exported and self.program.early:
            frame.failures = Failures.of_kernel(f, self.report)
        for test in self._argument_tests():
            f.leave(test)
        self.loops.require(self.program.early)
        fails_late = any(map(may_fail, self.program.trees))
        is_noted = fails_late or any(map(has_long_tasks, self.program.trees))
        if is_noted and frame.failures is None:
            frame.failures = Failures.of_kernel(f, self.report)
        has_while = any(isinstance(i, WhileLoop) for i in walk_items(self.plan.nest.items))
        if not is_exported and (has_while or self._is_long()):
            self.loops.interrupt = Interrupt(f)
        size, offsets = self._layout()
        memory, *places = f.reserve(size)
        pointers = [f.element(memory, offset, I8) for offset in offsets.values()]
        frame.pointers |= dict(zip(offsets, pointers, strict=True))
        self.loops.share()

        def run() -> list[Value]:
            self._trees(pointers)
            return [f.const(I32, 0)]

        def fail() -> list[Value]:
            return [f.const(I32, 1) if frame.failures is None else frame.failures.status()]

        result = f.attempt(run, fail)
        f.release(size, *places)
        return result

    def _is_long(self) -> bool:
        """True if the loops outside of tasks may take so long that they poll signals."""
        if self.program.is_short:
            return False
        times = [time_of(tree, ()).constant for tree in self.program.trees]
        return any(time is None or time > Cost.LONG for time in times)

    def _overflows(self, size: IndexPoly) -> Value:
        """True if the terms of a size are too large for any memory, or overflow 64 bits."""
        f = self.function
        total: Value = f.const(F64, 0)
        for monomial, factor in size.terms.items():
            term: Value = f.const(F64, factor)
            for atom in monomial:
                term = term * f.cast("sitofp", self.frame.atom(atom), F64.element)
            # Negative sizes have no elements, also if they overflow 64 bits.
            total = total + f.select(f.compare("ogt", term, 0), term, f.const(F64, 0))
        return f.compare("oge", total, f.module.platform.most_bytes)

    def _trees(self, pointers: Sequence[Value]) -> None:
        with self.frame.level():
            self.frame.settle(pointers)
            for tree in self.program.trees:
                self.loops.tree(tree)

    def _argument_tests(self) -> Iterator[Value]:
        """The conditions that arguments are invalid: scalars, dimensions and layouts."""
        f, frame = self.function, self.frame
        for var, value in self.numbers:
            number = frame.apply("real", lambda x: f.cast("bitcast", x, "double"), value)
            kept = frame.cast(number, DataType("float64"), var.dtype)
            frame.bind(var, kept)
            if var not in self.multiples and var.dtype.is_float and var.dtype.bits < 64:
                finite = f.compare("olt", f.intrinsic("fabs", number), math.inf)
                lost = f.compare("oeq", f.intrinsic("fabs", kept), math.inf)
                yield f.arithmetic("and", finite, lost)
        for size, value in self.sizes.items():
            if not isinstance(size, Var):
                yield f.compare("ne", frame.index(size), value)
            elif str(size.dtype) != "int64":
                low, high = int_range(size.dtype)
                yield f.compare("slt", value, low)
                yield f.compare("sgt", value, min(high, (1 << 63) - 1))
        for offset in self.offsets:
            yield f.compare("ne", frame.index(offset), 0)

    def _layout(self) -> tuple[Value, dict[Buffer, Value]]:
        """Place the local buffers on the stack or in a block; return its size and their offsets."""
        frame, f = self.frame, self.function
        total = f.const(I64, 0)
        offsets: dict[Buffer, Value] = {}
        for buffer, count, in_tasks in _local_buffers(self.program):
            if buffer.strides:
                raise RefusedError(f"the local buffer {buffer.name} has strides")
            type = storage_type(buffer.dtype)
            number = count.constant
            if number is not None and in_tasks and number * type.bits // 8 <= Allocations.TASK:
                self.loops.scratch[buffer] = number
                continue
            if number is not None and not in_tasks and f.stack.has(number * type.bits // 8):
                frame.pointers[buffer] = f.alloca(type, max(number, 1))
                continue
            count = count * (type.bits // 8)
            f.leave(self._overflows(count))
            size = frame.index(count)
            size = f.select(f.compare("sgt", size, 0), size, f.const(I64, 0)) + 63
            size = f.arithmetic("and", size, -64)
            offsets[buffer] = total
            (self._blocks_of_tasks if in_tasks else self._blocks).append(count)
            if in_tasks:
                self.loops.scratch[buffer] = size
                size = size * slots(f)
            total = total + size
        return total, offsets


def _local_buffers(program: KernelProgram) -> Iterator[tuple[Buffer, IndexPoly, bool]]:
    """The local buffers with memory of their own: their elements, and whether each thread has some.

    Of a buffer in blocks of rows, the elements are those of the rows in one block.
    """
    rows = {
        declared: (b, tree, in_tasks)
        for t in program.trees
        for tree, in_tasks in _rows_in(t)
        for declared, b in program.declared(tree).items()
    }
    shared, local = program.plan.shared, [e.buffer for e in program.plan.nest.local]
    elided = {*program.elided, *(load.buffer for load in program.rows.values())}
    used = {access.buffer for tree in program.plan.trees for access in accesses(tree)} - elided
    needed = {shared.get(b, b) for b in used.intersection(local)}.union(program.partial)
    for buffer in (*local, *program.partial):
        if buffer in needed and buffer not in shared:
            in_rows, tree, in_tasks = rows.get(buffer, (buffer, None, False))
            yield buffer, _count(in_rows, tree), in_tasks


def _count(buffer: Buffer, rows: Tile | None) -> IndexPoly:
    """The number of elements of a local buffer; of its rows in one block if it is one of `rows`."""
    sizes = [as_poly(size) for size in buffer.shape]
    if rows is not None and rows.size is not None:
        sizes[rows.rows[buffer].axis] = as_poly(rows.size)
        if buffer in rows.single:
            sizes[rows.single[buffer]] = as_poly(1)
    return math.prod(sizes, start=as_poly(1))


def _rows_in(tree: Tree) -> Iterator[tuple[Tile, bool]]:
    """The blocks of rows in `tree`, and whether they run in tasks."""
    match tree:
        case Tile():
            yield tree, False
        case Tasks(body=Tile() as rows):
            yield rows, True
        case For(body=body):
            for inner in body:
                yield from _rows_in(inner)
        case _:
            pass
