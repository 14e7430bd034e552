"""CallTIRRewrite: calls in destination-passing style allocate their outputs explicitly.

DataflowUseInplaceCalls: elementwise calls overwrite dead operands.

SpecializePrimFuncBasedOnCallSite: kernels get the shapes and memory scopes of their operands.

LowerRuntimeBuiltin: operators on memory, shapes and closures become calls of the runtime.

DispatchSampling: sampling becomes a running sum and a search.

DispatchSortScan: running sums and products become calls of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError, unexpected
from relaxpy.ir.arith.prove import always
from relaxpy.ir.core.dtype import FLOAT64, INT64, DataType
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, Node
from relaxpy.ir.core.traverse import children, rename, walk
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.ops.call import operand_tuple
from relaxpy.ir.ops.definition.registry import R, find
from relaxpy.ir.ops.definition.rules import known_shape, same, te_kernel
from relaxpy.ir.ops.memory import VIEW_DERIVE
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.legalize import Legalization, legalized
from relaxpy.ir.passes.rewrite_pass import RewritePass
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.known import expect, fields_of
from relaxpy.ir.relax.nodes import Call, Expr
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, map_with_builder
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.topi import reduction as topi
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.buffer import Buffer, decl_buffer
from relaxpy.ir.tir.expr import Var
from relaxpy.ir.tir.prim_func import PrimFunc, specialized
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing
from relaxpy.tvm.lowering.static_plan_block_memory import ALLOC_TENSOR, LoweringRewriter
from relaxpy.tvm.relax.aliases import inplace_candidates

_KINDS = (CallKind.KERNEL, CallKind.INPLACE_KERNEL, CallKind.DPS_PACKED)


@dataclass(frozen=True)
class CallTIRRewrite(RewritePass):
    """Allocates the outputs of `call_tir` and its relatives, and calls the functions directly.

    Scalars of `tir_vars` are passed by `R.vm.call_tir_dyn`. Calls of functions that write into
    arguments return these arguments. A pure function that changes is declared pure by force.

    Errors:
        TransformError: a call is in a dataflow block, where impure calls are not allowed (PU-10).
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: _Explicit().expr(func)


class _Explicit(LoweringRewriter):
    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, Op):
            return None
        if call.op.record.calls not in _KINDS:
            return None
        if isinstance(block, rx.DataflowBlock):
            raise TransformError(
                f"CallTIRRewrite: {call.op.name} is in a dataflow block, where a direct call is "
                "not allowed",
                rule="PU-10",
                span=call.span,
                hint="apply ToNonDataflow first",
            )
        literals, inputs = _bound_literals(call)
        allocations, outputs = _outputs(call, inputs)
        new = [allocation.var for allocation in allocations]
        direct = rx.VarBinding(rx.Var("_"), _direct_call(call, (*inputs, *new)), binding.span)
        return [*literals, *allocations, direct, replace(binding, value=_result(call, outputs))]


def _bound_literals(call: rx.Call) -> tuple[list[rx.VarBinding], list[rx.Expr]]:
    """Bindings of literals that a call overwrites, which have one value each; and the operands."""
    inputs = list(operand_tuple(call.args[1]).fields)
    literals: list[rx.VarBinding] = []
    indices = call.attrs.get("inplace_indices", ())
    assert isinstance(indices, tuple)
    for index in indices:
        if index >= 0 and isinstance(literal := inputs[index], rx.Constant):
            literals.append(rx.VarBinding(rx.Var("literal"), literal, call.span))
            inputs[index] = literals[-1].var
    return literals, inputs


