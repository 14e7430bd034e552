"""The leaves of decision trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.core.dtype import FLOAT32, FLOAT64, INT64, Array, DataType
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.registry import register
from relaxpy.ir.relax.known import literal_shape, tensor_of
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.text import T, kernel_text, written
from relaxpy.ir.tir import intrin, ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Select

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

_FIELDS: Final = 4
_TREES: Final = 8
"""The walks of a row that alternate, so that a CPU waits for none of them."""
_ROWS: Final = 1024
"""The rows that walk some trees before the next ones, while these stay in a cache."""
_STEPS: Final = 4
"""The steps between tests whether all walks have ended."""


def _checked(indices: Array, size: int, what: str) -> Array:
    outside = indices[(indices < 0) | (indices >= size)]
    if outside.size:
        raise RuntimeCheckError(f"tree_leaves: {what} {outside[0]} is not below {size}")
    return indices


def _walked(x: Array, nodes: Array, roots: Array, depth: int = 0) -> Array:
    """`tree_leaves` by steps of all walks that have not ended."""
    feature, limit, no, yes = np.ascontiguousarray(nodes.T)
    limit = limit.view(x.dtype)
    rows, trees = len(x), len(roots)
    leaf = np.tile(roots, rows)
    walks = np.arange(rows * trees)
    for _ in range(depth):
        if not walks.size:
            break
        at = _checked(leaf[walks], len(nodes), "node")
        value = x[walks // trees, _checked(feature[at], x.shape[1], "feature")]
        after = np.where(value <= limit[at], yes[at], no[at])
        leaf[walks] = after
        walks = walks[after != at]
    return leaf.reshape(rows, trees)


def walked(x: Tensor, nodes: Tensor, roots: Tensor, depth: int) -> Any:
    """The kernel of `tree_leaves`."""
    shape = x.shape[0], roots.shape[0]
    inputs = {"x": x, "nodes": nodes, "roots": roots}
    # The last steps come in fours, so the first ones are those that remain, and some more.
    first = depth if depth <= 2 * _STEPS else _STEPS + depth % _STEPS
    options = {"first": first, "more": (depth - first) // _STEPS}
    outputs = {"leaves": (shape, str(roots.dtype))}
    [found] = written("tree_leaves", outputs, inputs, _walk, **options)
    return found


@kernel_text
def _walk(x: Any, nodes: Any, roots: Any, leaves: Any, first: int, more: int) -> None:
    rows, trees = T.meta_var(leaves.shape)
    groups, width = T.meta_var(_groups(trees))
    blocks = T.meta_var((rows + (_ROWS - 1)) // _ROWS)
    # Groups of trees are independent of each other.
    node, last = [T.decl_buffer((groups, width), leaves.dtype) for _ in range(2)]
    moved = T.decl_buffer((groups,), leaves.dtype)
    for group in T.serial(groups):
        for block in T.serial(blocks):
            for row in T.serial(block * _ROWS, block * _ROWS + _ROWS):
                if row >= rows:
                    break
                for n in T.serial(width):
                    node[group, n] = roots[T.min(group * width + n, trees - 1)]
                for _ in T.serial(first):
                    for n in T.serial(width):
                        node[group, n] = _next(x, nodes, row, node[group, n])
                if more:
                    moved[group] = 1
                    for _ in T.serial(more):
                        if moved[group] != 0:
                            for _ in T.serial(_STEPS - 1):
                                for n in T.serial(width):
                                    node[group, n] = _next(x, nodes, row, node[group, n])
                            moved[group] = 0
                            for n in T.serial(width):
                                last[group, n] = node[group, n]
                                node[group, n] = _next(x, nodes, row, node[group, n])
                                moved[group] = moved[group] | (last[group, n] ^ node[group, n])
                _store_from(0, node, leaves, row, group)


@kernel_text
def _store_from(first: int, node: Any, leaves: Any, row: PrimExpr, group: PrimExpr) -> None:
    """Store the leaves of a group, the last of which may have fewer trees.

    Each has an index without another variable, so it is known that no other group stores there.
    """
    width = T.meta_var(node.shape[1].value)
    if first < width:
        if group * width + first < leaves.shape[1]:
            leaves[row, group * width + first] = node[group, first]
        _store_from(first + 1, node, leaves, row, group)


def _groups(trees: IntImm) -> tuple[PrimExpr, PrimExpr]:
    """The number of groups of trees, and how many of them a group has, in the last one or fewer."""
    groups = -(-trees.value // _TREES)
    return ops.const(groups, "int64"), ops.const(-(-trees.value // groups), "int64")


def _next(x: Any, nodes: Any, row: PrimExpr, node: PrimExpr) -> PrimExpr:
    """The node after another one."""
    limit = intrin.reinterpret(str(x.dtype), nodes[node, 1])
    return Select(x[row, nodes[node, 0]] <= limit, nodes[node, 3], nodes[node, 2])


def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel of trees whose number is known; others are a call of the runtime."""
    operands = [tensor_of(builder.struct_info_of(arg)) for arg in call.args]
    if any(o.dtype.is_void or literal_shape(o) is None for o in operands):
        return call
    [trees] = literal_shape(operands[2]) or [None]
    if not isinstance(trees, IntImm) or not trees.value:
        return call
    return rules.te_kernel(builder, walked, "tree_leaves", *call.args, call.attrs["depth"])


