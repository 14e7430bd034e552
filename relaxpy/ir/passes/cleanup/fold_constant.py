"""FoldConstant: values that depend on constants only are computed at compile time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from typing_extensions import override

from relaxpy.errors import RelaxpyError
from relaxpy.ir import hooks
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, rebuild, rewrite
from relaxpy.ir.equality.structural import structural_equal, structural_hash
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.rules import scalar_literal
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext, register_config
from relaxpy.ir.passes.cleanup.dead_code_elimination import without_dead_code
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import Effects, Escapes
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.known import called_kernel, without_tuples
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Refined, Rewritten, is_sharper
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.analysis.iterations import most_iterations
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, ForKind
from relaxpy.support.dataclass import dataclass

MAX_BYTES: Final = 1 << 20
"""The maximum size of a folded constant in bytes, unless its operands are as large in total."""
MAX_ITERATIONS: Final = 1 << 24
"""The maximum number of loop iterations of a folded kernel."""
_PER_ELEMENT: Final = 1 << 12
"""The maximum number of iterations per element of the operands, if that allows more."""
_OPTION: Final = "relax.FoldConstant.max_bytes"
register_config(_OPTION, int)
IS_DECODER: Final = "relaxpy.is_decoder"
"""The attribute of kernels that compute weights from a shorter form, which FoldConstant keeps."""


@dataclass(frozen=True)
class FoldConstant(Pass):
    """Evaluates calls of kernels on constants, and in dataflow blocks also operators on constants.

    An operator is evaluated if its legalisation is one call of a kernel. `tensor_to_shape` and
    `shape_to_tensor` are evaluated, too. A call that fails stays, and so does one whose result is
    larger than its operands together and than `relax.FoldConstant.max_bytes` of the PassContext
    (1 MiB by default). One whose loops have more than 2**24 iterations, or 2**12 for each element
    of its operands, stays as well, and so does one with a loop whose end depends on data. Weights
    of QuantizeWeights are only decoded if the context has the option. Bindings that nothing uses
    any more are removed.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        kernels = _Kernels((ctx.config or {}).get(_OPTION))

        def folded(func: rx.Function) -> rx.Function:
            effects = Effects(Context(), mod.functions_by_name, func)
            folder = _Folder(mod.functions_by_name, effects, kernels)
            after = folder.expr(func)
            if after is func:
                return func
            after = without_dead_code(after)
            return Refined(mod, folder.refined).visit_expr(after) if folder.refined else after

        return normalize_module(map_functions(mod, rx.Function, folded))


class _Folder(BindingRewriter):
    """Replaces variables by their constants where no mutation can show the difference (OPT-11).

    `refined` has the struct info of constants that is more precise than that of their variables.
    """

    def __init__(self, functions: Any, effects: Effects, kernels: _Kernels) -> None:
        super().__init__()
        self.functions, self.effects, self.kernels = functions, effects, kernels
        self.escapes: Escapes | None = None
        self.uses: Counter[rx.Var] = Counter()
        self.refined: dict[rx.Var, rx.StructInfo] = {}

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        outer = self.escapes, self.uses
        self.escapes = Escapes(seq, self.effects)
        self.uses = _uses(seq)
        after = super().sequence(seq)
        self.escapes, self.uses = outer
        return after

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        if not isinstance(binding, rx.VarBinding):
            return None
        value: rx.Expr | None = binding.value
        if isinstance(value, rx.Call):
            value = self._folded(value, dataflow=isinstance(block, rx.DataflowBlock))
        if isinstance(value, (rx.Constant, rx.ShapeExpr)) and value.struct_info is not None:
            declared = binding.var.struct_info
            if declared is not None and is_sharper(value.struct_info, declared):
                self.refined[binding.var] = value.struct_info
        if isinstance(value, rx.Constant):
            var = binding.var
            assert self.escapes is not None
            original = self.original_of(var)
            if self.uses[original] == 1 or not self.escapes.escapes(original):
                return value
            return None if value is binding.value else rx.VarBinding(var, value, binding.span)
        return None if value is binding.value else value

    def _folded(self, call: rx.Call, *, dataflow: bool) -> rx.Expr | None:
        """The value of a call, if it is known; None to leave it."""
        op = call.op
        if not isinstance(op, Op):
            return None
        if op.name == "relax.call_tir":
            return self._kernel_result(call)
        args = tuple(self._shape(arg) for arg in call.args)
        simpler = None
        if any(new is not old for new, old in zip(args, call.args, strict=True)):
            simpler = call = rebuild(call, args=args)
        if not dataflow:
            return simpler
        if op.name == "relax.tensor_to_shape" and isinstance(call.args[0], rx.Constant):
            values = tuple(tir.IntImm("int64", int(n)) for n in call.args[0].data)
            return rx.ShapeExpr(values, span=call.span)
        if op.name == "relax.shape_to_tensor":
            sizes = _known_sizes(call.args[0])
            return (
                simpler if sizes is None else rx.Constant(np.array(sizes, "int64"), span=call.span)
            )
        if op.record.legalize is None or op.record.pure is not True:
            return simpler
        return self.kernels.operator_result(call) or simpler

    def _shape(self, arg: rx.Expr) -> rx.Expr:
        """The shape that a variable is bound to, instead of the variable."""
        value = self.value_of(arg)
        return value if isinstance(value, rx.ShapeExpr) else arg

    def _kernel_result(self, call: rx.Call) -> rx.Constant | None:
        called = called_kernel(call) if len(call.args) == 2 else None
        kernel = self.functions.get(called[0]) if called else None
        if called is None or not isinstance(kernel, PrimFunc):
            return None
        return self.kernels.result(kernel, called[1], call.sinfo_args, call)