def _outputs(call: rx.Call, inputs: Sequence[rx.Expr]) -> tuple[list[rx.VarBinding], list[rx.Expr]]:
    """The allocations of the new outputs of a call, and all outputs."""
    indices = call.attrs.get("inplace_indices", ())
    assert isinstance(indices, tuple)
    allocations: list[rx.VarBinding] = []
    outputs: list[rx.Expr] = []
    for k, sinfo in enumerate(_output_sinfos(call)):
        if indices and indices[k] >= 0:
            outputs.append(inputs[indices[k]])
            continue
        allocations.append(rx.VarBinding(rx.Var("alloc"), _allocation(sinfo, call), call.span))
        outputs.append(allocations[-1].var)
    return allocations, outputs


def _output_sinfos(call: rx.Call) -> tuple[rx.StructInfo, ...]:
    [sinfo] = call.sinfo_args
    return fields_of(sinfo)


def _allocation(sinfo: rx.StructInfo, call: rx.Call) -> rx.Call:
    assert isinstance(sinfo, rx.TensorStructInfo)
    assert sinfo.shape is not None
    device = rx.PrimValue(ops.const(0, INT64))
    args = (sinfo.shape, rx.DataTypeImm(sinfo.dtype), device, rx.StringImm("global"))
    attrs = EMPTY_ATTRS if sinfo.vdevice is None else Attrs({"vdevice": sinfo.vdevice})
    return rx.Call(Op.get("relax.builtin.alloc_tensor"), args, attrs, span=call.span)


def _direct_call(call: rx.Call, args: tuple[rx.Expr, ...]) -> rx.Call:
    """The call of the callee of `call` with its outputs among the arguments."""
    callee, _, *scalars = call.args
    if scalars:
        operands = rx.Tuple((*args, *scalars))
        return rx.Call(Op.get("relax.vm.call_tir_dyn"), (callee, operands), span=call.span)
    return rx.Call(callee, args, span=call.span)


def _result(call: rx.Call, outputs: Sequence[rx.Expr]) -> rx.Expr:
    """The value of a call with these outputs."""
    several = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
    return rx.Tuple(tuple(outputs)) if several else outputs[0]


