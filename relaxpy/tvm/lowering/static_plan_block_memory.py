"""StaticPlanBlockMemory: tensors whose lifetimes do not overlap get the same storage.

LowerAllocTensor: each new tensor gets storage of its size.

KillAfterLastUse: tensors and storage are released where nothing uses them any more.

AllocateWorkspace: functions of back ends receive the memory for intermediate results.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, TypeAlias

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.append_in_place import SizeBounds
from relaxpy.ir.passes.rewrite_pass import RewritePass
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import memory_of
from relaxpy.ir.relax.analysis.variables import binding_key, binding_vars, occurring_vars
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import Call, DataTypeImm, Expr, Function, PrimValue, ShapeExpr, Var
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, with_bindings
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.tvm.relax.aliases import Aliases


class LoweringRewriter(BindingRewriter):
    """Rewrites functions; pure ones that change are declared pure by force (PU-10).

    A subclass whose new calls may all be pure sets `adds_impurity` where they are not.
    """

    adds_impurity = True

    @override
    def function(self, func: Function) -> Function:
        """The function after rewriting, with `relax.force_pure` if it is pure and has changed."""
        after = super().function(func)
        if after is func or not self.adds_impurity:
            return after
        if not func.is_pure or func.attrs.get("relax.force_pure", False):
            return after
        return after.with_attr("relax.force_pure", True)


ALLOC_TENSOR = "relax.builtin.alloc_tensor"


def byte_count(shape: ShapeExpr, dtype: DataType) -> tir.PrimExpr:
    """The size of a tensor in bytes: a constant, times the dimensions that are not constant."""
    factor, dims = dtype.itemsize, [d for d in shape.values if not isinstance(d, tir.IntImm)]
    for dim in shape.values:
        if isinstance(dim, tir.IntImm):
            factor *= dim.value
    if not dims:
        return ops.const(factor, INT64)
    total = dims[0]
    for dim in dims[1:]:
        total = total * dim
    return total if factor == 1 else ops.const(factor, INT64) * total


def storage_call(call: Call, size: tir.PrimExpr, dtype: DataType) -> Call:
    """The allocation of `size` bytes where `call`, a `builtin.alloc_tensor`, has its tensor."""
    device, scope = call.args[2:4]
    args = (ShapeExpr((size,)), device, scope, DataTypeImm(dtype))
    return Call(Op.get("relax.memory.alloc_storage"), args, span=call.span)


def tensor_call(call: Call, storage: Expr) -> Call:
    """The tensor of `call`, a `builtin.alloc_tensor`, at the beginning of a storage."""
    args = (storage, PrimValue(ops.const(0, INT64)), call.args[0], call.args[1])
    return Call(Op.get("relax.memory.alloc_tensor"), args, call.attrs, span=call.span)


@dataclass(frozen=True)
class StaticPlanBlockMemory(RewritePass):
    """Puts tensors that are allocated explicitly into storage, which later tensors use again.

    A tensor is planned if only kernels, packed functions and reshapes of its binding block use it.
    Its storage is free after its last use, unless a packed function has had the tensor and could
    keep it. Sizes may be symbolic; the attribute `tir_var_upper_bound` of a function, a mapping
    from the names of shape variables to integers, makes them constants. Results of the function
    keep their own allocation; with the attribute `relax.memory_plan_dynamic_func_output`, which
    is removed, those whose size has a bound get storage, which is not used again.

    Errors:
        TransformError: an attribute with bounds is not a mapping from names to integers.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: _Planner(mod).expr(func)


_PLANS_OUTPUT = "relax.memory_plan_dynamic_func_output"


