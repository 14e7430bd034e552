"""The memory that a function takes at each step, read from its lowered form.

The Python text of a function and of its kernels is read statement by statement, with sizes instead
of numbers. Native functions have a memory plan, and native kernels a list of local buffers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial, reduce
from typing import Final

import numpy as np

from relaxpy.exec.inspect.memory_values import (
    ZERO,
    Array,
    Block,
    Dims,
    Held,
    LocalFunction,
    Sizes,
    array_like,
    bind_sizes,
    blocks_in,
    broadcast,
    dotted_name,
    exceeds,
    external,
    is_literal,
    largest,
    least,
    merged,
    shapes_of,
    size_of_blocks,
    substituted,
    unknown,
    value_with,
)
from relaxpy.exec.machine.blas import has_thread_limit
from relaxpy.exec.machine.tuning import Blocks, NumPy
from relaxpy.exec.native.calls.entry import sizes_of
from relaxpy.exec.native.emit import KernelMemory
from relaxpy.exec.native.threads.pool import native_threads
from relaxpy.exec.numpy import python_ast as py
from relaxpy.exec.numpy.compiler import Kernel
from relaxpy.exec.numpy.row_blocks import threads as numpy_threads
from relaxpy.exec.program.graph.emit_region import byte_count, workspace_bytes
from relaxpy.exec.program.graph.program import (
    Constant as Weight,
    Graph,
    KernelCall,
    PackedStep,
    Passed,
    Step,
    Tensor,
    Value as Result,
)
from relaxpy.exec.program.graph.whole_modules import GraphBackend
from relaxpy.exec.program.lower.python_module import ModuleLowering
from relaxpy.exec.program.lower.scope import GlobalCallee, LateLiteral
from relaxpy.exec.runtime.support import CompiledPackedCall
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import leaves, walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass

_PAGE: Final = 1 << 12
"""Formulas of symbolic sizes that differ by less are not told apart."""
_SIZES: Final[Mapping[str, ast.operator]] = {
    "size": ast.Add(),
    "floordiv": ast.FloorDiv(),
    "floormod": ast.Mod(),
}
"""The functions of sizes in Python functions, which check them."""
_WITHOUT_TENSORS: Final = (rx.ShapeStructInfo, rx.PrimStructInfo, rx.FuncStructInfo)
_TEMPORARIES: Final = {"rt.erf": 4, "rt.ldexp": 2, "rt.integers": 3}
"""The arrays besides the result that functions of the run-time library make."""


def _unrounded(size: IndexPoly) -> IndexPoly:
    return size


@dataclass(slots=True)
class Frame:
    """The names of a running function, what it has returned, and the variables for its sizes."""

    owner: str
    names: dict[str, Held]
    sizes: dict[tir.Var, tir.PrimExpr] = field(default_factory=dict)
    returned: list[Held] = field(default_factory=list)
    again: list[dict[str, Held]] = field(default_factory=list)
    temporary: list[Held] = field(default_factory=list)


class MemoryReader:
    """Reads functions of a module after their lowering.

    Fields:
        steps: the blocks in use at each step, and the size of other memory.
        per_thread: the largest memory that each thread needs.
        weights: the constants that were read.
    """

    def __init__(self, lowering: ModuleLowering, backend: GraphBackend | None) -> None:
        self._lowering, self._backend = lowering, backend
        self._frames: list[Frame] = []
        self.steps: list[tuple[frozenset[Block], IndexPoly]] = [(frozenset(), ZERO)]
        self.per_thread = ZERO
        self.weights: dict[tuple[rx.Constant, object], Weight] = {}
        callees = lowering.callees.items()
        self._callees = {n: c for n, c in callees if isinstance(c, GlobalCallee)}
        self._names = {callee.name: name for name, callee in self._callees.items()}
        self._kernels: dict[str, tuple[Kernel, bool]] = {}
        for callee in self._callees.values():
            if (kernel := callee.kernel) is not None:
                self._kernels[kernel.unchecked_name] = kernel, False
                self._kernels[kernel.name] = kernel, True
        self.threads = numpy_threads() if self._backend is None else native_threads()
        self._running: list[str] = []
        self._makes_tensors = False

    # ---- functions

    def read(self, name: str) -> frozenset[Block]:
        """Read a call of a function; return the blocks of its results."""
        func = self._lowering.texts[name]
        self._frames.append(Frame(name, {}))
        if isinstance(func, rx.Function):
            result = self._function(name, [value_with(param.struct_info) for param in func.params])
            return frozenset(blocks_in(result))
        callee = self._callees[name]
        assert callee.kernel is not None
        params = callee.signature.params
        self._kernel(callee.kernel, True, [value_with(param.struct_info) for param in params])
        return frozenset()

    def _function(self, name: str, args: Sequence[Held]) -> Held:
        """The result of a call of a Relax function."""
        func = self._lowering.texts[name]
        assert isinstance(func, rx.Function)
        sizes: dict[tir.Var, tir.PrimExpr] = {}
        for param, arg in zip(func.params, args, strict=False):
            bind_sizes(param.struct_info, arg, sizes)
        if self._backend is not None and name in self._backend.graphs:
            program = self._lowering.program.functions_by_name.get(name, func)
            assert isinstance(program, rx.Function)
            return self._native(self._backend.read(self._lowering, program), args, sizes)
        if self._callees[name].step is not None or name in self._running:
            return self._unknown(name)
        constants = (node for node in walk(func) if isinstance(node, rx.Constant))
        self.weights |= {(literal, None): Weight(literal) for literal in constants}
        [definition] = self._lowering.definitions(name)
        self._running.append(name)
        result = self._run(definition, args, {}, name, sizes)
        self._running.pop()
        return result

    def _run(
        self,
        tree: ast.FunctionDef,
        args: Sequence[Held],
        captured: Mapping[str, Held],
        owner: str,
        sizes: Mapping[tir.Var, tir.PrimExpr],
    ) -> Held:
        params = (arg.arg for arg in tree.args.args)
        frame = Frame(owner, {**captured, **dict(zip(params, args, strict=False))}, dict(sizes))
        self._frames.append(frame)
        self._body(tree.body)
        self._frames.pop()
        return reduce(merged, frame.returned) if frame.returned else ()

    def _native(self, graph: Graph, args: Sequence[Held], sizes: Sizes) -> Held:
        """The result of a native function; its memory is there during the whole call."""
        for weight in graph.constants:
            self.weights[weight.literal, weight.packing] = weight
        new = {
            tensor: Block(substituted(byte_count(tensor), sizes)) for tensor in graph.region.results
        }
        results = frozenset(new.values())
        own = workspace_bytes(graph.region, partial(self._of_step, graph), largest, _unrounded)
        self._note(substituted(own, sizes), results)
        arguments: list[Held] = [*leaves(tuple(args))]
        numbers = {tensor: number for number, tensor in graph.tensors.items()}

        def held(value: Result) -> Held:
            match value:
                case Tensor() if value in new:
                    shape = tuple(substituted(as_poly(dim), sizes) for dim in value.shape)
                    return Array(frozenset((new[value],)), shape, value.itemsize)
                case Tensor():
                    return arguments[numbers[value]]
                case Passed(index=index):
                    return arguments[index]
                case tuple():
                    return tuple(map(held, value))
                case _:
                    return None

        return held(graph.result)

    def _of_step(self, graph: Graph, step: Step) -> IndexPoly:
        """The memory that a step of a native function takes."""
        assert self._backend is not None
        match step:
            case KernelCall(kernel=name, arguments=arguments, sizes=sizes):
                symbol = self._backend.form(name, graph.packed(step))
                return self._with_threads(self._backend.memory[symbol], [*arguments, *sizes])
            case PackedStep():
                return unknown("caches")
            case _:
                return ZERO

    def _called(self, kernel: Kernel, args: Sequence[Held]) -> IndexPoly:
        """The memory of a native kernel that Python calls."""
        assert self._backend is not None
        native = self._backend.claimed[kernel.name]
        values: dict[tir.Var, tir.PrimExpr] = {}
        for buffer, arg in zip(kernel.plan.func.buffer_map_items, args, strict=False):
            if buffer is not None and isinstance(arg, Array):
                for var, dim in zip(buffer.shape, arg.shape or (), strict=False):
                    if isinstance(var, tir.Var) and dim is not None:
                        values[var] = dim.expr()
        passed = [arg.expr() if isinstance(arg, IndexPoly) else arg for arg in args]
        constants = (as_poly(number).expr() for number in native.signature.constants)
        sizes = (substitute(size, values) for size in sizes_of(native.signature.params))
        memory = self._backend.memory[native.symbol]
        return self._with_threads(memory, [*passed, *constants, *sizes])

    def _with_threads(self, memory: KernelMemory, arguments: Sequence[object]) -> IndexPoly:
        """The memory of a call of a native kernel, with that of all threads."""
        found = memory.of_call(arguments)
        of_thread = sum(found.of_tasks, ZERO)
        self.per_thread = largest(self.per_thread, of_thread)
        return sum(found.blocks, of_thread * self.threads)

    def _kernel(self, kernel: Kernel, checked: bool, args: Sequence[Held]) -> None:
        """A call of a kernel, which keeps no memory."""
        if kernel.is_native:
            self._note(self._called(kernel, args))
            return
        tree = kernel.tree
        if not checked and kernel.unchecked is not None:
            tree = getattr(kernel.unchecked, "tree", tree)
        self._run(tree, args, {}, kernel.name, {})

    # ---- memory

    def _note(self, other: IndexPoly = ZERO, more: Iterable[Block] = ()) -> None:
        """Note the memory in use, besides `other`."""
        blocks = {
            block for f in self._frames for held in f.names.values() for block in blocks_in(held)
        }
        blocks.update(b for f in self._frames for held in f.temporary for b in blocks_in(held))
        self.steps.append((frozenset(blocks.union(more)), other))

    def _new(self, shape: Held, itemsize: int) -> Array:
        dims = shape if isinstance(shape, tuple) else None
        known = None
        if dims is not None:
            known = tuple([dim if isinstance(dim, IndexPoly) else None for dim in dims])
        array = Array(frozenset(), known, itemsize)
        size = array.nbytes
        if size is None:
            size = unknown(self._frames[-1].owner)
        array = Array(frozenset((Block(size),)), known, itemsize)
        self._frames[-1].temporary.append(array)
        self._note()
        return array

    def _unknown(self, name: str) -> Held:
        """Something that takes unknown memory; its result is in it."""
        array = Array(frozenset((Block(unknown(name)),)), None, 0)
        self._frames[-1].temporary.append(array)
        self._note()
        return array

    # ---- statements

    def _body(self, body: Iterable[ast.stmt]) -> bool:
        """Read statements; return whether the end is reached."""
        for stmt in body:
            if not self._statement(stmt):
                return False
            self._frames[-1].temporary.clear()
        return True

    def _statement(self, stmt: ast.stmt) -> bool:
        frame = self._frames[-1]
        match stmt:
            case ast.Assign(targets=[target], value=value):
                var = self._lowering.variables.get((frame.owner, getattr(target, "id", "")))
                info = None if var is None else var.struct_info
                self._makes_tensors = not isinstance(info, _WITHOUT_TENSORS)
                self._assign(target, self._value(value))
                self._makes_tensors = False
            case ast.AugAssign(value=value) | ast.Expr(value=value):
                self._value(value)
            case ast.Delete(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Name):
                        frame.names.pop(target.id, None)
            case ast.FunctionDef():
                frame.names[stmt.name] = LocalFunction(stmt, frame.names, frame.owner)
            case ast.Return(value=value):
                frame.returned.append(() if value is None else self._value(value))
                return False
            case ast.Continue():
                frame.again.append(dict(frame.names))
                return False
            case ast.With(body=body):
                return self._body(body)
            case ast.For(target=target, iter=iterable, body=body):
                self._value(iterable)
                self._assign(target, None)
                self._body(body)
            case ast.While(body=body):
                return self._loop(body)
            case ast.If(test=test, body=body, orelse=orelse):
                self._value(test)
                return self._branch(body, orelse)
            case _:
                pass
        return True

    def _assign(self, target: ast.expr, value: Held) -> None:
        frame = self._frames[-1]
        match target:
            case ast.Name(id=name):
                var = self._lowering.variables.get((frame.owner, name))
                if isinstance(value, Array) and value.shape is None and var is not None:
                    value = self._declared(value, var.struct_info)
                frame.names[name] = value
            case ast.Tuple(elts=targets):
                fields = value if isinstance(value, tuple) else (None,) * len(targets)
                for one, held in zip(targets, fields, strict=False):
                    self._assign(one, held)
            case _:
                pass

    def _declared(self, value: Array, sinfo: rx.StructInfo | None) -> Held:
        """A value whose struct info is known; new memory then has its size."""
        frame = self._frames[-1]
        if not isinstance(sinfo, rx.TensorStructInfo):
            return value
        declared = value_with(sinfo, frame.sizes)
        assert isinstance(declared, Array)
        size = declared.nbytes
        if size is None:
            return value
        blocks = frozenset([Block(size)]) if value.blocks else value.blocks
        return Array(blocks, declared.shape, declared.itemsize)

    def _branch(self, *arms: Sequence[ast.stmt]) -> bool:
        frame = self._frames[-1]
        before, ends = frame.names, []
        for arm in arms:
            frame.names = dict(before)
            if self._body(arm):
                ends.append(frame.names)
        if ends:
            names = dict.fromkeys(name for end in ends for name in end)
            joined = {n: reduce(merged, [e[n] for e in ends if n in e]) for n in names}
            before.clear()
            before.update(joined)
        frame.names = before
        return bool(ends)

    def _loop(self, body: Sequence[ast.stmt]) -> bool:
        """A loop that runs until it returns: its first two iterations."""
        frame = self._frames[-1]
        shapes: list[object] = []
        for _ in range(2):
            frame.again.clear()
            if self._body(body):
                frame.again.append(dict(frame.names))
            if not frame.again:
                return False
            for end in frame.again:
                frame.names.update(end)
            shapes.append(shapes_of(frame.names))
        if shapes[0] != shapes[1]:
            self._unknown(f"loop_of_{frame.owner}")
        return False

    # ---- expressions

    def _value(self, expr: ast.expr) -> Held:
        match expr:
            case ast.Constant(value=int() as number):
                return as_poly(int(number))
            case ast.Name(id=name):
                return self._name(name)
            case ast.Tuple(elts=fields):
                return tuple(map(self._value, fields))
            case ast.Starred(value=value):
                return self._value(value)
            case ast.Call():
                return self._call(expr)
            case ast.Attribute(value=value, attr=name):
                return self._attribute(value, name)
            case ast.Subscript(value=value, slice=index):
                return self._item(self._value(value), index)
            case ast.BinOp(left=left, right=right, op=op):
                return self._binary(op, self._value(left), self._value(right))
            case ast.IfExp(body=body, orelse=orelse):
                return merged(self._value(body), self._value(orelse))
            case ast.Compare(left=left, comparators=others):
                return self._elementwise([self._value(each) for each in (left, *others)], 1)
            case ast.UnaryOp(operand=operand):
                held = self._value(operand)
                return ZERO - held if isinstance(held, IndexPoly) else self._elementwise([held])
            case ast.BoolOp(values=values):
                for each in values:
                    self._value(each)
                return None
            case _:
                return None

    def _name(self, name: str) -> Held:
        frame = self._frames[-1]
        if name in frame.names:
            return frame.names[name]
        known = self._lowering.namespace.get(name)
        if isinstance(known, np.ndarray):
            return array_like(known)
        return None

    def _attribute(self, value: ast.expr, name: str) -> Held:
        held = self._value(value)
        if not isinstance(held, Array):
            return None
        if name == "shape":
            return held.shape
        if name == "T" and held.shape is not None:
            return Array(held.blocks, held.shape[::-1], held.itemsize)
        return None

    def _item(self, value: Held, index: ast.expr) -> Held:
        if isinstance(value, tuple):
            match index:
                case ast.Constant(value=int() as number) if number < len(value):
                    return value[number]
                case _:
                    return None
        if not isinstance(value, Array):
            return None
        return Array(value.blocks, self._cut(value.shape, index), value.itemsize)

    def _cut(self, shape: Dims, index: ast.expr) -> Dims:
        """The shape of some elements of an array; None if an index is an array."""
        items = index.elts if isinstance(index, ast.Tuple) else [index]
        if shape is None:
            return None
        result: list[IndexPoly | None] = []
        rest = [*shape]
        used = sum(not is_literal(item, None) and not is_literal(item, ...) for item in items)
        for item in items:
            if is_literal(item, None):
                result.append(as_poly(1))
            elif is_literal(item, ...):
                count = len(rest) - used
                result += rest[:count]
                del rest[:count]
            elif not rest:
                return None
            elif isinstance(item, ast.Slice):
                result.append(self._extent(rest.pop(0), item))
                used -= 1
            else:
                if isinstance(self._value(item), Array):
                    return None
                rest.pop(0)
                used -= 1
        return (*result, *rest)

    def _extent(self, size: IndexPoly | None, item: ast.Slice) -> IndexPoly | None:
        """An upper bound of the size of a slice."""
        low = ZERO if item.lower is None else self._value(item.lower)
        high = size if item.upper is None else self._value(item.upper)
        step = as_poly(1) if item.step is None else self._value(item.step)
        if not isinstance(step, IndexPoly) or (step.constant or 0) < 1:
            return size
        if not isinstance(low, IndexPoly) or not isinstance(high, IndexPoly) or size is None:
            return size
        number = step.constant or 1
        if number == 1:
            return high - low if exceeds(high, low) else size
        whole = high - low + (number - 1)
        if whole.constant is not None:
            return as_poly(whole.constant // number)
        return as_poly(tir.FloorDiv(whole.expr(), tir.IntImm("int64", number)))

    def _binary(self, op: ast.operator, a: Held, b: Held) -> Held:
        if isinstance(a, IndexPoly) and isinstance(b, IndexPoly):
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return as_poly(tir.FloorDiv(a.expr(), b.expr()))
                case ast.Mod():
                    return as_poly(tir.FloorMod(a.expr(), b.expr()))
                case _:
                    return None
        return self._elementwise([a, b])

    def _elementwise(self, operands: Sequence[Held], itemsize: int = 0) -> Held:
        """A new array of operands that are broadcast; None if there is none among them."""
        arrays = [each for each in operands if isinstance(each, Array)]
        if not arrays:
            return None
        wide = itemsize or max(array.itemsize for array in arrays)
        shapes = [array.shape for array in arrays]
        if any(shape is None for shape in shapes):
            return self._new(None, wide)
        rank = max(len(shape or ()) for shape in shapes)
        padded = [(as_poly(1),) * (rank - len(s or ())) + (s or ()) for s in shapes]
        return self._new(tuple(map(broadcast, zip(*padded, strict=True))), wide)

    # ---- calls

    def _call(self, call: ast.Call) -> Held:
        frame = self._frames[-1]
        name = dotted_name(call.func)
        module, _, function = name.rpartition(".")
        if name in ("len", "type", "range", "abs") or function.startswith(("check", "note_")):
            return None
        if function == "empty" or (name == "empty" and name in frame.names):
            return self._new(self._value(call.args[0]), self._itemsize(call.args[1]))
        if name == "rt.blocks":
            self._blocks_of_rows(call)
            return None
        args = [self._value(arg) for arg in call.args]
        named = {k.arg or "": self._value(k.value) for k in call.keywords}
        if module == "rx" and function in _SIZES:
            a, b = (*args, None)[:2]
            return a if function == "size" else self._binary(_SIZES[function], a, b)
        if name in ("min", "max"):
            sizes = [arg for arg in args if isinstance(arg, IndexPoly)]
            return reduce(largest if name == "max" else least, sizes) if sizes else None
        local = frame.names.get(name)
        if isinstance(local, LocalFunction):
            if (label := f"{local.owner} {name}") in self._running:
                return self._unknown(name)
            self._running.append(label)
            result = self._run(local.tree, args, local.names, local.owner, frame.sizes)
            self._running.pop()
            return result
        if name in self._kernels:
            self._kernel(*self._kernels[name], args)
            return None
        if name in self._names:
            return self._function(self._names[name], args)
        if module in ("np", "rt", "rx") or module.startswith("np."):
            return self._library(name, args, named)
        if isinstance(call.func, ast.Attribute):
            value = self._value(call.func.value)
            if isinstance(value, Array):
                return self._method(value, function, args, named)
        return self._object(call.func, args)

    def _method(
        self, value: Array, name: str, args: Sequence[Held], named: Mapping[str, Held]
    ) -> Held:
        """The result of a method of an array."""
        if name == "copy":
            return self._new(value.shape, value.itemsize)
        if "out" in named:
            return named["out"]
        if name == "transpose":
            order = [a.constant for a in args if isinstance(a, IndexPoly)]
            shape = value.shape
            if shape is None or None in order or len(order) != len(shape):
                return Array(value.blocks, None, value.itemsize)
            return Array(value.blocks, tuple([shape[n] for n in order]), value.itemsize)  # type: ignore[index]
        if name in ("reshape", "view"):
            return Array(value.blocks, self._shape(args), value.itemsize)
        if name in ("all", "any", "item"):
            return None
        return self._elementwise([value, *args])

    def _shape(self, args: Sequence[Held]) -> Dims:
        dims = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        return tuple([dim if isinstance(dim, IndexPoly) else None for dim in dims])

    def _library(self, name: str, args: Sequence[Held], named: Mapping[str, Held]) -> Held:
        """The result of a function of NumPy or of the run-time libraries."""
        match name, args:
            case (("rx.viewed" | "rx.reshaped"), [Array() as array, tuple() as shape]):
                view = Array(array.blocks, self._shape((shape,)), array.itemsize)
                return view if name == "rx.viewed" else self._new(shape, array.itemsize)
            case "rt.strided", [Array() as array, _, tuple() as shape, *_]:
                return Array(array.blocks, self._shape((shape,)), array.itemsize)
            case "rx.ShapeTuple", [tuple() as shape]:
                return shape
            case "rt.overlay", [Array() as array, *_]:
                return Array(array.blocks, None, array.itemsize)
            case "rt.contract", [Array() as left, Array() as right, *_]:
                self._copied(left, right)
                if "out" in named:
                    return named["out"]
                return self._new(None, left.itemsize)
            case (("rt.combine" | "rx.invoke" | "rx.invoke_declared" | "rx.call_tir_dyn"), _):
                return None if name == "rt.combine" else self._unknown("function_values")
            case _:
                for _ in range(_TEMPORARIES.get(name, 0)):
                    self._elementwise(args)
                return named["out"] if "out" in named else self._elementwise(args)

    def _copied(self, left: Array, right: Array) -> None:
        """The copy of an operand of a contraction that has windows, which is made in chunks."""
        for array, other in ((left, right), (right, left)):
            size, held = array.nbytes, size_of_blocks(array.blocks)
            most = other.nbytes
            is_larger = size is not None and not exceeds(held, size)
            if size is not None and most is not None and array.blocks and is_larger:
                chunk = least(size, largest(as_poly(NumPy.MOST_COPIED), most))
                self._note(chunk)

    def _object(self, func: ast.expr, args: Sequence[Held]) -> Held:
        """The result of a call of an object of the module: an operator or a packed function."""
        name = dotted_name(func)
        known = self._lowering.namespace.get(name.partition(".")[0])
        match known:
            case LateLiteral():
                return array_like(known.literal.memory(aligned=False))
            case CompiledPackedCall(symbol=symbol) if not symbol.startswith("vm.builtin."):
                return self._unknown(symbol)
            case _ if callable(known) and "." not in name and self._makes_tensors:
                return self._unknown(name.removeprefix("any_"))
            case _:
                return None

    def _itemsize(self, expr: ast.expr) -> int:
        name = dotted_name(expr)
        datatypes = {python: dtype for dtype, python in self._lowering.dtypes.items()}
        return DataType(datatypes.get(name, name.rpartition(".")[2].rstrip("_"))).numpy().itemsize

    def _blocks_of_rows(self, call: ast.Call) -> None:
        """The memory of blocks of rows; each thread runs one block."""
        rows, start, stop, row_bytes, work = map(self._value, call.args[:5])
        flags = {k.arg for k in call.keywords if is_literal(k.value, True)}
        assert isinstance(rows, LocalFunction)
        sizes = [each for each in (start, stop, row_bytes, work) if isinstance(each, IndexPoly)]
        if len(sizes) < 4:
            self._unknown(self._frames[-1].owner)
            return
        count, work_of_all = sizes[1] - sizes[0], (sizes[1] - sizes[0]) * sizes[3]
        number = work_of_all.constant
        is_large = number is None or number >= Blocks.WORTH_THREADS
        is_parallel = is_large and numpy_threads() > 1 and "by_blas" not in flags
        of_batch = is_parallel and "of_batch" in flags
        whole = self._block(rows, count)
        if of_batch and has_thread_limit():
            threads, each = 1, whole
        else:
            threads = numpy_threads() if is_parallel and not of_batch else 1
            run_bytes = self._value(call.args[5]) if len(call.args) > 5 else None
            known = run_bytes.constant if isinstance(run_bytes, IndexPoly) else Blocks.SHORTEST_RUN
            fewest = -(-Blocks.SHORTEST_RUN // max(known or 1, 1))
            target = Blocks.TARGET * (4 if threads > 1 and "regular" not in flags else 1)
            most = target // max(sizes[2].constant or target, 1)
            each = least(whole, self._block(rows, as_poly(max(fewest, most))))
        self.per_thread = largest(self.per_thread, each)
        self._note(each * as_poly(threads))

    def _block(self, rows: LocalFunction, count: IndexPoly) -> IndexPoly:
        """The memory that a block of so many rows takes."""
        outer = self._frames, self.steps
        self._frames, self.steps = [], [(frozenset(), ZERO)]
        known = {node.id for node in py.nodes_in([rows.tree]) if isinstance(node, ast.Name)}
        captured = {n: external(held) for n, held in rows.names.items() if n in known}
        self._run(rows.tree, [ZERO, count, None], captured, rows.owner, {})
        peak = self.peak
        self._frames, self.steps = outer
        return peak

    @property
    def peak(self) -> IndexPoly:
        """The largest memory in use at a step."""
        return self._largest(frozenset())

    def others(self, results: frozenset[Block]) -> IndexPoly:
        """The largest memory in use at a step, without that of results."""
        return self._largest(results.union(*(block.choices for block in results)))

    def _largest(self, without: frozenset[Block]) -> IndexPoly:
        totals = [size_of_blocks(live - without) + more for live, more in self.steps]
        kept = [as_poly(max(total.constant or 0 for total in totals))]
        symbolic = (total for total in totals if total.constant is None)
        for total in {frozenset(total.terms.items()): total for total in symbolic}.values():
            if not any(exceeds(other + _PAGE, total) for other in kept):
                kept = [k for k in kept if not exceeds(total + _PAGE, k)]
                kept.append(total)
        return reduce(largest, kept)