@dataclass(frozen=True)
class DataflowUseInplaceCalls(Pass):
    """Calls kernels that overwrite an operand, for elementwise operators in dataflow blocks.

    The operand has the shape and the datatype of the result, the block has allocated it, and after
    the call nothing refers to its memory: no variable, tuple or view, and no function has had it.
    Operators are `add`, `subtract`, `multiply`, `divide`, `nn.relu` and `nn.silu`.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        return normalize_module(
            map_with_builder(mod, lambda func, builder: _InplaceCalls(builder).expr(func))
        )


class _InplaceCalls(BindingRewriter):
    """Rewrites one function; `builder` has the module with the new kernels."""

    def __init__(self, builder: BlockBuilder) -> None:
        super().__init__()
        self.builder = builder
        self._overwritten: dict[rx.Binding, int] = {}

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        if isinstance(block, rx.DataflowBlock):
            found = inplace_candidates(block, ())
            self._overwritten |= {block.bindings[c.index]: c.same[0] for c in found if c.same}
        return super().block(block)

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        operand = self._overwritten.get(binding)
        if operand is None:
            return None
        assert isinstance(binding.value, rx.Call)
        call = inplace_call(self.builder, binding.value, (operand,))
        return None if call is None else replace(binding, value=call)


def inplace_call(builder: BlockBuilder, call: rx.Call, indices: Sequence[int]) -> rx.Call | None:
    """The call of a kernel that writes the outputs of `call` into its operands at `indices`.

    The kernel is that of the operator's legalisation, with the operands' buffers instead of those
    of the outputs, and is added to the module of the builder. None if the operator has no kernel.
    """
    assert isinstance(call.op, Op)
    operator, legalize = find(call.op), call.op.record.legalize
    if operator is None or legalize is None:
        return None
    kernels = BlockBuilder()
    legal = legalize(kernels, operator.signature.completed(call))
    if not rx.is_call_of(legal, "relax.call_tir"):
        return None
    name, inputs, *scalars = legal.args
    assert isinstance(name, rx.GlobalVar)
    assert isinstance(inputs, rx.Tuple)
    kernel = kernels.get()[name]
    assert isinstance(kernel, PrimFunc)
    if any(call.args[index] not in inputs.fields for index in indices):
        return None
    # Literals may have become part of the kernel.
    positions = [
        index
        if inputs.fields[index : index + 1] == (call.args[index],)
        else inputs.fields.index(call.args[index])
        for index in indices
    ]
    overwriting = _overwriting(kernel, len(inputs.fields), positions)
    new = builder.add_func(overwriting, f"{name.name_hint}_inplace")
    return rx.Call(
        Op.get("relax.call_tir_inplace"),
        (new, inputs, *scalars),
        Attrs({"inplace_indices": tuple(positions)}),
        legal.sinfo_args,
        span=call.span,
    )


def _overwriting(kernel: PrimFunc, count: int, indices: Sequence[int]) -> PrimFunc:
    """The kernel whose outputs, after `count` inputs, are the inputs at `indices`."""
    buffers = kernel.buffer_map_items
    images: dict[Node, Node] = {}
    for output, index in enumerate(indices, count):
        source, target = buffers[output], buffers[index]
        assert source is not None
        assert target is not None
        images |= {source: target, source.data: target.data}
    params = (*kernel.params[:count], *kernel.params[count + len(indices) :])
    return replace(
        kernel,
        params=params,
        body=rename(kernel.body, images),
        buffer_map={p: b for p, b in kernel.buffer_map.items() if p in params},
        struct_info=None,
    )


@user_facing
def dataflow_single_inplace_call(
    mod: IRModule, call: rx.Call, inplace_indices: Sequence[int]
) -> tuple[rx.Call, IRModule]:
    """`call` of an operator as a call that overwrites operands, and the module with its kernel.

    The caller ensures that nothing else refers to these operands.

    Errors:
        MisuseError (also TypeError, ValueError): `mod` is not a module, `call` not a call of an
            operator with one kernel, or there is no operand for an index of its outputs.
    """
    expect(mod, IRModule)
    expect(call, rx.Call)
    count, found = len(call.args), inplace_indices
    if len(found) != 1 or not all(isinstance(k, int) and 0 <= k < count for k in found):
        raise unexpected(found, f"expected the index of one of {count} operands")
    builder = BlockBuilder(mod)
    result = inplace_call(builder, call, inplace_indices) if isinstance(call.op, Op) else None
    if result is None:
        raise MisuseError(f"{call.op} is not an operator that one kernel computes", about=call)
    normalized = builder.normalize(result)
    assert isinstance(normalized, rx.Call)
    return normalized, builder.get()


@dataclass(frozen=True)
class SpecializePrimFuncBasedOnCallSite(Pass):
    """Specialises each kernel for the shapes and memory scopes of the tensors that it is called on.

    The scope of a tensor is that of its device, or else "global". A specialised kernel has the
    attribute `scoped`. Functions with the attribute `Primitive` do not count as callers.

    A kernel stays unchanged if one of its uses is not such a call or differs from another, if a
    call passes values of shape variables, or if the shape or datatype of a tensor is unknown.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        calls: dict[rx.GlobalVar, list[rx.Call]] = {}
        kept: set[rx.Expr] = set()
        for func in mod.functions.values():
            if not isinstance(func, rx.Function) or func.attrs.get("Primitive", 0):
                continue
            for node in walk(func.body):
                used = list(children(node))
                if rx.is_call_of(node, "relax.call_tir") and isinstance(node.args[0], rx.GlobalVar):
                    calls.setdefault(node.args[0], []).append(node)
                    used.remove(node.args[0])
                kept.update(child for child in used if isinstance(child, rx.GlobalVar))
        changed = mod.clone()
        for target, sites in calls.items():
            kernel = mod[target]
            if isinstance(kernel, PrimFunc) and target not in kept:
                versions = [_specialized(kernel, call) for call in sites]
                if all(structural_equal(version, versions[0]) for version in versions[1:]):
                    changed[target] = versions[0]
        return mod if changed.functions == mod.functions else changed


