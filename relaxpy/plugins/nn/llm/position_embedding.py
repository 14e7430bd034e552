"""Rotary position embeddings of fused queries, keys and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from relaxpy.errors import MisuseError
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.lower import create_prim_func
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.plugins.nn.core import Tensor
from relaxpy.plugins.nn.llm.rope_frequencies import PAIRS_OF_NEIGHBOURS, switch_rope_freq_func
from relaxpy.plugins.nn.ops.custom import tensor_ir_op
from relaxpy.support.entry import user_facing

_OPAQUE = 8
"""The number of the operator pattern of kernels that are not fused."""


def _computed(shape: Sequence[Any], element: Callable[..., Any], name: str) -> te.Tensor:
    made: te.Tensor = te.compute(shape, element, name=name)
    return made


class Rotary:
    """The rotation of the first `rotary_dim` dimensions of heads, by tables of angles.

    The angles of a position are the same for all heads: they are computed once, in float32.
    """

    def __init__(
        self,
        rope_scaling: Mapping[str, Any],
        theta: float | tir.PrimExpr,
        head_dim: int,
        rotary_dim: int | None,
        dtype: str,
    ) -> None:
        self.frequencies = switch_rope_freq_func(rope_scaling)
        self.neighbours = rope_scaling.get("rope_type") in PAIRS_OF_NEIGHBOURS
        self.theta = theta
        self.head_dim = head_dim
        self.rotary_dim = head_dim if rotary_dim is None else rotary_dim
        self.dtype = dtype
        if not 0 < self.rotary_dim <= head_dim or self.rotary_dim % 2:
            raise MisuseError(
                f"an even number from 2 to {head_dim} of a head's dimensions can be rotated, "
                f"found {rotary_dim}",
                about=rotary_dim,
            )

    def tables(
        self, rows: tir.PrimExpr, position: Callable[[tir.Var], tir.PrimExpr], **options: object
    ) -> tuple[te.Tensor, te.Tensor]:
        """The cosines and the sines of the angles at the positions of rows."""

        def table(which: int) -> te.Tensor:
            def angle(s: tir.Var, d: tir.Var) -> Any:
                found: Any = self.frequencies(
                    position(s), d, self.rotary_dim, self.theta, "float32", **options
                )
                expr = found[which]
                for var, value in found[2].items():
                    expr = tir.Let(var, value, expr)
                return expr

            return _computed((rows, self.rotary_dim), angle, name=("cos", "sin")[which])

        return table(0), table(1)

    def heads(
        self,
        qkv: te.Tensor,
        first: int,
        count: int,
        name: str,
        tables: tuple[te.Tensor, te.Tensor] | None = None,
        condition: tir.PrimExpr | None = None,
    ) -> te.Tensor:
        """`count` heads of `qkv`, which are rotated where there are tables and `condition` holds.

        The last axis but two of `qkv` is that of the rows of the tables.
        """
        *lead, _, _ = qkv.shape

        def element(*indices: tir.Var) -> Any:
            *row, h, d = indices
            plain: Any = qkv[(*row, h + first, d)]
            if tables is None:
                return plain
            cos, sin = cast("tuple[Any, Any]", tables)
            rotated = plain.astype("float32") * cos[row[-1], d] + (
                self._partner(qkv, (*row, h + first), d) * sin[row[-1], d]
            )
            inside = d < self.rotary_dim
            inside = inside if condition is None else ops.all_of(condition, inside)
            return intrin.if_then_else(inside, rotated.astype(self.dtype), plain)

        return _computed((*lead, count, self.head_dim), element, name=name)

    def _partner(self, x: te.Tensor, head: Sequence[tir.PrimExpr], d: tir.Var) -> tir.PrimExpr:
        """The other member of the pair that `d` is in, negative for the first of the two."""
        step = 1 if self.neighbours else self.rotary_dim // 2
        is_first = (d % 2).equal(0) if self.neighbours else d < step
        before: Any = x[(*head, d - step)]
        after: Any = x[(*head, d + step)]
        return intrin.if_then_else(is_first, -after.astype("float32"), before.astype("float32"))

    def split(
        self,
        qkv: te.Tensor,
        tables: tuple[te.Tensor, te.Tensor],
        q_heads: int,
        kv_heads: int,
        condition: tir.PrimExpr | None = None,
    ) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
        """The queries and keys, rotated, and the values."""
        return (
            self.heads(qkv, 0, q_heads, "q", tables, condition),
            self.heads(qkv, q_heads, kv_heads, "k", tables, condition),
            self.heads(qkv, q_heads + kv_heads, kv_heads, "v"),
        )


def kernel_of(params: Sequence[te.Tensor | tir.Var]) -> PrimFunc:
    """The kernel of these parameters, which is not fused with others."""
    kernel = create_prim_func(list(params))
    return kernel.without_attr("global_symbol").with_attrs(
        {"op_pattern": _OPAQUE, "tir.noalias": True}
    )


@user_facing
def llama_rope(
    qkv: Tensor,
    total_seq_len: tir.PrimExpr,
    theta: float,
    scale: float,
    num_q_heads: int,
    num_kv_heads: int,
    rope_scaling: Mapping[str, Any],
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The queries and keys of `qkv`, rotated by their positions, and the values.

    The rows are the last of `total_seq_len`; positions are multiplied by `scale`.

    Shapes:
        qkv      (batch, rows, num_q_heads + 2 * num_kv_heads, head_dim)
        results  (batch, rows, num_q_heads or num_kv_heads, head_dim)
    Errors:
        MisuseError (also ValueError): the heads are not so many, or as `switch_rope_freq_func`.
    """
    batch, rows, fused, head_dim = qkv.shape
    if fused != num_q_heads + 2 * num_kv_heads:
        raise MisuseError(
            f"expected {num_q_heads} + 2 * {num_kv_heads} heads of queries, keys and values, "
            f"found {fused}",
            about=qkv,
        )
    rotary = Rotary(rope_scaling, theta, cast(int, head_dim), rotary_dim, qkv.dtype)
    lead = (te.var("batch_size", "int64"), te.var("seq_len", "int64"))
    total = tir.Var("total_seq_len", "int64")
    data = te.placeholder((*lead, fused, head_dim), qkv.dtype, "qkv")
    tables = rotary.tables(
        lead[1], lambda s: (s + total - lead[1]).astype("float32") * ops.const(scale, "float32")
    )
    outputs = rotary.split(data, tables, num_q_heads, num_kv_heads)
    kernel = kernel_of((data, *outputs, total))
    heads = (num_q_heads, num_kv_heads, num_kv_heads)
    out = [Tensor.placeholder((batch, rows, count, head_dim), qkv.dtype) for count in heads]
    q, k, v = tensor_ir_op(kernel, "llama_rope", [qkv, total_seq_len], out)
    return q, k, v


