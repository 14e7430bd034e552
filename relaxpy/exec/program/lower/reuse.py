"""The lifetimes of values: escapes, explicit storage, memory used again, `del` statements."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from math import inf

from relaxpy.exec.machine.fast_paths import SHARED_MEMORY
from relaxpy.exec.numpy import python_ast as py
from relaxpy.exec.program.lower.known import allocation_of, is_reshape
from relaxpy.exec.program.lower.scope import GlobalCallee, is_allocation
from relaxpy.exec.runtime.operators import released
from relaxpy.ir.arith.prove import always
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import Allocation, CallKind
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.analysis.regions import filled_buffers
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class _New:
    """A statement that creates a tensor; a reshape copies the elements of the tensor `source`."""

    stmt: ast.Assign
    sinfo: rx.TensorStructInfo
    source: str


class KernelCalls:
    """The unchecked kernel calls in a function, and the new tensors for them.

    Kernels keep no reference to their arguments. So the memory of a tensor that is only an argument
    of such calls is free after the last one.
    """

    def __init__(self, overwritable: Callable[[GlobalCallee], frozenset[tuple[int, int]]]) -> None:
        self._overwritable = overwritable
        self._calls: dict[int, tuple[Sequence[str], GlobalCallee, Sequence[str]]] = {}
        self._new: dict[str, _New] = {}
        self._uses: Counter[str] = Counter()

    def add_new(
        self, stmt: ast.stmt, sinfo: rx.TensorStructInfo, source: ast.expr | None = None
    ) -> None:
        """Note a statement that creates a tensor, maybe by reshaping the tensor `source`."""
        assert isinstance(stmt, ast.Assign)
        name = _target(stmt)
        names = (name, *_names([source] if source is not None else []))
        self._new[name] = _New(stmt, sinfo, names[-1] if source is not None else "")
        self._uses.update(names)

    def add_call(self, stmt: ast.Expr, callee: GlobalCallee, outputs: Iterable[ast.expr]) -> None:
        """Note a call of a kernel, with the new tensors among its arguments."""
        assert isinstance(stmt.value, ast.Call)
        args = _names(stmt.value.args)
        self._calls[id(stmt)] = args, callee, _names(outputs)
        self._uses.update(filter(None, args))

    def reuse(
        self,
        body: Sequence[ast.stmt],
        dying: Mapping[int, Collection[str]],
        totals: Mapping[str, int],
    ) -> None:
        """Let outputs of the calls in `body` reuse the memory of inputs that die in these calls.

        A reshape becomes a view of a tensor that dies in it, or if only kernels read the result and
        the tensor is not changed meanwhile.

        `dying` has the names whose last use is in each statement, `totals` the number of
        occurrences of each name in the function.
        """
        last_use = {name: index for index, names in dying.items() for name in names}
        last_write: dict[str, int] = {}
        others: list[int] = []  # the number of statements so far that may run any code
        for index, stmt in enumerate(body):
            _, _, outputs = self._calls.get(id(stmt), (None, None, ()))
            last_write.update(dict.fromkeys(outputs, index))
            known = id(stmt) in self._calls or self._reshape(stmt) or is_allocation(stmt)
            others.append((others[-1] if others else 0) + (not known))
        for index, stmt in enumerate(body):
            reshape = self._reshape(stmt)
            if id(stmt) in self._calls and index in dying:
                self._reuse_in_call(stmt, body[max(0, index - 8) : index], dying[index], totals)
            elif reshape is not None:
                target, source = _target(reshape.stmt), reshape.source
                last = last_use.get(target, -1)
                dies = self._is_free(source, totals) and source in dying.get(index, ())
                unchanged = last_write.get(source, -1) < index and others[last] == others[index]
                if dies or (last >= 0 and unchanged and self._is_free(target, totals)):
                    reshape.stmt.value = _view(reshape.stmt.value)
                    for name in () if dies else (source, target):
                        self._new.pop(name, None)

    def _reshape(self, stmt: ast.stmt) -> _New | None:
        """The new tensor of a statement, if that is a reshape."""
        new = self._new.get(_target(stmt)) if isinstance(stmt, ast.Assign) else None
        return new if new is not None and new.stmt is stmt and new.source else None

    def _is_free(self, name: str, totals: Mapping[str, int]) -> bool:
        """True if a name has private memory, and only kernels and reshapes use it."""
        return name in self._new and self._uses[name] == totals[name]

    def _reuse_in_call(
        self,
        stmt: ast.stmt,
        before: Sequence[ast.stmt],
        dying: Collection[str],
        totals: Mapping[str, int],
    ) -> None:
        """Let outputs of a call reuse the memory of inputs of the same shape and datatype."""
        args, callee, outputs = self._calls[id(stmt)]
        free = [n for n in dying if n not in outputs and self._is_free(n, totals)]
        for output in outputs if free else ():
            new, target = self._new.get(output), args.index(output)
            if new is None or new.stmt not in before[-len(outputs) :]:
                continue
            for name in free:
                uses = [(index, target) for index, arg in enumerate(args) if arg == name]
                if self._new[name].sinfo == new.sinfo and self._overwritable(callee).issuperset(
                    uses
                ):
                    free.remove(name)
                    new.stmt.value = py.path(name)
                    break


def _target(stmt: ast.Assign) -> str:
    [target] = stmt.targets
    return target.id if isinstance(target, ast.Name) else ""


def _names(args: Iterable[ast.expr]) -> list[str]:
    """The arguments that are names; others are empty."""
    return [arg.id if isinstance(arg, ast.Name) else "" for arg in args]


def _view(copy: ast.expr) -> ast.expr:
    """The view of an array instead of `rx.reshaped(array, shape)`, which copies it."""
    assert isinstance(copy, ast.Call)
    array, shape = copy.args
    assert isinstance(shape, ast.Tuple)
    if all(isinstance(size, ast.Constant) for size in shape.elts):
        return py.call(py.attribute(array, "reshape"), shape)
    return py.call("rx.viewed", array, shape)


def delete_after_last_use(
    body: list[ast.stmt], owned: Collection[str], calls: KernelCalls | None
) -> list[ast.stmt]:
    """`body` with a deletion of each name in `owned` after its last use.

    Names that nested functions capture are not deleted, nor are names that are used at the end.
    Outputs of the kernel `calls` reuse the memory of dead inputs.
    """
    captured: set[str] = set()
    mentions = [[*_mentions(stmt, captured)] for stmt in body]
    totals = Counter(chain.from_iterable(mentions))
    names = set(owned) - captured
    return _with_deletions(body, map(Counter, mentions), names, totals, calls)


def _mentions(stmt: ast.AST, captured: set[str]) -> Iterator[str]:
    """The names in `stmt`; names in nested functions are also added to `captured`."""
    stack = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.FunctionDef):
            children = py.child_nodes(node)
            names = [*chain.from_iterable(_mentions(s, captured) for s in children)]
            captured.update(names)
            yield from names
        else:
            stack += py.child_nodes(node)


def _with_deletions(
    body: list[ast.stmt],
    counts: Iterable[Counter[str]],
    names: Collection[str],
    totals: Counter[str],
    calls: KernelCalls | None,
) -> list[ast.stmt]:
    counts_here: Counter[str] = Counter()
    last: dict[str, int] = {}
    only_in: dict[int, set[str]] = {}
    for i, (stmt, mentions) in enumerate(zip(body, counts, strict=True)):
        count = {name: number for name, number in mentions.items() if name in names}
        counts_here.update(count)
        last.update(dict.fromkeys(count, i))
        if isinstance(stmt, ast.If):
            only_in[i] = {name for name, number in count.items() if number == totals[name]}
    dying: dict[int, list[str]] = {}
    for name, i in last.items():
        if counts_here[name] == totals[name] and name not in only_in.get(i, ()):
            dying.setdefault(i, []).append(name)
    if calls is not None and SHARED_MEMORY:
        calls.reuse(body, dying, totals)
    out: list[ast.stmt] = []
    for i, stmt in enumerate(body):
        if isinstance(stmt, ast.If):
            for suite in (stmt.body, stmt.orelse):
                suite_counts = [Counter(_mentions(s, set())) for s in suite]
                suite[:] = _with_deletions(suite, suite_counts, only_in.get(i, ()), totals, calls)
        out.append(stmt)
        ends = py.leaves([stmt]) or (i + 2 == len(body) and _only_returns(body[-1]))
        if i in dying and not ends:
            out.append(ast.Delete([ast.Name(name, ast.Del()) for name in dying[i]]))
    return out


def _only_returns(stmt: ast.stmt) -> bool:
    """True if `stmt` returns names or a constant."""
    match stmt:
        case ast.Return(value=ast.Name() | ast.Constant() | None):
            return True
        case ast.Return(value=ast.expr() as value):
            return py.is_tuple_of_names(value)
        case _:
            return False


KernelOf = Callable[[rx.Expr], GlobalCallee | None]


def functions_used(nodes: Sequence[Node]) -> frozenset[rx.Var]:
    """The variables of local functions that `nodes` use other than as callees."""
    bindings = (node for node in nodes if isinstance(node, (rx.VarBinding, rx.MatchCast)))
    local = {binding.var for binding in bindings if isinstance(binding.value, rx.Function)}
    if not local:
        return frozenset()
    used = (child for node in nodes for child in _operands(node))
    return frozenset(child for child in used if isinstance(child, rx.Var) and child in local)


def _operands(node: Node) -> Iterator[Node]:
    """The children of `node` whose values escape from it."""
    match node:
        case rx.Call(args=args):
            yield from args
        case rx.VarBinding(value=value) | rx.MatchCast(value=value):
            yield value
        case _:
            yield from children(node)


def shared_constants(nodes: Sequence[Node], kernel_of: KernelOf) -> frozenset[rx.Expr]:
    """The constants among the nodes of a function that are only read by kernels.

    A literal is a new tensor at each evaluation (EV-2). If it is not written and does not escape,
    one tensor serves all evaluations.
    """
    if not any(isinstance(node, rx.Constant) for node in nodes):
        return frozenset()
    read: set[Node] = set()
    escaping: set[Node] = set()
    for node in nodes:
        match node:
            case rx.Call(op=op, args=(rx.GlobalVar() as name, rx.Tuple(fields=inputs), *rest)) if (
                isinstance(op, Op) and op.record.calls is CallKind.KERNEL
            ):
                kernel = kernel_of(name)
                written = frozenset(range(len(inputs))) if kernel is None else kernel.written
                for i, arg in enumerate(inputs):
                    (escaping if i in written else read).add(arg)
                escaping.update(rest)
            case rx.Tuple():
                continue
            case _:
                for operand in _operands(node):
                    escaping.update(_spread(operand))
    return frozenset(n for n in read - escaping if isinstance(n, rx.Constant))


def _spread(operand: Node) -> Iterator[Node]:
    yield operand
    if isinstance(operand, rx.Tuple):
        for leaf in operand.fields:
            yield from _spread(leaf)


_KERNEL_CALLS = (CallKind.KERNEL, CallKind.DYNAMIC_KERNEL)


def is_release(value: rx.Expr | Op) -> bool:
    """True if a call only marks a value as dead, which Python's reference counts do."""
    if not isinstance(value, rx.Call) or not isinstance(value.op, Op):
        return False
    return value.op.record.runtime is released