class _Planner(BindingRewriter):
    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self._mod = mod
        self._bounds = SizeBounds()
        self._body: rx.SeqExpr | None = None

    @override
    def function(self, func: rx.Function) -> rx.Function:
        outer = self._bounds, self._body
        plans_output = func.attrs.get(_PLANS_OUTPUT, False)
        self._bounds, self._body = SizeBounds.of(func), func.body if plans_output else None
        after = super().function(func)
        self._bounds, self._body = outer
        return after.without_attr(_PLANS_OUTPUT) if _PLANS_OUTPUT in after.attrs else after

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        is_body = seq is self._body
        seq = super().sequence(seq)
        lifetimes = Lifetimes(seq, self._mod, self._bounded(seq) if is_body else ())
        if not lifetimes.calls:
            return seq
        pool = StoragePool()
        for block in seq.blocks:
            for binding in block.bindings:
                call = lifetimes.calls.get(binding.var)  # type: ignore[arg-type]
                if call is not None and binding.var is not None:
                    pool.allocate(binding.var, call, self._size(call))
                for var in lifetimes.ending.get(binding, ()):
                    pool.release(var)
        blocks = tuple(_in_storage(block, pool) for block in seq.blocks)
        return rebuild(seq, blocks=blocks)

    def _size(self, call: rx.Call) -> tir.PrimExpr:
        """The size of an allocation in bytes."""
        shape, dtype = call.args[:2]
        assert isinstance(shape, rx.ShapeExpr)
        assert isinstance(dtype, rx.DataTypeImm)
        return self._bounds.largest(byte_count(shape, dtype.value))

    def _bounded(self, seq: rx.SeqExpr) -> Iterator[rx.Var]:
        """The tensors of symbolic shapes whose size has a constant bound."""
        for block in seq.blocks:
            for binding in block.bindings:
                call = binding.value
                if not rx.is_call_of(call, ALLOC_TENSOR):
                    continue
                shape = call.args[0]
                if not isinstance(shape, rx.ShapeExpr) or binding.var is None:
                    continue
                if all(isinstance(dim, tir.IntImm) for dim in shape.values):
                    continue
                if isinstance(self._size(call), tir.IntImm):
                    yield binding.var


def _in_storage(block: rx.BindingBlock, pool: StoragePool) -> rx.BindingBlock:
    """The block with its tensors in storage, which is allocated with its first tensor."""
    bindings: list[rx.Binding] = []
    for binding in block.bindings:
        var, call = binding.var, binding.value
        storage = None if var is None else pool.storage_of.get(var)
        if storage is None:
            bindings.append(binding)
            continue
        assert isinstance(call, rx.Call)
        if storage.first is var:
            value = storage_call(call, storage.size, storage.dtype)
            bindings.append(rx.VarBinding(storage.var, value, binding.span))
        bindings.append(replace(binding, value=tensor_call(call, storage.var)))
    return with_bindings(block, bindings)


Kind: TypeAlias = tuple[str, ...]
"""The datatype, the device and the storage scope of a tensor, as text."""

_MATCH_RANGE = 16
"""The largest ratio between the sizes of tensors that share a storage."""
_SYMBOLIC = 16
"""The number of free storages of symbolic size that are compared."""


@dataclass(slots=True, eq=False)
class Storage:
    """Memory of `size` bytes, which is allocated for its `first` tensor."""

    var: Var
    first: Var
    size: tir.PrimExpr
    dtype: DataType
    kind: Kind


class StoragePool:
    """Assigns storage to the tensors of a block in the order in which they are allocated."""

    def __init__(self) -> None:
        self.storage_of: dict[Var, Storage] = {}
        self._free: dict[Kind, list[tuple[int, int, Storage]]] = {}
        self._symbolic: dict[Kind, deque[Storage]] = {}
        self._released = 0

    def allocate(self, tensor: Var, call: Call, size: tir.PrimExpr) -> None:
        """Assign storage of at least `size` bytes to the tensor of an allocation."""
        dtype = call.args[1]
        assert isinstance(dtype, DataTypeImm)
        kind = tuple(map(str, call.args[1:4]))
        storage = (
            self._fixed(kind, size) if isinstance(size, tir.IntImm) else self._equal(kind, size)
        )
        if storage is None:
            storage = Storage(Var("storage", span=tensor.span), tensor, size, dtype.value, kind)
        self.storage_of[tensor] = storage

    def release(self, tensor: Var) -> None:
        """Let other tensors have the storage of a tensor."""
        storage = self.storage_of[tensor]
        if isinstance(storage.size, tir.IntImm):
            self._released += 1
            free = self._free.setdefault(storage.kind, [])
            insort(free, (storage.size.value, self._released, storage))
        else:
            self._symbolic.setdefault(storage.kind, deque(maxlen=_SYMBOLIC)).append(storage)

    def _fixed(self, kind: Kind, size: tir.PrimExpr) -> Storage | None:
        """The smallest free storage that is large enough, or the largest one, which then grows."""
        assert isinstance(size, tir.IntImm)
        free = self._free.get(kind, [])
        index = bisect_left(free, (size.value,))
        if index < len(free) and free[index][0] <= size.value * _MATCH_RANGE:
            return free.pop(index)[2]
        if index and free[index - 1][0] * _MATCH_RANGE >= size.value:
            storage = free.pop(index - 1)[2]
            storage.size = size
            return storage
        return None

    def _equal(self, kind: Kind, size: tir.PrimExpr) -> Storage | None:
        """A free storage of the same symbolic size."""
        free = self._symbolic.get(kind, deque())
        for storage in free:
            if prove_equal(storage.size, size) is True:
                free.remove(storage)
                return storage
        return None