@user_facing
def llama_rope_with_position_map(
    theta: float,
    scale: float,
    head_dim: int,
    num_q_heads: int,
    num_kv_heads: int,
    dtype: str,
    rope_scaling: Mapping[str, Any],
    rotary_dim: int | None = None,
) -> PrimFunc:
    """A kernel that splits fused heads and rotates queries and keys by positions in a tensor.

    Its parameters are the fused heads, the positions (int32), the results for queries, keys and
    values, and the number `apply_rope`: for 0 nothing is rotated. For "longrope", the last is a
    tensor of float32 factors, one for each pair of dimensions, instead. It may have others after
    these, for calls whose positions are all below `original_max_position_embeddings`.

    Shapes:
        fused heads  (rows, num_q_heads + 2 * num_kv_heads, head_dim)
        positions    (rows,)
        results      (rows, num_q_heads or num_kv_heads, head_dim)
    Errors:
        MisuseError (also ValueError): as for `switch_rope_freq_func`.
    """
    rotary = Rotary(rope_scaling, theta, head_dim, rotary_dim, dtype)
    rows = te.var("seq_len", "int64")
    data = te.placeholder((rows, num_q_heads + 2 * num_kv_heads, head_dim), dtype, "qkv")
    positions = te.placeholder((rows,), "int32", "position_map")

    def position(s: tir.Var) -> Any:
        at: Any = positions[s]
        return at.astype("float32") * ops.const(scale, "float32")

    if rope_scaling.get("rope_type") == "longrope":
        given = te.placeholder((te.var("factors", "int64"),), "float32", "ext_factors")
        r, pairs = te.reduce_axis((0, rows), "r"), rotary.rotary_dim // 2
        last = te.compute((1,), lambda _: reduce.max(positions[r], r), name="last")
        is_short = last[0] < rope_scaling["original_max_position_embeddings"]
        first = intrin.if_then_else(is_short, given.shape[0] - pairs, ops.const(0, "int64"))
        factors = te.compute((pairs,), lambda pair: given[first + pair], name="factors")
        tables = rotary.tables(rows, position, ext_factors=factors)
        outputs = rotary.split(data, tables, num_q_heads, num_kv_heads)
        return kernel_of((data, positions, *outputs, given))
    apply_rope = tir.Var("apply_rope", "int64")
    tables = rotary.tables(rows, position)
    outputs = rotary.split(data, tables, num_q_heads, num_kv_heads, apply_rope > 0)
    return kernel_of((data, positions, *outputs, apply_rope))


llama4_rope_with_position_map = llama_rope_with_position_map
"""The same: the type "llama4" in the configuration decides which dimensions are pairs."""