def separate_storages(nodes: Iterable[Node], kernel_of: KernelOf) -> frozenset[rx.Var]:
    """The variables of storage, in the sequences among `nodes`, that need not exist (OPT-10).

    Such storage is only used for tensors that are provably inside it, in the same sequence. When
    another tensor is allocated in it, earlier ones are dead, and only kernels have used them; a
    kernel first overwrites the new one. So each tensor can have its own memory.
    """
    found: set[rx.Var] = set()
    for node in nodes:
        if isinstance(node, rx.SeqExpr):
            found |= _Storages(node, kernel_of).separate()
    return frozenset(found)


class _Storages:
    """The storage that a sequence allocates, the tensors in it, and their last uses."""

    def __init__(self, seq: rx.SeqExpr, kernel_of: KernelOf) -> None:
        self._kernel_of = kernel_of
        self._first: dict[rx.Var, rx.Expr] = {}
        self._sizes: dict[rx.Var, tir.PrimExpr] = {}
        self._tensors: dict[rx.Var, list[tuple[int, rx.Var]]] = {}
        self._last: dict[rx.Var, float] = {}
        bindings = [binding for block in seq.blocks for binding in block.bindings]
        for index, binding in enumerate(bindings):
            self._enter(index, binding)
        if self._sizes:
            self._use(seq.body, inf)

    def separate(self) -> set[rx.Var]:
        """The storage that is not needed."""
        return {storage for storage, tensors in self._tensors.items() if self._in_turn(tensors)}

    def _in_turn(self, tensors: list[tuple[int, rx.Var]]) -> bool:
        return all(
            self._last.get(before, 0) < index and self._is_filled(var)
            for (_, before), (index, var) in pairwise(tensors)
        )

    def _is_filled(self, tensor: rx.Var) -> bool:
        """True if the first use of a tensor overwrites all of it."""
        match self._first.get(tensor):
            case None:
                return True
            case rx.Call(op=rx.GlobalVar() as name, args=args):
                pass
            case rx.Call(args=[rx.GlobalVar() as name, rx.Tuple(fields=args)]):
                pass
            case _:
                return False
        callee = self._kernel_of(name)
        kernel = None if callee is None else callee.prim_func
        written = [index for index, arg in enumerate(args) if arg is tensor]
        if kernel is None or len(written) != 1:
            return False
        return kernel.buffer_map_items[written[0]] in set(filled_buffers(kernel.body))

    def _enter(self, index: int, binding: rx.Binding) -> None:
        value, var = binding.value, binding.var
        allocation = allocation_of(value)
        if is_release(value):
            return
        if allocation is not None and var is not None and isinstance(binding, rx.VarBinding):
            assert isinstance(value, rx.Call)
            if allocation.storage:
                size = _storage_size(value, allocation)
                if size is not None:
                    self._sizes[var] = size
                    self._tensors[var] = []
                return
            storage = value.args[0]
            if storage in self._sizes and self._lies_in(value, allocation, self._sizes[storage]):
                self._tensors[storage].append((index, var))
                return
        if self._sizes:
            kernel = isinstance(binding, rx.VarBinding) and _is_kernel_call(value)
            self._use(value, index if kernel else inf)

    def _use(self, value: rx.Expr, index: float) -> None:
        for var in occurring_vars(value):
            self._first.setdefault(var, value)
            if var in self._sizes:
                del self._sizes[var], self._tensors[var]
            else:
                self._last[var] = max(index, self._last.get(var, 0))

    def _lies_in(self, call: rx.Call, allocation: Allocation, size: tir.PrimExpr) -> bool:
        offset = call.args[1]
        nbytes = _bytes(call.args[allocation.shape], call.args[allocation.dtype])
        if nbytes is None or not isinstance(offset, rx.PrimValue) or offset.value.dtype != INT64:
            return False
        first, zero = offset.value, ops.const(0, INT64)
        return always(first >= zero) and always(first + nbytes <= size)


