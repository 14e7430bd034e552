"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes import Call, Expr, PrimValue, ShapeExpr, TensorStructInfo, Tuple, Var
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.gradients import is_differentiable, require_shape, unbroadcast
from relaxpy.ir.relax.op.definition.registry import R, register
from relaxpy.ir.te.topi.elementwise import accumulator
from relaxpy.ir.te.topi.shapes import tidy
from relaxpy.ir.tir import intrin, ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Causal: TypeAlias = Literal["TopLeft", "BottomRight"] | None


def check_operands(
    query: TensorStructInfo, key: TensorStructInfo, value: TensorStructInfo
) -> TensorStructInfo:
    """The struct info of attention to keys and values.

    Errors:
        StructInfoError: the operands do not fit each other.
    """
    named = {"query": query, "key": key, "value": value}
    for name, sinfo in named.items():
        rules.require_float(sinfo, name)
        if sinfo.ndim not in (-1, 4):
            raise rules.refuse(
                f"{name} has rank 4 (batch, sequence, heads, width), found {sinfo}", sinfo
            )
    rules.common_dtype((query, key, value), "query, key and value")
    vdevice = rules.joint_vdevice((query, key, value), strict=False)
    q, k, v = (rules.literal_shape(sinfo) for sinfo in (query, key, value))
    pairs = [
        ("batches", "query", "key", 0, q, k),
        ("batches", "query", "value", 0, q, v),
        ("sequence lengths", "key", "value", 1, k, v),
        ("heads", "key", "value", 2, k, v),
        ("head widths", "query", "key", 3, q, k),
    ]
    for noun, first, second, axis, a, b in pairs:
        if a is not None and b is not None and rules.differ(a[axis], b[axis]):
            raise rules.refuse(
                f"the {noun} of {first} and {second} are equal, found {rules.shown(a[axis])} and "
                f"{rules.shown(b[axis])}: {first} is {rules.shape_text(a)}, {second} is "
                f"{rules.shape_text(b)}",
                named[second],
            )
    if q is not None and k is not None:
        remainder = q[2] if ops.is_const(k[2], 0) else ops.floormod(q[2], k[2])
        if isinstance(remainder, IntImm) and remainder.value:
            raise rules.refuse(
                f"the heads of key divide those of query, found {rules.shown(k[2])} and "
                f"{rules.shown(q[2])}: "
                f"query is {rules.shape_text(q)}, key is {rules.shape_text(k)}",
                key,
            )
    if q is None or v is None:
        return rules.tensor(None, query.dtype, vdevice, 4)
    return rules.tensor((*q[:3], v[3]), query.dtype, vdevice)


def _divides(key_heads: PrimExpr, heads: PrimExpr) -> bool:
    """Return whether the heads of keys are known to divide those of queries."""
    if ops.is_const(key_heads, 0):
        return ops.is_const(heads, 0)
    return rules.same(heads, key_heads) or ops.is_const(tidy(ops.floormod(heads, key_heads)), 0)


def group_size(heads: PrimExpr, key_heads: PrimExpr) -> PrimExpr:
    """The number of query heads per key head (grouped-query attention)."""
    if ops.is_const(key_heads, 0) or not _divides(key_heads, heads):
        key_heads = ops.maximum(key_heads, ops.const(1, "int64"))
    return tidy(ops.floordiv(heads, key_heads))


def _check_bias(query: TensorStructInfo, key: TensorStructInfo, bias: TensorStructInfo) -> None:
    if bias.ndim not in (-1, 4):
        raise rules.refuse(f"bias has rank 4, found {bias}", bias)
    rules.common_dtype((query, bias), "query and bias")
    q, k, sizes = (rules.literal_shape(sinfo) for sinfo in (query, key, bias))
    if q is None or k is None or sizes is None:
        return
    for axis, (size, wanted) in enumerate(zip(sizes, (q[0], q[2], q[1], k[1]), strict=True)):
        if not rules.is_one(size) and rules.differ(size, wanted):
            raise rules.refuse(
                f"dimension {axis} of bias {rules.shape_text(sizes)} is 1 or "
                f"{rules.shown(wanted)}, found "
                f"{rules.shown(size)}: query is {rules.shape_text(q)}, key is "
                f"{rules.shape_text(k)}",
                bias,
            )


