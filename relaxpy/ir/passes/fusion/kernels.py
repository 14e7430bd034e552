"""One kernel for a function of kernel calls: their bodies in sequence, intermediates as buffers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import occurrences, rename, rewrite
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, decl_buffer
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.prim_func import PrimFunc, folded_literals
from relaxpy.ir.tir.reduce import Reduce
from relaxpy.ir.tir.stmt import Block, BlockRealize, SeqStmt, Stmt, stmt_seq
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass, replace


@dataclass(slots=True, eq=False)
class FusedKernel:
    """A kernel instead of a Relax function, and how it is called.

    `operands` are the parameters that it takes, each with the way to a field of it, `scalars` the
    positions of shapes, each with those of its dimensions that are passed. `inplace_indices` has
    the operand that each output overwrites, or -1; it is empty if there is none.
    """

    func: PrimFunc
    operands: list[tuple[int, tuple[int, ...]]]
    scalars: list[tuple[int, int]]
    inplace_indices: tuple[int, ...] = ()


class NotFusable(Exception):  # noqa: N818
    """A function that is not a sequence of calls of kernels with known shapes."""


def fused_kernel(func: rx.Function, functions: Mapping[str, rx.BaseFunc]) -> FusedKernel | None:
    """The kernel that is equivalent to `func`; None if there is none.

    Every value is a tensor of known shape and datatype, and every computation a call of a kernel
    whose body refers to its buffers only. The results are different tensors that the calls
    allocate, or parameters that they overwrite.
    """
    try:
        return _Fusion(func, functions).kernel()
    except NotFusable:
        return None


@dataclass(slots=True, eq=False)
class _Operand:
    """A tensor among the parameters of the function."""

    param: int
    path: tuple[int, ...]
    is_used: bool
    is_overwritten: bool = False


class _Fusion:
    def __init__(self, func: rx.Function, functions: Mapping[str, rx.BaseFunc]) -> None:
        self.func, self.functions = func, functions
        self.values: dict[rx.Expr, tuple[Buffer, ...]] = {}
        self.operands: dict[Buffer, _Operand] = {}
        self.allocated: dict[Buffer, None] = {}
        self.local: list[Buffer] = []
        self.separators: dict[Buffer, tuple[int, ...]] = {}
        self.body: list[Stmt] = []
        sinfos = [param.struct_info for param in func.params if param.struct_info is not None]
        sizes = (size for sinfo in sinfos for size in occurrences(sinfo, tir.Var))
        self.newest: float = max((size.number for size in sizes), default=-1)

    def kernel(self) -> FusedKernel:
        scalars = self._enter_params()
        for block in self.func.body.blocks:
            for binding in block.bindings:
                if not isinstance(binding, rx.VarBinding):
                    raise NotFusable
                self.values[binding.var] = self._value(binding.value)
        results = self._buffers(self.func.body.body)
        operands = {b: o for b, o in self.operands.items() if o.is_used}
        positions = {buffer: k for k, buffer in enumerate(operands)}
        overwritten = {b for b, operand in operands.items() if operand.is_overwritten}
        if (
            len(set(results)) != len(results)
            or not results
            or any(b not in self.allocated and b not in overwritten for b in results)
            or not overwritten <= set(results)
            or not self.body
        ):
            raise NotFusable
        outputs = [buffer for buffer in results if buffer in self.allocated]
        buffers = [*operands, *outputs]
        names = [*(f"p_{b.name}" for b in operands), *(f"p_output{k}" for k in range(len(outputs)))]
        handles = [tir.Var(name, "handle") for name in names]
        params = tuple(scalars)
        local = [buffer for buffer in self.local if buffer not in outputs]
        kernel = PrimFunc(
            (*handles, *params),
            _root(self.body, local),
            buffer_map=dict(zip(handles, buffers, strict=True)),
            attrs=Attrs({"tir.noalias": True}),
            span=self.func.span,
        )
        split = {b: replace(b, axis_separators=s) for b, s in self.separators.items() if s}
        if split:
            kernel = rename(kernel, split)
        inplace = tuple(positions.get(buffer, -1) for buffer in results) if overwritten else ()
        passed = [(operand.param, operand.path) for operand in operands.values()]
        return FusedKernel(kernel, passed, list(scalars.values()), inplace)

    def _enter_params(self) -> dict[tir.Var, tuple[int, int]]:
        """Create the buffers of the parameters; the scalars of shapes with where they are."""
        scalars: dict[tir.Var, tuple[int, int]] = {}
        for k, param in enumerate(self.func.params):
            sinfo = param.struct_info
            if isinstance(sinfo, rx.ShapeStructInfo):
                if sinfo.values is None:
                    raise NotFusable
                for axis, size in enumerate(sinfo.values):
                    if isinstance(size, tir.Var):
                        scalars.setdefault(size, (k, axis))
                continue
            is_tuple = isinstance(sinfo, rx.TupleStructInfo)
            buffers = []
            for path, tensor in _leaves(sinfo):
                name = "_".join([param.name_hint, *map(str, path)])
                buffers.append(_buffer(tensor, name))
                self.operands[buffers[-1]] = _Operand(k, path, is_used=not is_tuple)
            self.values[param] = tuple(buffers)
        return scalars

    def _value(self, value: rx.Expr) -> tuple[Buffer, ...]:
        if rx.is_call_of(value, "relax.call_tir"):
            return self._call(value, ())
        if rx.is_call_of(value, "relax.call_tir_inplace"):
            indices = value.attrs["inplace_indices"]
            assert isinstance(indices, tuple)
            return self._call(value, tuple(k for k in indices if isinstance(k, int)))
        if isinstance(value, rx.TupleGetItem):
            sinfo = value.tuple_value.struct_info
            if not isinstance(sinfo, rx.TupleStructInfo):
                raise NotFusable
            counts = [len(list(_leaves(field))) for field in sinfo.fields]
            first = sum(counts[: value.index])
            return self._of(value.tuple_value)[first : first + counts[value.index]]
        return self._buffers(value) if isinstance(value, rx.Tuple) else self._of(value)

    def _of(self, expr: rx.Expr) -> tuple[Buffer, ...]:
        if isinstance(expr, rx.Tuple):
            return tuple(buffer for field in expr.fields for buffer in self._of(field))
        if expr not in self.values:
            raise NotFusable
        return self.values[expr]

    def _buffers(self, expr: rx.Expr) -> tuple[Buffer, ...]:
        """The buffers of an operand or a result, which are used then."""
        buffers = self._of(expr)
        for buffer in buffers:
            if buffer in self.operands:
                self.operands[buffer].is_used = True
        return buffers

    def _call(self, call: rx.Call, inplace: tuple[int, ...]) -> tuple[Buffer, ...]:
        """Append the body of a called kernel; the buffers of its outputs."""
        name, inputs, *shapes = call.args
        kernel = self.functions.get(name.name_hint) if isinstance(name, rx.GlobalVar) else None
        if not isinstance(kernel, PrimFunc) or not isinstance(inputs, rx.Tuple):
            raise NotFusable
        arguments: list[Buffer | tir.PrimExpr] = []
        for operand in inputs.fields:
            arguments += (
                [operand.value] if isinstance(operand, rx.PrimValue) else self._buffers(operand)
            )
        outputs: list[Buffer] = []
        fresh: list[Buffer] = []
        sinfos = [sinfo for _, sinfo in _leaves(call.sinfo_args[0])]
        for k, sinfo in enumerate(sinfos):
            overwritten = arguments[inplace[k]] if inplace and inplace[k] >= 0 else None
            if overwritten is None:
                param = len(arguments) + len(fresh)
                fresh.append(_buffer(sinfo, _name_of_output(kernel, param)))
            elif not isinstance(overwritten, Buffer):
                raise NotFusable
            elif overwritten in self.operands:
                self.operands[overwritten].is_overwritten = True
            outputs.append(fresh[-1] if overwritten is None else overwritten)
        scalars: list[tir.PrimExpr] = []
        for shape in shapes:
            if not isinstance(shape, rx.ShapeExpr):
                raise NotFusable
            scalars += shape.values
        self.allocated.update(dict.fromkeys(fresh))
        operands = [*arguments, *fresh, *scalars]
        body, local = self._inlined(kernel, operands)
        self._separate(kernel, operands)
        self.body += body.seq if isinstance(body, SeqStmt) else [body]
        self.local += [*local, *fresh]
        return tuple(outputs)

    def _inlined(
        self, kernel: PrimFunc, arguments: Sequence[Buffer | tir.PrimExpr]
    ) -> tuple[Stmt, Sequence[Buffer]]:
        """The body of a kernel for these arguments, and the buffers that its root block allocates.

        Its variables are renewed unless all are newer than those before them: each is defined
        once, and their order is that of the kernels.
        """
        if len(kernel.params) != len(arguments):
            raise NotFusable
        images, values = _unified(kernel, arguments)
        inner = [var for node in _defining(kernel.body) for var in _definitions(node)]
        numbers = [var.number for var in inner if isinstance(var, tir.Var)]
        is_newer = all(number > self.newest for number in numbers)
        body = rename(kernel.body, images, () if is_newer else inner)
        self.newest = max(numbers, default=self.newest) if is_newer else math.inf
        body = substitute(body, values, folded_literals)
        if len(set(arguments)) < len(arguments):
            body = cast("Stmt", rewrite(body, _without_repeated_reads))
        if isinstance(body, BlockRealize) and _is_root(body.block):
            return body.block.body, body.block.alloc_buffers
        return body, ()

    def _separate(self, kernel: PrimFunc, operands: Sequence[Buffer | tir.PrimExpr]) -> None:
        """Note the axis separators that a kernel declares; all kernels agree on those of a tensor.

        A later pass creates the physical axes.
        """
        for param, operand in zip(kernel.params, operands, strict=True):
            declared = kernel.buffer_of(param)
            if declared is None or not isinstance(operand, Buffer):
                continue
            separators = declared.axis_separators
            if self.separators.setdefault(operand, separators) != separators:
                raise NotFusable


def _leaves(
    sinfo: rx.StructInfo | None, path: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], rx.TensorStructInfo]]:
    """The tensors in a tuple, with the way to each."""
    if isinstance(sinfo, rx.TupleStructInfo):
        for k, member in enumerate(sinfo.fields):
            yield from _leaves(member, (*path, k))
    elif isinstance(sinfo, rx.TensorStructInfo) and isinstance(sinfo.shape, rx.ShapeExpr):
        yield path, sinfo
    else:
        raise NotFusable


def _buffer(sinfo: rx.TensorStructInfo, name: str) -> Buffer:
    if sinfo.dtype.is_void or not isinstance(sinfo.shape, rx.ShapeExpr):
        raise NotFusable
    return decl_buffer(sinfo.shape.values, sinfo.dtype, name)


def _name_of_output(kernel: PrimFunc, param: int) -> str:
    buffers = kernel.buffer_map_items
    buffer = buffers[param] if param < len(buffers) else None
    return "output" if buffer is None else buffer.name


def _root(body: Sequence[Stmt], local: Sequence[Buffer]) -> Stmt:
    if len(body) == 1 and isinstance(body[0], BlockRealize) and not local:
        return body[0]
    block = Block((), (), (), "root", stmt_seq(*body), None, tuple(local))
    return BlockRealize((), ops.const(True), block)


def _without_repeated_reads(node: Node) -> Block | None:
    """A block that declares each region that it reads once; None for other nodes."""
    if not isinstance(node, Block):
        return None
    regions = {(r.buffer, *((i.min, i.extent) for i in r.region)): r for r in node.reads}
    return None if len(regions) == len(node.reads) else replace(node, reads=tuple(regions.values()))


def _is_root(block: Block) -> bool:
    return not (block.iter_vars or block.match_buffers or block.annotations or block.init)


def _defining(root: Stmt) -> Iterator[Node]:
    """The nodes of the body of a kernel that may define variables or buffers."""
    visited: set[int] = set()
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        yield node
        for child in node._children():
            may_define = child._bits_inside & _DEFINING and not child._variable
            if (may_define or isinstance(child, IterVar)) and id(child) not in visited:
                visited.add(id(child))
                waiting.append(child)


_DEFINING: Final = Stmt._bits | tir.Let._bits | Reduce._bits


def _definitions(node: Node) -> Iterator[Node]:
    """The variables and buffers that a node of the body of a kernel defines."""
    for name in node._binds:
        bound = getattr(node, name)
        for var in bound if isinstance(bound, tuple) else (bound,):
            yield var
            if isinstance(var, Buffer):
                yield var.data


def _unified(
    kernel: PrimFunc, arguments: Sequence[Buffer | tir.PrimExpr]
) -> tuple[dict[Node, Node], dict[tir.Var, tir.PrimExpr]]:
    """The substitution of a kernel's buffers and variables, and the values of the latter.

    The variables are replaced by new ones first, since the arguments may mention them.
    """
    images: dict[Node, Node] = {}
    values: dict[tir.Var, tir.PrimExpr] = {}
    equations: list[tuple[tir.PrimExpr, tir.PrimExpr]] = []
    for param, argument in zip(kernel.params, arguments, strict=True):
        buffer = kernel.buffer_of(param)
        if buffer is None:
            if isinstance(argument, Buffer) or param.dtype.family == "handle":
                raise NotFusable
            equations.append((param, argument))
            continue
        if not isinstance(argument, Buffer) or not _is_compact(buffer, argument):
            raise NotFusable
        if buffer in images:
            raise NotFusable
        images |= {buffer: argument, buffer.data: argument.data}
        equations += zip(buffer.shape, argument.shape, strict=True)
    for size, _ in equations:
        for var in occurrences(size, tir.Var):
            images.setdefault(var, var.renamed(var.name))
    unknown = []
    for size, value in equations:
        if size is value and isinstance(size, tir.IntImm):
            continue
        image = images.get(size)
        if isinstance(image, tir.Var) and image not in values:
            values[image] = ops.cast_to(value, image.dtype)
        else:
            mentioned = {var: images[var] for var in occurrences(size, tir.Var)}
            unknown.append((rename(size, mentioned), value))
    variables = {image for image in images.values() if isinstance(image, tir.Var)}
    for size, value in unknown:
        known = substitute(size, values)
        if mentions(known, variables):
            raise NotFusable
        if prove_equal(known, value) is not True:
            raise NotFusable
    return images, values


def _is_compact(buffer: Buffer, argument: Buffer) -> bool:
    """True if a buffer has the datatype and the rank of an argument, and its elements in a row."""
    zero = ops.const(0, buffer.elem_offset.dtype)
    plain = not buffer.strides and prove_equal(buffer.elem_offset, zero) is True
    same = buffer.dtype == argument.dtype and buffer.ndim == argument.ndim
    return plain and same and buffer.scope() == argument.scope()