class Lifetimes:
    """The allocations of a sequence that only kernels, packed functions and views use.

    Fields:
        calls   the allocation of each such tensor, in order
        kept    those that a packed function has had, and could keep
        ending  by the binding after which tensors are not used any more: these tensors
    """

    def __init__(self, seq: rx.SeqExpr, mod: IRModule, kept: Iterable[rx.Var] = ()) -> None:
        self._mod = mod
        bindings = [binding for block in seq.blocks for binding in block.bindings]
        self._aliases = Aliases(bindings, follows_calls=False)
        self._owner: dict[int, rx.Var] = {}
        self._block_of: dict[rx.Var, rx.BindingBlock] = {}
        self._last: dict[rx.Var, rx.Binding] = {}
        self.calls: dict[rx.Var, rx.Call] = {}
        self.kept: set[rx.Var] = set()
        for block in seq.blocks:
            for binding in block.bindings:
                self._visit(binding, block)
        self._returned(seq.body, set(kept))
        self.ending: dict[rx.Binding, list[rx.Var]] = {}
        for var in self.calls:
            if var not in self.kept:
                self.ending.setdefault(self._last[var], []).append(var)

    def _visit(self, binding: rx.Binding, block: rx.BindingBlock) -> None:
        value, var = binding.value, binding.var
        if var is not None and _is_allocation(value) and not isinstance(block, rx.DataflowBlock):
            assert isinstance(value, rx.Call)
            self.calls[var] = value
            self._block_of[var] = block
            self._last[var] = binding
            self._owner.update(dict.fromkeys(self._aliases.of[var], var))
            return
        tensors = self._tensors(value)
        if not tensors:
            return
        if self._shares(value):
            self._use(tensors, binding, block)
        else:
            self._discard(tensors)
        if isinstance(value, rx.Call) and isinstance(value.op, rx.ExternFunc):
            self.kept |= tensors

    def _tensors(self, value: rx.Expr) -> set[rx.Var]:
        """The allocations so far to whose memory the variables in a value may refer."""
        numbers = self._aliases.reachable_from(occurring_vars(value))
        return {self._owner[number] for number in numbers if number in self._owner}

    def _shares(self, value: rx.Expr) -> bool:
        """True if a value uses tensors only as arguments of kernels, views or fields."""
        if not isinstance(value, rx.Call):
            return isinstance(value, (rx.Var, rx.Tuple, rx.TupleGetItem))
        if rx.is_call_of(value, "relax.vm.call_tir_dyn"):
            return self._is_kernel(value.args[0])
        if _is_view(value) or (isinstance(value.op, Op) and value.op.record.releases):
            return True
        return isinstance(value.op, rx.ExternFunc) or self._is_kernel(value.op)

    def _is_kernel(self, callee: object) -> bool:
        if not isinstance(callee, rx.GlobalVar):
            return False
        return isinstance(self._mod.functions_by_name.get(callee.name_hint), PrimFunc)

    def _use(self, tensors: Iterable[rx.Var], binding: rx.Binding, block: rx.BindingBlock) -> None:
        for var in tensors:
            if self._block_of[var] is block:
                self._last[var] = binding
            else:
                self._discard((var,))

    def _discard(self, tensors: Iterable[rx.Var]) -> None:
        for var in tensors:
            self.calls.pop(var, None)

    def _returned(self, body: rx.Expr, kept: set[rx.Var]) -> None:
        """Keep or discard the tensors in the result of the sequence."""
        returned = self._tensors(body)
        self.kept |= returned
        self._discard(returned - kept)


def _is_view(call: rx.Call) -> bool:
    """True if the result of a call may alias its first operand."""
    memory = memory_of(call)
    return memory is not None and memory.is_of_operand


def _is_allocation(value: rx.Expr) -> bool:
    return rx.is_call_of(value, ALLOC_TENSOR) and isinstance(value.args[0], rx.ShapeExpr)


@dataclass(frozen=True)
class LowerAllocTensor(RewritePass):
    """Allocates storage for each tensor that memory planning has not put into a storage."""

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: _Storages().expr(func)