def _allowed(call: Call, queries: Any, keys: Any) -> Any:
    """The mask (queries, keys) of the keys that each query attends to; None for all keys."""
    causal, window = call.attrs["causal_mask"], cast("int | None", call.attrs["window_size"])
    if causal is None and window is None:
        return None
    rows = R.expand_dims(R.arange(PrimValue(queries)), 1)
    if causal == "BottomRight":
        rows = rows + PrimValue(tidy(ops.sub(keys, queries)))
    columns = R.expand_dims(R.arange(PrimValue(keys)), 0)
    allowed = None if causal is None else R.less_equal(columns, rows)
    if window is not None:
        near = R.greater(columns, rows - window)
        allowed = near if allowed is None else R.logical_and(allowed, near)
    return allowed


def _attends_everywhere(call: Call, queries: Any, keys: Any) -> bool:
    """Return whether each query provably attends to a key, if there are keys.

    With the causal mask at the top left it attends to the first one, otherwise to its own.
    """
    window = cast("int | None", call.attrs["window_size"])
    if window is None and call.attrs["causal_mask"] == "TopLeft":
        return True
    more = tidy(ops.sub(keys, queries))
    return (window is None or window > 0) and isinstance(more, IntImm) and more.value >= 0


def as_dtype(x: Any, dtype: DataType) -> Any:
    """A tensor in a datatype."""
    return x if x.struct_info.dtype == dtype else R.astype(x, dtype)


def score_factor(scale: Any, width: PrimExpr, dtype: DataType) -> Any:
    """The factor of scores: by default 1 / sqrt(width of a head)."""
    if scale is not None:
        return scale
    if isinstance(width, IntImm):
        return 1 / math.sqrt(width.value) if width.value else 1.0
    return PrimValue(intrin.rsqrt(ops.cast_to(width, dtype)))


class _Heads:
    """The operands of attention with the heads of queries in groups, one for each head of keys.

    Narrow floats become float32, in which scores do not overflow; results are rounded once.
    """

    def __init__(self, call: Call) -> None:
        wide = accumulator(cast("Any", call.args[0]).struct_info.dtype)
        self.query, self.key, self.value, *bias = (
            x if is_absent(x) else as_dtype(x, wide) for x in cast("Any", call.args)
        )
        q, k = (require_shape(x, "attention") for x in (self.query, self.key))
        self.shape: rules.Sizes = q
        self.weights = (q[0], q[2], q[1], k[1])
        self.groups = None if rules.same(q[2], k[2]) else (k[2], group_size(q[2], k[2]))
        self.scale = score_factor(call.attrs["scale"], q[3], wide)
        scores = self.product(self.grouped(self.query, 2), self.key, "bqhgd,bkhd->bhgqk")
        scores = self.ungrouped(scores, self.weights) * self.scale
        if bias and not is_absent(bias[0]):
            scores = scores + bias[0]
        allowed = _allowed(call, q[1], k[1])
        if allowed is not None:
            low = R.full_like(scores, -math.inf)
            scores = R.where(allowed, scores, low)
        self.probabilities = R.nn.softmax(scores, -1)
        if allowed is not None and not _attends_everywhere(call, q[1], k[1]):
            # A query that attends to no key gets 0.
            zeros = R.zeros_like(self.probabilities)
            self.probabilities = R.where(allowed, self.probabilities, zeros)

    def grouped(self, x: Any, axis: int) -> Any:
        """`x` with `axis`, the heads of queries, divided into heads of keys and groups.

        There are no groups if each head of queries has its own keys.
        """
        if self.groups is None:
            return x
        sizes = require_shape(x, "attention")
        return R.reshape(x, ShapeExpr((*sizes[:axis], *self.groups, *sizes[axis + 1 :])))

    def ungrouped(self, x: Any, sizes: rules.Sizes) -> Any:
        return x if self.groups is None else R.reshape(x, ShapeExpr(sizes))

    def product(self, a: Any, b: Any, subscripts: str) -> Any:
        """The contraction of `a` and `b`; the label g is that of groups."""
        return R.einsum((a, b), subscripts if self.groups else subscripts.replace("g", ""))


def is_absent(operand: Expr) -> bool:
    """True if an operand is the empty tuple, which keeps the position of an omitted operand."""
    return isinstance(operand, Tuple) and not operand.fields