def _specialized(kernel: PrimFunc, call: rx.Call) -> PrimFunc:
    """The kernel for the tensors of a call of it; itself if not all of them are known."""
    [result] = call.sinfo_args
    results = fields_of(result)
    tensors: list[tuple[rx.StructInfo | None, rx.Expr | None]] = [
        (arg.struct_info, arg) for arg in operand_tuple(call.args[1]).fields
    ]
    tensors += ((sinfo, None) for sinfo in results)
    if len(call.args) > 2 or not all(_is_known(sinfo) for sinfo, _ in tensors):
        return kernel
    buffers: dict[Var, Buffer] = {}
    scopes: dict[Var, Var] = {}
    found = [
        (param, _buffer(sinfo, arg.name_hint if isinstance(arg, rx.Var) else param.name))
        for param, (sinfo, arg) in zip(kernel.params, tensors, strict=False)
    ]
    sizes = {size for _, buffer in found for size in buffer.shape}
    are_read = all(n in sizes for size in sizes for n in walk(size) if isinstance(n, Var))
    for param, new in found:
        old = kernel.buffer_of(param)
        if old is not None:
            if not are_read:  # a kernel reads its variables from the dimensions of its tensors
                pairs = zip(new.shape, old.shape, strict=True)
                shape = [n if isinstance(n, tir.IntImm) else own for n, own in pairs]
                new = replace(new, shape=tuple(shape))
            buffers[param] = new
            if old.scope() != new.scope():
                scopes[old.data] = new.data
    version = substitute(specialized(kernel, buffers, are_arguments=True), scopes)
    if kernel.attrs.get("scoped", 0) and structural_equal(version, kernel):
        return kernel
    return version.with_attr("scoped", 1)


def _is_known(sinfo: rx.StructInfo | None) -> bool:
    if not isinstance(sinfo, rx.TensorStructInfo):
        return False
    return isinstance(sinfo.shape, rx.ShapeExpr) and bool(sinfo.dtype)


def _buffer(sinfo: rx.StructInfo | None, name: str) -> Buffer:
    """A buffer for a tensor, in the memory scope of its device."""
    assert isinstance(sinfo, rx.TensorStructInfo)
    assert isinstance(sinfo.shape, rx.ShapeExpr)
    device = sinfo.vdevice
    scope = device.memory_scope if isinstance(device, VDevice) else "global"
    return decl_buffer(sinfo.shape.values, str(sinfo.dtype), name, scope=scope)