class _Storages(BindingRewriter):
    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not rx.is_call_of(call, ALLOC_TENSOR):
            return None
        storage = block.var_type("storage", span=binding.span)
        value = rx.VarBinding(storage, _storage(call), binding.span)
        return [value, replace(binding, value=tensor_call(call, storage))]


def _storage(call: rx.Call) -> rx.Call:
    """The allocation of storage for the tensor of `call`."""
    shape, dtype, device, scope = call.args
    assert isinstance(dtype, rx.DataTypeImm)
    if isinstance(shape, rx.ShapeExpr):
        return storage_call(call, byte_count(shape, dtype.value), DataType("uint8"))
    # The dimensions that a variable has count elements, in a shape of any rank.
    args = (shape, device, dtype, scope)
    return rx.Call(Op.get("relax.vm.alloc_storage"), args, span=call.span)


@dataclass(frozen=True)
class KillAfterLastUse(RewritePass):
    """Inserts a call that releases each tensor and each storage after its last use.

    Bindings of a variable to another one are removed. Values that the function returns, and those
    of dataflow blocks, are not released. A pure function that changes is declared pure by force.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: _Kills().expr(func)


class _Kills(LoweringRewriter):
    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        value = binding.value
        if not isinstance(binding, rx.VarBinding) or not isinstance(value, rx.Var):
            return None
        declared, known = binding.var.struct_info, value.struct_info
        precise = declared is None or (known is not None and is_base_of(declared, known))
        return value if precise else None

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        seq = super().sequence(seq)
        killers = _killers(seq)
        if not killers:
            return seq
        blocks: list[rx.BindingBlock] = []
        for block in seq.blocks:
            bindings: list[rx.Binding] = []
            kills: list[rx.Binding] = []
            for binding in block.bindings:
                bindings.append(binding)
                here = killers.get(binding_key(binding), ())
                (kills if isinstance(block, rx.DataflowBlock) else bindings).extend(here)
            blocks.append(with_bindings(block, bindings))
            if kills:
                blocks.append(rx.BindingBlock(tuple(kills)))
        return rebuild(seq, blocks=tuple(blocks))


def _killers(seq: rx.SeqExpr) -> dict[object, list[rx.VarBinding]]:
    """The calls that release variables of a sequence, by the binding that uses these last."""
    bound: dict[rx.Var, str] = {}
    last: dict[rx.Var, object] = {}
    for block in seq.blocks:
        for binding in block.bindings:
            for var in binding_vars(binding):
                if var in bound:
                    last[var] = binding_key(binding)
            value = binding.value
            if isinstance(value, rx.Call) and isinstance(value.op, Op) and value.op.record.releases:
                for var in binding_vars(binding):
                    bound.pop(var, None)
            killer = _killer(binding)
            if killer and type(binding.var) is rx.Var:
                bound[binding.var] = killer
    for var in occurring_vars(seq.body):
        bound.pop(var, None)
    result: dict[object, list[rx.VarBinding]] = {}
    for var, key in last.items():
        if var in bound:
            call = rx.Call(Op.get(bound[var]), (var,), span=var.span)
            result.setdefault(key, []).append(rx.VarBinding(rx.Var("_"), call, var.span))
    return result


def _killer(binding: rx.Binding) -> str | None:
    """The operator that releases the value of a binding."""
    value, var = binding.value, binding.var
    if isinstance(value, rx.Call) and isinstance(value.op, Op):
        allocation = value.op.record.allocates
        if allocation is not None and allocation.storage:
            return allocation.killer
    tensor = var is not None and isinstance(var.struct_info, rx.TensorStructInfo)
    return "relax.memory.kill_tensor" if tensor else None


_SIZE: Final = "WorkspaceSize"
_BYTES: Final = DataType("uint8")


@dataclass(frozen=True)
class AllocateWorkspace(Pass):
    """Passes a workspace to functions with the attribute `WorkspaceSize`, the bytes that they need.

    These are functions for back ends, with the attribute `Codegen` or `Composite`. They get a last
    parameter, and a new name if they are global. The workspace is as large as the largest that one
    of them needs. Other functions allocate it in each block that calls one.

    Errors:
        TransformError: a size is not a number of bytes, or such a function is used as a value.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        functions = [func for func in mod.functions.values() if isinstance(func, rx.Function)]
        nodes = [node for func in functions for node in walk(func)]
        needing = [
            node for node in nodes if isinstance(node, rx.Function) and _needs_workspace(node)
        ]
        if not needing:
            return mod
        size, names = max(map(_size, needing)), _new_names(mod)
        _require_calls(nodes, names)
        workspace = _Workspace(size, names)
        result = mod.clone()
        for name in names:
            del result[name]
        for name, func in mod.functions_by_name.items():
            if isinstance(func, rx.Function):
                new = workspace.expr(func)
                if name in names and "global_symbol" in func.attrs:
                    new = new.with_attr("global_symbol", names[name])
                result[names.get(name, name)] = new
        return normalize_module(result)