@register(
    "relax.tree_leaves",
    pure=True,
    runtime=_walked,
    legalize_in_loops=_legalize,
    gradient=gradients.no_gradient,
)
def tree_leaves(
    x: TensorStructInfo, nodes: TensorStructInfo, roots: TensorStructInfo, depth: int
) -> TensorStructInfo:
    """The nodes in which walks from the roots of decision trees are after `depth` steps.

    A node is a row of `nodes`: a feature, the bits of a limit, the node after this one if the
    feature is above the limit or NaN, and the node after this one otherwise. A leaf is the node
    after itself on both sides; its feature, which walks that have ended read, is one of x.

    Shapes:
        x       (n, features), float32 or float64
        nodes   (m, 4), integers of as many bits as x has
        roots   (trees,), as nodes
        result  (n, trees), as nodes
    Errors:
        StructInfoError: an operand has another rank or datatype, a node has not 4 numbers, or
            `depth` is negative.
    """
    if not x.dtype.is_void and x.dtype not in (FLOAT32, FLOAT64):
        raise rules.refuse_type(f"x holds float32 or float64, found {x}", x, hint=rules.CONVERT)
    kind = nodes.dtype if x.dtype.is_void else DataType(f"int{x.dtype.bits}")
    for name, sinfo, ndim in (("x", x, 2), ("nodes", nodes, 2), ("roots", roots, 1)):
        if sinfo.ndim not in (-1, ndim):
            raise rules.refuse(f"{name} has rank {ndim}, found {sinfo}", sinfo)
        if sinfo is not x and not (kind.is_void or sinfo.dtype.is_void or sinfo.dtype == kind):
            raise rules.refuse_type(f"{name} holds {kind}, found {sinfo}", sinfo)
    table = literal_shape(nodes)
    if table is not None and rules.differ(table[1], ops.const(_FIELDS, INT64)):
        raise rules.refuse(f"a node has {_FIELDS} numbers, found {nodes}", nodes)
    if depth < 0:
        raise rules.refuse(f"depth is 0 or more, found {depth}", depth)
    found = roots.dtype if kind.is_void else kind
    vdevice = rules.joint_vdevice((x, nodes, roots), strict=False)
    rows, trees = literal_shape(x), literal_shape(roots)
    shape = None if rows is None or trees is None else (rows[0], trees[0])
    return rules.tensor(shape, found, vdevice, 2)