def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    query, key = (require_shape(x, "attention") for x in call.args[:2])
    if not _divides(key[2], query[2]):
        return call
    heads = _Heads(call)
    weights = heads.grouped(heads.probabilities, 1)
    result = heads.product(weights, heads.value, "bhgqk,bkhv->bqhgv")
    width = require_shape(heads.value, "attention")[3]
    result = heads.ungrouped(result, (*heads.shape[:3], width))
    return cast("Expr", as_dtype(result, cast("TensorStructInfo", call.struct_info).dtype))


def _gradient(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    heads = _Heads(call)
    dtype = cast("Any", var).struct_info.dtype
    g = heads.grouped(as_dtype(gradient, heads.query.struct_info.dtype), 2)
    weights = heads.grouped(heads.probabilities, 1)
    value_grad = heads.product(weights, g, "bhgqk,bqhgv->bkhv")
    back = heads.product(g, heads.value, "bqhgv,bkhv->bhgqk")
    back = heads.ungrouped(back, heads.weights)
    mean = R.sum(back * heads.probabilities, -1, keepdims=True)
    scores = heads.probabilities * (back - mean)
    scaled = heads.grouped(scores * heads.scale, 1)
    query_grad = heads.product(scaled, heads.key, "bhgqk,bkhd->bqhgd")
    key_grad = heads.product(scaled, heads.grouped(heads.query, 2), "bhgqk,bqhgd->bkhd")
    out = [heads.ungrouped(query_grad, heads.shape), key_grad, value_grad]
    out += [
        unbroadcast(scores, bias) if is_differentiable(bias) else R.grad.no_grad(bias)
        for bias in call.args[3:]
    ]
    return [as_dtype(grad, dtype) if is_differentiable(grad) else grad for grad in out]


def _with_bias(arguments: dict[str, Any]) -> str | None:
    bias = arguments["bias"]
    return None if bias is None or is_absent(bias) else "relax.nn.attention_bias"


@register(
    "relax.nn.attention",
    precision_policy=0,
    pure=True,
    legalize=_legalize,
    gradient=_gradient,
    variant=_with_bias,
)
def attention(
    query: TensorStructInfo,
    key: TensorStructInfo,
    value: TensorStructInfo,
    bias: TensorStructInfo | None = None,
    scale: float | None = None,
    causal_mask: Causal = None,
    window_size: int | None = None,
) -> TensorStructInfo:
    """softmax(query @ key.T * scale + bias) @ value for each head.

    The scale is 1 / sqrt(head width) by default. With "TopLeft", query i attends to the keys up to
    i; with "BottomRight", the last query attends to all keys. With a window, only to so many keys
    before and including its own. With a bias the call is one of `attention_bias`.

    Shapes:
        query   (batch, queries, heads, width)
        key     (batch, keys, key heads, width); the key heads divide the heads
        value   (batch, keys, key heads, value width)
        bias    broadcasts to (batch, heads, queries, keys)
        result  (batch, queries, heads, value width)
    Errors:
        StructInfoError: an operand has another rank than 4 or holds no floats, datatypes differ, or
            known sizes do not belong together.
    Rule:
        Vaswani et al., Attention Is All You Need, NeurIPS 2017; groups of heads: Ainslie et al.,
        EMNLP 2023.
    """
    check_window(window_size)
    result = check_operands(query, key, value)
    if bias is not None:
        _check_bias(query, key, bias)
    return result


def check_window(window_size: int | None) -> None:
    """Check that a window has keys.

    Errors:
        StructInfoError: it is not positive.
    """
    if window_size is not None and window_size < 1:
        raise rules.refuse(f"window_size is positive, found {window_size}", window_size)


@register(
    "relax.nn.attention_bias", precision_policy=0, pure=True, legalize=_legalize, gradient=_gradient
)
def attention_bias(
    query: TensorStructInfo,
    key: TensorStructInfo,
    value: TensorStructInfo,
    bias: TensorStructInfo,
    scale: float | None = None,
    causal_mask: Causal = None,
    window_size: int | None = None,
) -> TensorStructInfo:
    """As `attention`, with a bias.

    Shapes:
        query, key, value, bias, result  as those of `attention`
    Errors:
        StructInfoError: as for `attention`.
    """
    check_window(window_size)
    result = check_operands(query, key, value)
    _check_bias(query, key, bias)
    return result