def _is_kernel_call(value: rx.Expr | Op) -> bool:
    """True if a call only runs a kernel or copies a tensor, and returns no argument."""
    if not isinstance(value, rx.Call):
        return False
    if is_reshape(value):
        return True
    if isinstance(value.op, Op):
        is_kernel = value.op.record.calls in _KERNEL_CALLS
        return is_kernel and isinstance(value.args[0], rx.GlobalVar)
    sinfo = value.struct_info
    is_unit = isinstance(sinfo, rx.TupleStructInfo) and not sinfo.fields
    return isinstance(value.op, rx.GlobalVar) and is_unit


def _storage_size(call: rx.Call, allocation: Allocation) -> tir.PrimExpr | None:
    """The number of bytes of a storage, if it is known."""
    shape = call.args[allocation.shape]
    dims = _dimensions(shape)
    if dims is not None and allocation.in_bytes and len(dims) == 1:
        return dims[0]
    return _bytes(shape, call.args[allocation.dtype])


def _bytes(shape: rx.Expr, dtype: rx.Expr) -> tir.PrimExpr | None:
    dims = _dimensions(shape)
    if dims is None or not isinstance(dtype, rx.DataTypeImm):
        return None
    return product(dims) * ops.const(dtype.value.numpy().itemsize, INT64)


def _dimensions(shape: rx.Expr) -> tuple[tir.PrimExpr, ...] | None:
    if isinstance(shape, rx.ShapeExpr):
        return shape.values
    sinfo = shape.struct_info
    return sinfo.values if isinstance(sinfo, rx.ShapeStructInfo) else None
