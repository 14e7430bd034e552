"""Scaled dot-product attention, also within packed sequences of different lengths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.registry import R, find, register
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape
from relaxpy.ir.relax.nodes import Call, Expr, PrimValue, ShapeExpr, TensorStructInfo, Tuple, Var
from relaxpy.ir.te.topi.elementwise import accumulator
from relaxpy.ir.te.topi.shapes import tidy
from relaxpy.ir.tir import intrin, ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.ir.op import Op
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
    q, k, v = (literal_shape(sinfo) for sinfo in (query, key, value))
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
        remainder = q[2] if ops.is_const(k[2], 0) else q[2] % k[2]
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
    """True if the heads of keys are known to divide those of queries."""
    if ops.is_const(key_heads, 0):
        return ops.is_const(heads, 0)
    return rules.same(heads, key_heads) or ops.is_const(tidy(heads % key_heads), 0)


def group_size(heads: PrimExpr, key_heads: PrimExpr) -> PrimExpr:
    """The number of query heads per key head (grouped-query attention)."""
    if ops.is_const(key_heads, 0) or not _divides(key_heads, heads):
        key_heads = ops.maximum(key_heads, ops.const(1, "int64"))
    return tidy(heads // key_heads)


def _check_bias(query: TensorStructInfo, key: TensorStructInfo, bias: TensorStructInfo) -> None:
    if bias.ndim not in (-1, 4):
        raise rules.refuse(f"bias has rank 4, found {bias}", bias)
    rules.common_dtype((query, bias), "query and bias")
    q, k, sizes = (literal_shape(sinfo) for sinfo in (query, key, bias))
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
    """True if each query provably attends to a key, if there are keys.

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
        q, k = (gradients.require_shape(x, "attention") for x in (self.query, self.key))
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
        sizes = gradients.require_shape(x, "attention")
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
    query, key = (gradients.require_shape(x, "attention") for x in call.args[:2])
    if not _divides(key[2], query[2]):
        return call
    heads = _Heads(call)
    weights = heads.grouped(heads.probabilities, 1)
    result = heads.product(weights, heads.value, "bhgqk,bkhv->bqhgv")
    width = gradients.require_shape(heads.value, "attention")[3]
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
        gradients.unbroadcast(scores, bias)
        if gradients.is_differentiable(bias)
        else R.grad.no_grad(bias)
        for bias in call.args[3:]
    ]
    return [as_dtype(grad, dtype) if gradients.is_differentiable(grad) else grad for grad in out]


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


@dataclass(frozen=True, slots=True)
class _Sequence:
    """One sequence: its queries, keys and values as (batch, heads, length, width)."""

    rows: slice
    columns: slice
    query: Array
    key: Array
    value: Array
    weights: Array
    """The attention weights, (batch, heads, queries, keys)."""