@dataclass(frozen=True)
class LowerRuntimeBuiltin(RewritePass):
    """Replaces operators by the operators `R.vm` and the packed functions `vm.builtin.…`.

    These are operators on storage, views, reshapes, shapes of tensors, and closures. The calls are
    impure, except for those that create views, so RemovePurityChecking and ToNonDataflow come
    before; a pure function that gets impure calls is declared pure by force.

    Errors:
        TransformError: a tensor is not in storage, or such an operator is in a dataflow block.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: _Builtins().expr(func)


class _Builtins(LoweringRewriter):
    adds_impurity = False

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, Op):
            return None
        name = call.op.name
        if name == ALLOC_TENSOR:
            raise TransformError(
                f"LowerRuntimeBuiltin: the tensor of {binding} is not in storage",
                span=call.span,
                hint="apply LowerAllocTensor first",
            )
        if name == "relax.memory.view":
            return _view(call)
        lower = _LOWERINGS.get(name)
        if lower is None:
            return None
        if isinstance(block, rx.DataflowBlock):
            raise TransformError(
                f"LowerRuntimeBuiltin: {name} is in a dataflow block, where a call of the runtime "
                "is not allowed",
                rule="PU-10",
                span=call.span,
                hint="apply ToNonDataflow first",
            )
        self.adds_impurity = True
        return lower(call)


def _alloc_storage(call: rx.Call) -> rx.Call:
    size, device, scope, dtype = call.args
    if isinstance(size, rx.ShapeExpr) and len(size.values) == 1:
        dtype = rx.DataTypeImm(DataType("uint8"))  # the size counts bytes
    return rx.Call(Op.get("relax.vm.alloc_storage"), (size, device, dtype, scope), span=call.span)


def _view(call: rx.Call) -> rx.Call | None:
    """The pure call that creates a view, with all operands; None if one of them is not known."""
    data, shape, dtype, offset = call.args
    sinfo = data.struct_info
    if not isinstance(sinfo, rx.TensorStructInfo):
        return None
    if isinstance(shape, rx.Tuple):
        if sinfo.shape is None:
            return None
        shape = sinfo.shape
    if isinstance(dtype, rx.Tuple):
        if sinfo.dtype.is_void:
            return None
        dtype = rx.DataTypeImm(sinfo.dtype)
    if isinstance(offset, rx.Tuple):
        offset = rx.PrimValue(ops.const(0, INT64))
    signature = rx.FuncStructInfo.opaque_func(derive_func=VIEW_DERIVE, purity=True)
    create = rx.ExternFunc("runtime.TVMTensorCreateView", signature)
    return rx.Call(create, (data, shape, dtype, offset), span=call.span)


def _as(name: str) -> Callable[[rx.Call], rx.Call]:
    """The call of another operator with the same operands and attributes."""
    return lambda call: rx.Call(Op.get(name), call.args, call.attrs, span=call.span)


def _packed(name: str) -> Callable[[rx.Call], rx.Call]:
    """The call of a packed function with the same operands."""
    return lambda call: _call_packed(name, call.args, call)


def _call_packed(name: str, args: tuple[rx.Expr, ...], call: rx.Call) -> rx.Call:
    sinfo = call.struct_info
    sinfos = () if sinfo is None else (sinfo,)
    return rx.Call(rx.ExternFunc(name), args, EMPTY_ATTRS, sinfos, span=call.span)


def _make_closure(call: rx.Call) -> rx.Call:
    args = (call.args[0], *operand_tuple(call.args[1]).fields)
    return _call_packed("vm.builtin.make_closure", args, call)


def _invoke_closure(call: rx.Call) -> rx.Call:
    args = rx.Tuple((call.args[0], *operand_tuple(call.args[1]).fields))
    function = rx.ExternFunc("vm.builtin.invoke_closure")
    with_context = Op.get("relax.call_builtin_with_ctx")
    sinfos = call.sinfo_args or (() if call.struct_info is None else (call.struct_info,))
    return rx.Call(with_context, (function, args), EMPTY_ATTRS, sinfos, span=call.span)


_LOWERINGS: dict[str, Callable[[rx.Call], rx.Call]] = {
    "relax.memory.alloc_storage": _alloc_storage,
    "relax.memory.alloc_tensor": _as("relax.vm.alloc_tensor"),
    "relax.memory.kill_storage": _as("relax.vm.kill_object"),
    "relax.memory.kill_tensor": _as("relax.vm.kill_object"),
    "relax.memory.ensure_zero_offset": _packed("vm.builtin.ensure_zero_offset"),
    "relax.reshape": _packed("vm.builtin.reshape"),
    "relax.shape_of": _packed("vm.builtin.shape_of"),
    "relax.tensor_to_shape": _packed("vm.builtin.tensor_to_shape"),
    "relax.make_closure": _make_closure,
    "relax.invoke_closure": _invoke_closure,
}

VMBuiltinLower = LowerRuntimeBuiltin


@dataclass(frozen=True)
class DispatchSampling(Pass):
    """Replaces `multinomial_from_uniform` by a running sum of the probabilities and a search in it.

    The sum is taken in float64, as the operator takes it. A call stays unchanged if a shape or
    datatype is unknown, if the number of categories is not a literal, or if the numbers of samples
    and of indices may differ.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return legalized(mod, {Op("relax.multinomial_from_uniform"): _dispatched}.get)


