"""The variables of an expression, a function or a struct info: free, bound and all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from typing import Final

from relaxpy.errors import unexpected
from relaxpy.ir.core.memo import memoised
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import expect
from relaxpy.ir.relax.relations import shape_vars
from relaxpy.ir.tir import expr as tir
from relaxpy.support.entry import user_facing


@user_facing
def post_order_visit(expr: Node, fvisit: Callable[[rx.Expr | Op], object]) -> None:
    """Call `fvisit` on each expression in `expr` once, operands before their users.

    Errors:
        MisuseError (also TypeError): `expr` is not a node, or `fvisit` not a function.
    """
    expect(expr, Node)
    if not callable(fvisit):
        raise unexpected(fvisit, "fvisit is a function")
    for node in walk(expr):
        if isinstance(node, (rx.Expr, Op)):
            fvisit(node)


_DEFINING: Final = (rx.Function, rx.VarBinding, rx.MatchCast)


def _defined(node: Node) -> Iterator[rx.Var]:
    if isinstance(node, rx.Function):
        yield from node.params
    elif isinstance(node, (rx.VarBinding, rx.MatchCast)) and node.var is not None:
        yield node.var


def occurring_vars(expr: Node) -> dict[rx.Var, None]:
    """Every variable in `expr`, including those in the struct info of variables, in order."""
    if isinstance(expr, rx.Var):
        return _occurring([expr]) if _shapes(expr) else {expr: None}
    return {} if _has_dimensions(expr) else dict.fromkeys(_vars_in(expr))


@memoised
def _vars_in(node: Node) -> tuple[rx.Var, ...]:
    variables: dict[rx.Var, None] = {}
    is_flat = type(node) is rx.Call and _add_leaves(node._children(), variables)
    return tuple(variables if is_flat else _occurring([node]))


def _add_leaves(operands: Iterable[Node], variables: dict[rx.Var, None]) -> bool:
    """Add the variables among operands; False if there may be others inside of an operand."""
    for operand in operands:
        kind = type(operand)
        if kind is rx.Tuple:
            if not _add_leaves(operand._children(), variables):
                return False
        elif isinstance(operand, rx.Var):
            if _shapes(operand):
                return False
            variables[operand] = None
        elif isinstance(operand, rx.StructInfo):
            if not _has_dimensions(operand) and _shapes_of(operand):
                return False
        elif kind not in _CONSTANT:
            return False
    return True


_CONSTANT: Final = frozenset(
    (Op, rx.GlobalVar, rx.Constant, rx.ShapeExpr, rx.PrimValue, rx.StringImm, rx.DataTypeImm)
)


def _occurring(waiting: list[Node]) -> dict[rx.Var, None]:
    variables: dict[rx.Var, None] = {}
    while waiting:
        for node in walk(waiting.pop()):
            if isinstance(node, rx.Var) and node not in variables:
                variables[node] = None
                waiting += _shapes(node)
    return variables


def binding_operands(binding: rx.Binding) -> list[Node]:
    """The value of a binding, and the struct infos that it declares."""
    operands: list[Node] = [binding.value]
    if isinstance(binding, rx.MatchCast):
        operands.append(binding.struct_info)
    if binding.var is not None and binding.var.struct_info is not None:
        operands.append(binding.var.struct_info)
    return operands


def binding_vars(binding: rx.Binding) -> dict[rx.Var, None]:
    """The variables that a binding uses, each once, in order."""
    return {var: None for node in binding_operands(binding) for var in occurring_vars(node)}


def mentions_any(binding: rx.Binding, variables: Collection[Node]) -> bool:
    """True if a binding binds or uses some of these variables."""
    return bool(variables) and (
        binding.var in variables
        or any(
            var in variables for node in binding_operands(binding) for var in occurring_vars(node)
        )
    )


def binding_key(binding: rx.Binding) -> rx.Var | rx.Binding:
    """The identity of a binding: its variable, or else the cast itself."""
    return binding if binding.var is None else binding.var


def _has_dimensions(node: Node | None) -> bool:
    """True for a tensor whose shape is not a variable, as most are."""
    return isinstance(node, rx.TensorStructInfo) and isinstance(node.shape, rx.ShapeExpr)


def _shapes(var: rx.Var) -> tuple[rx.Var, ...]:
    """The variables that are shapes in the struct info of `var`."""
    sinfo = var.struct_info
    return () if sinfo is None or _has_dimensions(sinfo) else _shapes_of(sinfo)


@memoised
def _shapes_of(sinfo: rx.StructInfo) -> tuple[rx.Var, ...]:
    return tuple(node for node in walk(sinfo) if isinstance(node, rx.Var))


@user_facing
def all_vars(expr: rx.Expr) -> list[rx.Var]:
    """Every local variable in `expr`, each once, in order."""
    expect(expr, Node)
    return list(occurring_vars(expr))


@user_facing
def used_vars(expr: rx.Expr) -> list[rx.Var]:
    """The variables that `expr` uses, each once, in order, including those in struct info.

    A variable that is only bound, or only a parameter, is not used.
    """
    expect(expr, Node)
    variables: dict[rx.Var, None] = {}
    waiting = [expr] if isinstance(expr, rx.Var) else list(_used_in(expr))
    for var in waiting:
        if var not in variables:
            variables[var] = None
            waiting += _shapes(var)
    return list(variables)


def _used_in(root: Node) -> Iterator[rx.Var]:
    for node in walk(root):
        defined = tuple(_defined(node))
        for child in children(node):
            if isinstance(child, rx.Var) and child not in defined:
                yield child


def mention_counts(*roots: Node) -> Counter[Node]:
    """How often each variable occurs as an operand of a node, its definition included."""
    nodes = (node for root in roots for node in walk(root))
    return Counter(c for node in nodes for c in children(node) if isinstance(c, rx.Var))


@user_facing
def bound_vars(expr: Node) -> list[rx.Var]:
    """The variables that `expr` defines, in order: parameters and variables of bindings."""
    expect(expr, Node)
    nodes = list(walk(expr))
    defined = {var for node in nodes if isinstance(node, _DEFINING) for var in _defined(node)}
    return [node for node in nodes if isinstance(node, rx.Var) and node in defined]


@user_facing
def free_vars(expr: rx.Expr) -> list[rx.Var]:
    """The variables in `expr` that it does not define, each once, in order."""
    expect(expr, Node)
    bound = set(bound_vars(expr))
    return [var for var in occurring_vars(expr) if var not in bound]


@user_facing
def all_global_vars(expr: rx.Expr) -> list[rx.GlobalVar]:
    """The functions of the module that `expr` mentions, each once, in order."""
    expect(expr, Node)
    return [node for node in walk(expr) if isinstance(node, rx.GlobalVar)]


def _bindings(expr: Node) -> Iterator[rx.Binding]:
    for node in walk(expr):
        if isinstance(node, (rx.VarBinding, rx.MatchCast)):
            yield node


@user_facing
def get_var2val(func: rx.Function) -> dict[rx.Var, rx.Expr]:
    """The value of each variable that `func` or a nested function binds."""
    expect(func, rx.Function)
    return {b.var: b.value for b in _bindings(func) if b.var is not None}


@user_facing
def name_to_binding(func: rx.Function) -> dict[str, list[rx.Binding]]:
    """The bindings in `func` by the name of their variable."""
    expect(func, rx.Function)
    table: dict[str, list[rx.Binding]] = {}
    for binding in _bindings(func):
        if binding.var is not None:
            table.setdefault(binding.var.name_hint, []).append(binding)
    return table


def bind_equally(first: rx.Binding, later: rx.Binding) -> bool:
    """True if two bindings are of one kind, with structurally equal values and annotations."""
    if type(first) is not type(later) or not structural_equal(first.value, later.value):
        return False
    if isinstance(first, rx.MatchCast) and isinstance(later, rx.MatchCast):
        return structural_equal(first.struct_info, later.struct_info)
    return True


@user_facing
def udchain(dfb: rx.DataflowBlock) -> dict[rx.Var, list[rx.Var]]:
    """For each variable that a block binds or uses, the variables whose bindings use it."""
    expect(dfb, rx.BindingBlock)
    uses: dict[rx.Var, dict[rx.Var, None]] = {}
    for binding in dfb.bindings:
        if binding.var is None:
            continue
        uses.setdefault(binding.var, {})
        for node in walk(binding.value):
            if isinstance(node, rx.Var):
                uses.setdefault(node, {})[binding.var] = None
    return {var: list(users) for var, users in uses.items()}


@user_facing
def dataflow_liveness_analysis(block: rx.DataflowBlock) -> dict[rx.Var, tuple[int, int]]:
    """The live range of each variable of a block, as indices of bindings.

    It begins with the binding of the variable, or with -1 for one that is bound before the block.
    It ends with the last use, or with the binding if there is no use. A Var outlives the block, so
    that its range ends with the number of bindings. Taking a field of a tuple does not use it.
    """
    expect(block, rx.BindingBlock)
    ranges: dict[rx.Var, tuple[int, int]] = {}
    count = len(block.bindings)
    for index, binding in enumerate(block.bindings):
        value = binding.value
        used = free_vars(value) if isinstance(value, rx.Function) else occurring_vars(value)
        for var in () if isinstance(value, rx.TupleGetItem) else used:
            first, _ = ranges.get(var, (-1, -1))
            ranges[var] = (first, index if isinstance(var, rx.DataflowVar) else count)
        if binding.var is not None:
            last = index if isinstance(binding.var, rx.DataflowVar) else count
            ranges[binding.var] = (index, last)
    return ranges


@user_facing
def tir_vars_in_struct_info(sinfo: rx.StructInfo) -> list[tir.Var]:
    """The shape variables in `sinfo`, in order, including those that Callables bind."""
    nodes = walk(rx.as_struct_info(sinfo))
    return list(dict.fromkeys(node for node in nodes if isinstance(node, tir.Var)))


@user_facing
def definable_tir_vars_in_struct_info(sinfo: rx.StructInfo) -> list[tir.Var]:
    """The shape variables that a value of this struct info determines, in order (WF-6a).

    These are a whole dimension, member or value outside Callables.
    """
    return list(shape_vars.definable_shape_vars(rx.as_struct_info(sinfo)))


@user_facing
def collect_non_negative_expressions(sinfo: rx.StructInfo) -> list[tir.PrimExpr]:
    """The dimensions of tensors and shapes that are not literals, in order."""
    sizes = [
        size
        for node in walk(rx.as_struct_info(sinfo))
        if isinstance(node, (rx.TensorStructInfo, rx.ShapeStructInfo))
        for size in shape_vars.sizes_of(node)
    ]
    return list(dict.fromkeys(size for size in sizes if not isinstance(size, tir.IntImm)))


def _defined_by_shape(node: Node) -> tuple[tir.Var, ...]:
    """The variables that a node itself defines."""
    if isinstance(node, rx.Function):
        return shape_vars.shape_vars_of(node.params)
    if isinstance(node, rx.MatchCast):
        return shape_vars.definable_shape_vars(node.struct_info)
    return ()


@user_facing
def defined_symbolic_vars(func: rx.Function) -> list[tir.Var]:
    """The shape variables that parameters and match_casts in `func` define, in order."""
    expect(func, rx.Function)
    return list(_defined_in(func))


@memoised
def _defined_in(func: rx.Function) -> tuple[tir.Var, ...]:
    nodes = (func, *walk(func))  # the parameters of `func` come first
    defining = (node for node in nodes if isinstance(node, (rx.Function, rx.MatchCast)))
    return tuple(dict.fromkeys(var for node in defining for var in _defined_by_shape(node)))


def used_shape_vars(
    root: Node, *, of_variables: bool = True, scope: Container[tir.Var] = ()
) -> Iterator[tir.Var]:
    """The shape variables in `root` that no Callable binds, in order.

    Those in the struct info of variables are included only if `of_variables`. A Callable does not
    bind those in `scope`.
    """
    seen: set[int] = set()
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        match node:
            case rx.StructInfo():
                yield from shape_vars.free_shape_vars(node, scope)
            case tir.PrimExpr():
                yield from shape_vars.variables_of(node)
            case rx.Var(struct_info=sinfo):
                waiting += [sinfo] if of_variables and sinfo is not None else []
            case _:
                waiting += reversed(list(children(node)))


@user_facing
def free_symbolic_vars(func: rx.Function) -> list[tir.Var]:
    """The shape variables that `func` uses and does not define, in order."""
    expect(func, rx.Function)
    defined = set(defined_symbolic_vars(func))
    return list(dict.fromkeys(var for var in used_shape_vars(func) if var not in defined))
