"""DataflowUseInplaceCalls: elementwise calls overwrite dead operands."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import rename
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.expect import expect
from relaxpy.ir.relax.op.definition.registry import find
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, map_with_builder
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing
from relaxpy.tvm.relax.inplace import inplace_candidates


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