def _needs_workspace(func: rx.Function) -> bool:
    return _SIZE in func.attrs and bool({"Codegen", "Composite"} & func.attrs.keys())


def _size(func: rx.Function) -> int:
    size = func.attrs[_SIZE]
    if not isinstance(size, int) or size < 0:
        raise TransformError(
            f"{_SIZE} is a number of bytes, found {size!r:.60}", span=func.span, about=func
        )
    return size


def _require_calls(nodes: Sequence[Node], names: Container[str]) -> None:
    """Errors: TransformError if a function that receives a workspace is used as a value."""
    local = {
        node.var
        for node in nodes
        if isinstance(node, rx.VarBinding)
        and isinstance(node.value, rx.Function)
        and _needs_workspace(node.value)
    }
    for node in nodes:
        match node:
            case rx.Call(args=args):
                used: Iterable[Node] = args
            case rx.VarBinding(value=value):
                used = (value,)
            case _:
                used = children(node)
        for operand in used:
            is_global = isinstance(operand, rx.GlobalVar) and operand.name_hint in names
            if is_global or operand in local:
                raise TransformError(
                    f"{operand} is used as a value; only calls of it can pass its workspace",
                    span=getattr(node, "span", None),
                    about=node,
                )


def _new_names(mod: IRModule) -> dict[str, str]:
    """The new names of the global functions that receive a workspace."""
    taken, names = set(mod.functions_by_name), {}
    for name, func in mod.functions_by_name.items():
        if isinstance(func, rx.Function) and _needs_workspace(func):
            new = next(f"{name}{k}" for k in count(1) if f"{name}{k}" not in taken)
            taken.add(new)
            names[name] = new
    return names


class _Workspace(BindingRewriter):
    """Adds parameters for the workspace to functions, and arguments to their calls."""

    def __init__(self, size: int, names: Mapping[str, str]) -> None:
        super().__init__()
        self._shape = rx.ShapeExpr((ops.const(size, INT64),))
        self._names = names
        self._received: set[Node] = set()
        self._workspace: rx.Var | None = None
        self._is_parameter = False

    @override
    def function(self, func: rx.Function) -> rx.Function:
        outer = self._workspace, self._is_parameter
        receives = _needs_workspace(func)
        if receives:
            sinfo = rx.TensorStructInfo(self._shape, _BYTES)
            self._workspace, self._is_parameter = rx.Var("workspace", sinfo, func.span), True
            func = rebuild(func, params=(*func.params, self._workspace))
        new = super().function(func)
        self._workspace, self._is_parameter = outer
        if receives:
            new = new.without_attr(_SIZE)
            self._received.add(new)
        return new

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        if self._is_parameter:
            return super().block(block)
        outer, self._workspace = self._workspace, None
        first, *others = super().block(block)
        workspace, self._workspace = self._workspace, outer
        if workspace is None:
            return [first, *others]
        args = (self._shape, rx.DataTypeImm(_BYTES), rx.PrimValue(ops.const(0, INT64)))
        span = block.bindings[0].value.span
        call = rx.Call(
            Op.get("relax.builtin.alloc_tensor"), (*args, rx.StringImm("global")), span=span
        )
        allocation = rx.VarBinding(workspace, call, span)
        return [replace(first, bindings=(allocation, *first.bindings)), *others]

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        value = binding.value
        if value in self._received and isinstance(binding, rx.VarBinding):
            var = self.rederived(binding.var)
            self._received.add(var)
            return replace(binding, var=var)
        if not isinstance(value, rx.Call):
            return None
        callee = value.op
        if isinstance(callee, rx.GlobalVar) and callee.name_hint in self._names:
            callee = rx.GlobalVar(self._names[callee.name_hint])
        elif callee not in self._received:
            return None
        if self._workspace is None:
            self._workspace = block.var_type("workspace_main", None, value.span)
        return rebuild(value, op=callee, args=(*value.args, self._workspace))