def _dispatched(builder: BlockBuilder, call: Call) -> Expr:
    prob, samples, rows = call.args
    categories = known_shape(builder, prob)[1]
    sizes = known_shape(builder, samples)[0], known_shape(builder, rows)[0]
    if not isinstance(categories, tir.IntImm) or not categories.value or not same(*sizes):
        return call
    sums = builder.emit(R.cumsum(prob, axis=1, dtype=FLOAT64, span=call.span), span=call.span)
    dtype = str(call.attrs["dtype"])
    kernel = te_kernel(builder, _search, "get_sample_index", sums, samples, rows, dtype=dtype)
    return replace(kernel, span=call.span)


def _search(sums: te.Tensor, samples: te.Tensor, rows: te.Tensor, dtype: str) -> te.Tensor:
    """For each sample, the first column of its row that exceeds it, or else the last one."""
    count = sums.shape[1]
    k = te.reduce_axis((ops.const(0, count.dtype), count), "k")

    def element(i: tir.PrimExpr, j: tir.PrimExpr) -> tir.PrimExpr:
        exceeds = ops.cast_to(samples(i, j), FLOAT64) < sums(rows(i, j), k.var)
        last = count - ops.const(1, count.dtype)
        return cast("tir.PrimExpr", reduce.min(intrin.if_then_else(exceeds, k.var, last), axis=k))

    first = te.compute(samples.shape, element, name="get_sample_index")
    return as_dtype(first, DataType(dtype))


_SCANS: Final = (Op("relax.cumsum"), Op("relax.cumprod"))


def _sort(builder: BlockBuilder, call: Call) -> Expr:
    axis, descending = call.attrs["axis"], call.attrs["descending"]
    return _kernel(builder, call, topi.sort, axis=axis, is_ascend=not descending)


def _argsort(builder: BlockBuilder, call: Call) -> Expr:
    axis, descending = call.attrs["axis"], call.attrs["descending"]
    dtype = str(call.attrs["dtype"])
    return _kernel(builder, call, topi.argsort, axis=axis, is_ascend=not descending, dtype=dtype)


def _topk(builder: BlockBuilder, call: Call) -> Expr:
    attrs: dict[str, Any] = dict(call.attrs)
    size, k = known_shape(builder, call.args[0])[attrs["axis"]], attrs["k"]
    if k > 0 and not always(ops.compare(tir.GE, size, ops.const(k, size.dtype))):
        return call
    return _kernel(
        builder,
        call,
        topi.topk,
        k=k,
        axis=attrs["axis"],
        ret_type=attrs["ret_type"],
        is_ascend=not attrs["largest"],
        dtype=str(attrs["dtype"]),
    )


def _kernel(
    builder: BlockBuilder, call: Call, function: Callable[..., object], **options: object
) -> Expr:
    kernel = te_kernel(builder, function, function.__name__, *call.args, **options)
    return replace(kernel, span=call.span)


_SORTS: Final = {Op("relax.sort"): _sort, Op("relax.argsort"): _argsort, Op("relax.topk"): _topk}


@dataclass(frozen=True)
class DispatchSortScan(Pass):
    """Replaces calls of cumsum, cumprod, sort, argsort and topk by calls of kernels.

    The kernels of the last three call the packed functions `tvm.contrib.sort.…`. A call whose
    operand has an unknown shape or datatype stays unchanged, and so does a topk with a k that may
    exceed the number of elements.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        def rule_of(op: Op) -> Legalization | None:
            return op.record.legalize if op in _SCANS else _SORTS.get(op)

        return legalized(mod, rule_of)