class _Kernels:
    """Evaluates kernels; equal ones are compiled once.

    Without a limit that somebody chose, weights stay in their shorter form.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = MAX_BYTES if limit is None else limit
        self.decodes = limit is not None
        self._known: dict[int, list[PrimFunc]] = {}

    def operator_result(self, call: rx.Call) -> rx.Constant | None:
        """The value of a call of an operator, if its legalisation is a call of one kernel."""
        constants = [arg for arg in without_tuples(call.args) if isinstance(arg, rx.Constant)]
        if any(isinstance(arg, rx.Var) for arg in without_tuples(call.args)):
            return None
        params = {arg: rx.Var(f"x{k}", arg.struct_info) for k, arg in enumerate(constants)}
        args = tuple(_with_params(arg, params) for arg in call.args)
        result = rx.Var("result")
        body = rx.SeqExpr(
            (rx.BindingBlock((rx.VarBinding(result, rebuild(call, args=args)),)),), result
        )
        func = rx.Function(tuple(params.values()), body).with_attr("global_symbol", "main")
        try:
            legal = LegalizeOps().transform(IRModule({"main": func}), PassContext())
        except RelaxpyError:
            return None
        main = legal["main"]
        assert isinstance(main, rx.Function)
        bindings = [binding for block in main.body.blocks for binding in block.bindings]
        lowered = bindings[0].value if len(bindings) == 1 else None
        called = called_kernel(lowered)
        if called is None or not isinstance(lowered, rx.Call) or len(lowered.args) != 2:
            return None
        kernel = legal[called[0]]
        assert isinstance(kernel, PrimFunc)
        values = dict(zip(main.params, params, strict=True))
        fields = [values.get(field, field) for field in called[1]]  # type: ignore[call-overload]
        return self.result(kernel, fields, lowered.sinfo_args, call)

    def result(
        self,
        kernel: PrimFunc,
        operands: Sequence[rx.Expr],
        sinfos: tuple[rx.StructInfo, ...],
        call: rx.Call,
    ) -> rx.Constant | None:
        """The value of a call of a kernel on constants; None if it is not known or too large."""
        constants = [operand for operand in operands if isinstance(operand, rx.Constant)]
        if len(constants) != len(operands) or len(sinfos) != 1:
            return None
        if IS_DECODER in kernel.attrs and not self.decodes:
            return None
        if not self._is_small(sinfos[0], constants):
            return None
        sinfo = sinfos[0]
        assert isinstance(sinfo, rx.TensorStructInfo)
        sizes = _known_sizes(sinfo.shape) or ()
        shapes = [*(c.data.shape for c in constants), sizes]
        most = max(MAX_ITERATIONS, _PER_ELEMENT * sum(_stored(c.data) for c in constants))
        if most_iterations(kernel, shapes) > most:
            return None
        out = np.zeros(sizes, sinfo.dtype.numpy())
        if (value := _simple_result(kernel, constants, out)) is not None:
            out[...] = value
            return rx.Constant(out, span=call.span)
        args = [*(np.asarray(c.data) for c in constants), out]
        try:
            hooks.call("call_kernel", self._shared(kernel), args)
        except RelaxpyError:
            return None
        return rx.Constant(out, span=call.span)

    def _is_small(self, sinfo: rx.StructInfo | None, operands: list[rx.Constant]) -> bool:
        """True if the shape and the datatype of a result are known, and it is not too large."""
        if not isinstance(sinfo, rx.TensorStructInfo) or sinfo.dtype.is_void or sinfo.vdevice:
            return False
        sizes = _known_sizes(sinfo.shape)
        if sizes is None:
            return False
        size = math.prod(n or 1 for n in sizes) * sinfo.dtype.itemsize  # NumPy counts it so
        return size <= max(self.limit, sum(x.nbytes for x in dict.fromkeys(operands)))

    def _shared(self, kernel: PrimFunc) -> PrimFunc:
        """An equal kernel that may be compiled already."""
        known = self._known.setdefault(structural_hash(kernel), [])
        for other in known:
            if structural_equal(other, kernel):
                return other
        known.append(kernel)
        return kernel


def _simple_result(
    kernel: PrimFunc, constants: Sequence[rx.Constant], out: Array
) -> Array | float | None:
    """The result of a kernel that only transposes a constant, or computes one number; or else None.

    Compiling a kernel for NumPy imports modules that nothing else in a native compilation needs.
    """
    buffers = kernel.buffer_map_items
    arrays = [*(constant.data for constant in constants), out]
    if len(buffers) != len(arrays) or not all(map(_has_form, buffers, arrays)):
        return None
    node, loops, values = kernel.body, dict[tir.Var, int](), dict[tir.PrimExpr, tir.PrimExpr]()
    while not isinstance(node, BufferStore):
        match node:
            case For(kind=ForKind.SERIAL, min=tir.IntImm(value=0), extent=tir.IntImm(value=extent)):
                loops[node.loop_var] = extent
                node = node.body
            case BlockRealize(
                predicate=tir.IntImm(value=1),
                block=Block(init=None, alloc_buffers=(), match_buffers=()) as block,
            ):
                variables = (axis.var for axis in block.iter_vars)
                values.update(zip(variables, node.iter_values, strict=True))
                node = block.body
            case _:
                return None
    if node.buffer is not buffers[-1] or node.predicate is not None:
        return None
    if [values.get(i, i) for i in node.indices] != [*loops]:
        return None
    operands = dict(zip(buffers, constants, strict=False))
    if not loops:

        def known(load: Node) -> Node | None:
            constant = operands.get(load.buffer) if isinstance(load, BufferLoad) else None
            return None if constant is None else scalar_literal(constant)

        value = rewrite(node.value, known)
        assert isinstance(value, tir.PrimExpr)
        number = Analyzer().simplify(value)
        return number.value if isinstance(number, (tir.IntImm, tir.FloatImm)) else None
    load = node.value
    if not isinstance(load, BufferLoad) or load.predicate is not None:
        return None
    read = [values.get(i, i) for i in load.indices]
    if load.buffer not in operands or {*read} != {*loops} or len(read) != len(loops):
        return None
    moved = operands[load.buffer].data.transpose([read.index(var) for var in loops])
    return moved if moved.shape == out.shape == (*loops.values(),) else None


def _has_form(buffer: Buffer | None, array: Array) -> bool:
    """True if an array has the datatype and the shape of a compact buffer."""
    if buffer is None or buffer.strides or buffer.dtype != DataType(array.dtype):
        return False
    return [getattr(size, "value", None) for size in buffer.shape] == [*array.shape]


def _stored(data: Array) -> int:
    """The number of elements that are in memory, where views repeat some."""
    pairs = zip(data.shape, data.strides, strict=True)
    return math.prod(size for size, stride in pairs if stride)


def _known_sizes(shape: rx.Expr | None) -> tuple[int, ...] | None:
    if not isinstance(shape, rx.ShapeExpr):
        return None
    sizes = tuple(int(n.value) for n in shape.values if isinstance(n, tir.IntImm))
    return sizes if len(sizes) == len(shape.values) else None


def _with_params(arg: rx.Expr, params: dict[rx.Constant, rx.Var]) -> rx.Expr:
    if isinstance(arg, rx.Tuple):
        return rx.Tuple(tuple(_with_params(field, params) for field in arg.fields))
    return params.get(arg, arg)  # type: ignore[call-overload,no-any-return]


def _uses(seq: rx.SeqExpr) -> Counter[rx.Var]:
    """Use counts of variables in a sequence; a use in a function, which may repeat, is two."""
    uses: Counter[rx.Var] = Counter()
    waiting: list[tuple[Node, int]] = [(seq.body, 1), *((block, 1) for block in seq.blocks)]
    while waiting:
        node, times = waiting.pop()
        match node:
            case rx.Var():
                uses[node] += times
            case rx.VarBinding(value=rx.Function() as value):
                waiting.append((value, 2))
            case rx.VarBinding(value=value):
                waiting.append((value, times))
            case tir.PrimExpr() | rx.StructInfo():
                pass
            case _:
                waiting += [(child, times) for child in children(node)]
    return uses