@dataclass(frozen=True, slots=True)
class _Sequences:
    """The operands of a call, which is computed in float32, or in float64 if they are that wide."""

    queries: Array
    keys: Array
    values: Array
    starts: Array
    key_starts: Array
    scale: float | None
    causal_mask: Causal
    window_size: int | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The datatype of all intermediate results."""
        is_double = self.queries.dtype == np.float64
        return np.dtype(np.float64 if is_double else np.float32)

    @property
    def group(self) -> int:
        """The number of query heads per key head (grouped-query attention)."""
        heads, shared = self.queries.shape[2], self.keys.shape[2]
        if heads and (not shared or heads % shared):
            raise RuntimeCheckError(
                "the number of heads of queries is a multiple of that of keys, found "
                f"{heads} and {shared}",
                rule="DER-36",
            )
        return int(heads // max(shared, 1))

    @property
    def factor(self) -> Any:
        """The factor of the scores."""
        width = self.queries.shape[3]
        return self.dtype.type(self.scale if self.scale is not None else 1 / math.sqrt(width or 1))

    def by_head(self, x: Array, rows: slice) -> Array:
        """Some rows of (batch, length, heads, width), as (batch, heads, rows, width)."""
        return x[:, rows].astype(self.dtype).transpose(0, 2, 1, 3)

    def __iter__(self) -> Iterator[_Sequence]:
        ends, key_ends = (np.asarray(x).ravel() for x in (self.starts, self.key_starts))
        for (a, b), (c, d) in zip(pairwise(ends), pairwise(key_ends), strict=True):
            rows, columns = slice(a, b), slice(c, d)
            q = self.by_head(self.queries, rows)
            k, v = (
                np.repeat(self.by_head(x, columns), self.group, 1) for x in (self.keys, self.values)
            )
            scores = q @ k.swapaxes(2, 3) * self.factor
            weights = _softmax(scores, self._allowed(b - a, d - c))
            yield _Sequence(rows, columns, q, k, v, weights)

    def _allowed(self, queries: int, keys: int) -> Array:
        """The mask of the keys that each query attends to."""
        last = keys - queries if self.causal_mask == "BottomRight" else 0
        rows, columns = np.arange(queries)[:, None] + last, np.arange(keys)
        allowed = np.ones((queries, keys), bool)
        if self.causal_mask is not None:
            allowed &= columns <= rows
        if self.window_size is not None:
            allowed &= columns > rows - self.window_size
        return allowed


def _softmax(scores: Array, allowed: Array) -> Array:
    """The softmax over the allowed elements of each row; 0 where there is none."""
    low = np.finfo(scores.dtype).min
    top = np.where(allowed, scores, low).max(-1, keepdims=True, initial=low)
    power = np.where(allowed, np.exp(np.where(allowed, scores - top, 0)), 0)
    total = power.sum(-1, keepdims=True)
    weights: Array = np.divide(power, total, out=np.zeros_like(power), where=total != 0)
    return weights


def _attend(
    queries: Array,
    keys: Array,
    values: Array,
    seqstart_q: Array,
    max_seqlen_q: Any,
    seqstart_k: Any = (),
    max_seqlen_k: Any = (),
    scale: float | None = None,
    causal_mask: Causal = None,
    window_size: int | None = None,
) -> Array:
    """Attention within each of the sequences."""
    key_starts = seqstart_q if isinstance(seqstart_k, tuple) else seqstart_k
    operands = _Sequences(
        queries, keys, values, seqstart_q, key_starts, scale, causal_mask, window_size
    )
    out = np.zeros((*queries.shape[:3], values.shape[3]), operands.dtype)
    for s in operands:
        out[:, s.rows] = (s.weights @ s.value).transpose(0, 2, 1, 3)
    return out.astype(queries.dtype)


def _sequence_gradient(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    operator = find(cast("Op", call.op))
    assert operator is not None
    operands = operator.operands(call)
    tensors, starts = call.args[:3], (operands[3], *operands[5:6])
    grads = builder.emit(
        R.grad.attention_var_len_backward(gradient, *tensors, *starts, **call.attrs)
    )
    out: list[rx.Expr] = [rx.TupleGetItem(grads, k) for k in range(3)]
    return [*out, *map(R.grad.no_grad, call.args[3:])]


def _check_starts(**starts: rx.TensorStructInfo | None) -> None:
    for name, sinfo in starts.items():
        if sinfo is not None:
            rules.require_integer(sinfo.dtype, name, sinfo)
            if sinfo.ndim not in (-1, 1):
                raise rules.refuse(f"{name} is a vector, found {sinfo}", sinfo)


@register(
    "relax.nn.attention_var_len",
    precision_policy=0,
    pure=True,
    runtime=_attend,
    gradient=_sequence_gradient,
)
def attention_var_len(
    queries: rx.TensorStructInfo,
    keys: rx.TensorStructInfo,
    values: rx.TensorStructInfo,
    seqstart_q: rx.TensorStructInfo,
    max_seqlen_q: rx.TensorStructInfo | rx.PrimStructInfo,
    seqstart_k: rx.TensorStructInfo | None = None,
    max_seqlen_k: rx.TensorStructInfo | rx.PrimStructInfo | None = None,
    scale: float | None = None,
    causal_mask: Causal = None,
    window_size: int | None = None,
) -> rx.TensorStructInfo:
    """`attention` within each of several packed (concatenated) sequences.

    Sequence i has the queries from seqstart_q[i] to seqstart_q[i + 1], and likewise the keys, by
    default those of the queries. The largest lengths are not used.

    Shapes:
        queries, keys, values   as those of `attention`, the sequences joined
        seqstart_q, seqstart_k  (sequences + 1,), integers in ascending order, from 0 on
        result                  as that of `attention`
    Errors:
        StructInfoError: as for `attention`, or the starts are known not to be integers or a vector.
    """
    check_window(window_size)
    _check_starts(seqstart_q=seqstart_q, seqstart_k=seqstart_k)
    return check_operands(queries, keys, values)


def _attend_backward(
    output_grad: Array,
    queries: Array,
    keys: Array,
    values: Array,
    seqstart_q: Array,
    seqstart_k: Any = (),
    scale: float | None = None,
    causal_mask: Causal = None,
    window_size: int | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients of queries, keys and values, sequence by sequence."""
    key_starts = seqstart_q if isinstance(seqstart_k, tuple) else seqstart_k
    operands = _Sequences(
        queries, keys, values, seqstart_q, key_starts, scale, causal_mask, window_size
    )
    out = tuple(np.zeros(x.shape, operands.dtype) for x in (queries, keys, values))

    def by_key_head(gradient: Array) -> Array:
        """The gradients of the heads of queries that share a head of keys, added."""
        batch, heads, length, width = gradient.shape
        shape = (batch, heads // max(operands.group, 1), operands.group, length, width)
        total: Array = gradient.reshape(shape).sum(2).transpose(0, 2, 1, 3)
        return total

    for s in operands:
        g = operands.by_head(output_grad, s.rows)
        to_weights = g @ s.value.swapaxes(2, 3)
        mean = (to_weights * s.weights).sum(-1, keepdims=True)
        to_scores = s.weights * (to_weights - mean) * operands.factor
        out[0][:, s.rows] = (to_scores @ s.key).transpose(0, 2, 1, 3)
        out[1][:, s.columns] = by_key_head(to_scores.swapaxes(2, 3) @ s.query)
        out[2][:, s.columns] = by_key_head(s.weights.swapaxes(2, 3) @ g)
    query, key, value = (x.astype(queries.dtype) for x in out)
    return query, key, value


def _gradient_backward(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    grads = second_gradients(builder, call, gradients.tuple_fields(gradient, 3))
    return [*grads, *map(R.grad.no_grad, call.args[4:])]


@register(
    "relax.grad.attention_var_len_backward",
    pure=True,
    runtime=_attend_backward,
    gradient=_gradient_backward,
)
def attention_var_len_backward(
    output_grad: rx.TensorStructInfo,
    queries: rx.TensorStructInfo,
    keys: rx.TensorStructInfo,
    values: rx.TensorStructInfo,
    seqstart_q: rx.TensorStructInfo,
    seqstart_k: rx.TensorStructInfo | None = None,
    scale: float | None = None,
    causal_mask: Causal = None,
    window_size: int | None = None,
) -> rx.TupleStructInfo:
    """The gradients of queries, keys and values in `nn.attention_var_len`.

    Shapes:
        output_grad     as the result of `nn.attention_var_len`
        queries, keys, values, seqstart_q, seqstart_k  as for `nn.attention_var_len`
        result          a tuple of tensors as queries, keys and values
    Errors:
        StructInfoError: as for `nn.attention_var_len`, or output_grad has another rank or datatype.
    """
    check_window(window_size)
    _check_starts(seqstart_q=seqstart_q, seqstart_k=seqstart_k)
    check_operands(queries, keys, values)
    rules.joint_dtype(output_grad, queries, ("output_grad", "queries"))
    if output_grad.ndim not in (-1, 4):
        raise rules.refuse(f"output_grad has rank 4, found {output_grad}", output_grad)
    return rx.TupleStructInfo((queries, keys, values))


_NAME = "attention_var_len_backward"


def _positions(x: Expr, starts: Any, *, from_end: bool) -> tuple[Any, Any, Any]:
    """For each row of x its sequence, its position there, and whether it is in a sequence."""
    bounds = R.astype(starts, "int64")
    rows = R.arange(PrimValue(gradients.require_shape(x, _NAME)[1]))
    sequence = R.bucketize(rows, bounds, right=True)
    anchors = R.take(bounds, sequence if from_end else sequence - 1, axis=0, mode="clip")
    return sequence, rows - anchors, R.less(rows, R.max(bounds))


def _allowed_in_sequences(call: Call, queries: Expr, keys: Expr, starts: Sequence[Expr]) -> Any:
    """The mask (queries, keys) of the keys that each query attends to."""
    causal, window = call.attrs["causal_mask"], call.attrs["window_size"]
    from_end = causal == "BottomRight"
    sequence, row, is_query = _positions(queries, starts[0], from_end=from_end)
    key_sequence, column, _ = _positions(keys, starts[-1], from_end=from_end)
    row = R.expand_dims(row, 1)
    allowed = R.equal(R.expand_dims(sequence, 1), key_sequence)
    allowed = R.logical_and(allowed, R.expand_dims(is_query, 1))
    if causal is not None:
        allowed = R.logical_and(allowed, R.less_equal(column, row))
    if window is not None:
        allowed = R.logical_and(allowed, R.greater(column, row - window))
    return allowed


def second_gradients(builder: BlockBuilder, call: Call, moves: Sequence[Expr]) -> list[Expr]:
    """The gradients of a call's first four operands, from those of its three results.

    With the weights P, the call has the gradients of <g, P V>. Those of its operands are the
    gradients of their scalar product with `moves`: of how <g, P V> changes if queries, keys and
    values move in these directions.
    """
    gradient, queries, keys, values, *starts = call.args
    wide = accumulator(queries.struct_info.dtype)  # type: ignore[union-attr]
    sizes, key_sizes = gradients.require_shape(queries, _NAME), gradients.require_shape(keys, _NAME)
    groups = None if rules.same(sizes[2], key_sizes[2]) else group_size(sizes[2], key_sizes[2])

    def by_head(x: Any, *, shared: bool = False) -> Any:
        """(batch, length, heads, width) as (batch, heads, length, width)."""
        x = as_dtype(x, wide)
        if shared and groups is not None:
            batch, length, heads, width = gradients.require_shape(x, _NAME)
            x = R.expand_dims(x, 3)
            x = R.broadcast_to(x, ShapeExpr((batch, length, heads, groups, width)))
            x = R.reshape(x, ShapeExpr((batch, length, sizes[2], width)))
        return builder.emit(R.permute_dims(x, [0, 2, 1, 3]))

    def like(x: Any, operand: Any, *, shared: bool = False) -> Any:
        """The gradient of an operand from that by head."""
        x = R.permute_dims(x, [0, 2, 1, 3])
        if shared and groups is not None:
            batch, length, heads, width = gradients.require_shape(operand, _NAME)
            x = R.sum(R.reshape(x, ShapeExpr((batch, length, heads, groups, width))), 3)
        return as_dtype(x, operand.struct_info.dtype)

    def transposed(x: Any) -> Any:
        return R.permute_dims(x, [0, 1, 3, 2])

    def mean(x: Any) -> Any:
        """The mean along keys, weighted as the values are."""
        return builder.emit(R.sum(x * weights, -1, keepdims=True))

    g, q, to_q = (by_head(x) for x in (gradient, queries, moves[0]))
    k, v, to_k, to_v = (by_head(x, shared=True) for x in (keys, values, *moves[1:]))
    factor = score_factor(call.attrs["scale"], sizes[3], wide)
    allowed = builder.emit(_allowed_in_sequences(call, queries, keys, starts))
    scores = builder.emit(R.matmul(q, transposed(k)) * factor)
    low = R.full_like(scores, -math.inf)
    weights: Any = R.nn.softmax(R.where(allowed, scores, low), -1)
    # A query that attends to no key gets 0.
    weights = builder.emit(R.where(allowed, weights, R.zeros_like(weights)))

    moved: Any = builder.emit(
        (R.matmul(to_q, transposed(k)) + R.matmul(q, transposed(to_k))) * factor
    )
    moved_mean = mean(moved)
    moved_weights: Any = builder.emit(weights * (moved - moved_mean))
    to_weights: Any = builder.emit(R.matmul(g, transposed(v)))
    centred: Any = builder.emit(to_weights - mean(to_weights))
    to_scores: Any = builder.emit(weights * centred * factor)
    again: Any = builder.emit(
        moved * centred - moved_mean * to_weights + R.matmul(g, transposed(to_v))
    )
    again = builder.emit(weights * (again - mean(again)) * factor)
    return [
        like(R.matmul(moved_weights, v) + R.matmul(weights, to_v), gradient),
        like(R.matmul(again, k) + R.matmul(to_scores, to_k), queries),
        like(
            R.matmul(transposed(again), q) + R.matmul(transposed(to_scores), to_q),
            keys,
            shared=True,
        ),
        like(R.matmul(transposed(moved_weights), g), values, shared=True),
    ]
