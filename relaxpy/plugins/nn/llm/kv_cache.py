"""Caches of keys and values in pages, as models that are exported use them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Literal

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.ops.call import call_dps_packed, call_pure_packed
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.plugins.nn.core import Object, Tensor, current_builder
from relaxpy.plugins.nn.llm.position_embedding import llama_rope_with_position_map
from relaxpy.plugins.nn.llm.tree_attention import attention_of_rows, heads_of_each, with_strides
from relaxpy.support.entry import user_facing

_BUILTIN = "vm.builtin.attention_kv_cache_"


class AttnKind(IntEnum):
    """The kind of attention of a layer: of many heads, latent, or in a sliding window."""

    MHA = 0
    MLA = 1
    MHA_SLIDING = 3


class RopeMode(IntEnum):
    """When positions rotate queries and keys: never, when they are appended, when they are read."""

    NONE = 0
    NORMAL = 1
    INLINE = 2


Kind = Literal["mha", "mla", "mha_sliding"]


def _kind(kind: Any) -> int:
    try:
        return int(AttnKind[str(kind).upper()] if isinstance(kind, str) else AttnKind(kind))
    except (KeyError, ValueError):
        raise MisuseError(
            f"the kind of attention is mha, mla or mha_sliding, found {kind!r:.40}", about=kind
        ) from None


def _tensor(shape: Any, dtype: Any) -> rx.TensorStructInfo:
    return rx.TensorStructInfo(shape, dtype)


def _number(value: Any) -> rx.PrimValue:
    return rx.PrimValue(value)


def _shape(sizes: Any) -> rx.ShapeExpr:
    return rx.ShapeExpr(sizes)


def _emitted(value: rx.Expr) -> rx.Var:
    return current_builder().emit(value)


class PagedKVCache(Object):
    """The keys and values of many sequences, in pages, as a value of the exported method.

    The `extern_mods`, compiled modules that it needs, are empty.
    """

    extern_mods: ClassVar[Sequence[object]] = ()

    def _dps(self, name: str, layer: int, sm_scale: float, *rest: Tensor, out: Any) -> rx.Var:
        args = (self._expr, _number(layer), _number(sm_scale), *(t._expr for t in rest))
        return _emitted(call_dps_packed(_BUILTIN + name, args, out))

    def attention_with_fused_qkv(
        self,
        layer_id: int,
        qkv: Tensor,
        num_qo_heads: int,
        sm_scale: float,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Append the keys and values of tokens, and attend with their queries to all of a sequence.

        The weights of a head are those of the softmax of its scores and its sink, which has no
        value.

        Shapes:
            qkv     (batch, rows, num_qo_heads + 2 * kv heads, d), or without the batch
            sinks   (num_qo_heads,)
            result  (batch, rows, num_qo_heads, d), or without the batch
        """
        *outer, heads, d = qkv.shape
        rows = math.prod(outer)
        out = _tensor((rows, num_qo_heads, d), qkv.dtype)
        operands = [qkv if len(outer) == 1 else qkv.reshape(rows, heads, d)]
        operands += [] if sinks is None else [sinks]
        found = self._dps("attention_with_fused_qkv", layer_id, sm_scale, *operands, out=out)
        result = Tensor(_expr=found)
        return result if len(outer) == 1 else result.reshape(*outer, num_qo_heads, d)

    def attention_with_shared_kv(
        self, source_layer_id: int, q: Tensor, current_k: Tensor, current_v: Tensor, sm_scale: float
    ) -> Tensor:
        """Attend to the tokens of another layer, which has appended those of the call.

        Shapes:
            q                     (batch, rows, heads, d)
            current_k, current_v  (batch, rows, kv heads, d) and (batch, rows, kv heads, dv)
            result                (batch, rows, heads, dv)
        """
        b, s, heads, _ = q.shape
        parts = [t.reshape(b * s, t.shape[2], t.shape[3]) for t in (q, current_k, current_v)]
        dv = current_v.shape[3]
        out = _tensor((b * s, heads, dv), q.dtype)
        found = self._dps("attention_with_shared_kv", source_layer_id, sm_scale, *parts, out=out)
        return Tensor(_expr=found).reshape(b, s, heads, dv)

    def self_attention(
        self, layer_id: int, q: Tensor, k: Tensor, v: Tensor, sm_scale: float
    ) -> tuple[Tensor, Tensor]:
        """Attend to the tokens of the call only; the second result is log2 of the sums of weights.

        Shapes:
            q        (batch, rows, heads, d)
            k, v     (batch, rows, kv heads, d) and (batch, rows, kv heads, dv)
            results  (batch, rows, heads, dv) and (batch, rows, heads)
        """
        b, s, heads, _ = q.shape
        parts = [t.reshape(b * s, t.shape[2], t.shape[3]) for t in (q, k, v)]
        return self._pair("self_attention", layer_id, sm_scale, parts, (b, s, heads, v.shape[3]))

    def cross_attention(
        self, layer_id: int, q: Tensor, v_head_dim: int, sm_scale: float
    ) -> tuple[Tensor, Tensor]:
        """Attend to the tokens before the call; results as of `self_attention`."""
        b, s, heads, d = q.shape
        parts = [q.reshape(b * s, heads, d)]
        return self._pair("cross_attention", layer_id, sm_scale, parts, (b, s, heads, v_head_dim))

    def _pair(
        self, name: str, layer: int, scale: float, parts: Sequence[Tensor], shape: Sequence[Any]
    ) -> tuple[Tensor, Tensor]:
        b, s, heads, dv = shape
        infos = [_tensor((b * s, heads, dv), parts[0].dtype), _tensor((b * s, heads), "float32")]
        both = self._dps(name, layer, scale, *parts, out=infos)
        first, second = (Tensor(_expr=_emitted(rx.TupleGetItem(both, k))) for k in range(2))
        return first.reshape(b, s, heads, dv), second.reshape(b, s, heads)

    def append_mla_kv(self, layer_id: int, kv: Tensor) -> PagedKVCache:
        """Append what layers of multi-head latent attention keep, (batch, rows, 1, d) or without 1.

        The result is the cache, which later calls have to use.
        """
        rows = kv.reshape(kv.shape[0] * kv.shape[1], kv.shape[-1])
        call = call_pure_packed(
            f"{_BUILTIN}append_mla_kv",
            self._expr,
            _number(layer_id),
            rows._expr,
            sinfo_args=rx.ObjectStructInfo(),
        )
        return PagedKVCache(_expr=call, _name="paged_kv_cache")

    def merge_attn_output_inplace(
        self,
        o_self_attn: Tensor,
        lse_self_attn: Tensor,
        o_cross_attn: Tensor,
        lse_cross_attn: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Attention to the tokens of both results: the first one changes, and is returned."""
        b, s, heads, dv = o_self_attn.shape
        outs = [t.reshape(b * s, heads, dv) for t in (o_self_attn, o_cross_attn)]
        sums = [t.reshape(b * s, heads) for t in (lse_self_attn, lse_cross_attn)]
        operands = [t._expr for pair in zip(outs, sums, strict=True) for t in pair]
        infos = (_tensor((b * s, heads, dv), o_self_attn.dtype), _tensor((b * s, heads), "float32"))
        both = _emitted(
            call_pure_packed(
                f"{_BUILTIN}merge_attn_output_inplace",
                self._expr,
                *operands,
                sinfo_args=rx.TupleStructInfo(infos),
            )
        )
        first, second = (Tensor(_expr=_emitted(rx.TupleGetItem(both, k))) for k in range(2))
        return first.reshape(b, s, heads, dv), second.reshape(b, s, heads)

    def get_query_positions(self, total_length: PrimExpr | int) -> Tensor:
        """The positions of the tokens of the call, int32 (total_length,)."""
        call = call_pure_packed(
            f"{_BUILTIN}get_query_positions",
            self._expr,
            sinfo_args=_tensor((total_length,), "int32"),
        )
        return Tensor(_expr=_emitted(call))

    @staticmethod
    def create_generic(
        attn_kind: Kind | Sequence[Kind],
        max_batch_size: PrimExpr,
        max_total_seq_len: PrimExpr,
        prefill_chunk_size: PrimExpr,
        page_size: PrimExpr,
        support_sliding_window: PrimExpr,
        num_hidden_layers: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        qk_head_dim: int,
        v_head_dim: int,
        rope_mode: RopeMode,
        rope_scale: float,
        rope_theta: float,
        dtype: str,
        mla_original_qk_head_dim: int = 0,
        mla_original_v_head_dim: int = 0,
        rotary_dim: int | None = None,
        rope_scaling: Mapping[str, Any] | None = None,
        rope_ext_factors: Sequence[float] | None = None,
        layer_partition: Sequence[int] | None = None,
        enable_disaggregation: bool = False,
        name: str = "paged_kv_cache",
        is_sinks: bool = False,
        sliding_window_size: int = -1,
        *,
        layer_sliding_window_size: int = 1024,
        score_cap: float = 0.0,
    ) -> PagedKVCache:
        """A new cache, whose kinds of kernels are chosen where the module is compiled.

        The options are those of `TIRPagedKVCache`.

        Errors:
            MisuseError (also ValueError): heads, kinds of attention or the datatype do not fit.
        """
        factors: rx.Expr = _number(0)
        if rope_ext_factors is not None:
            factors = rx.const(list(rope_ext_factors), "float32")
        partition = _shape(layer_partition or [0, num_hidden_layers])
        return TIRPagedKVCache(
            attn_kind,
            max_batch_size,
            max_total_seq_len,
            prefill_chunk_size,
            page_size,
            support_sliding_window,
            partition,
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads,
            qk_head_dim,
            v_head_dim,
            mla_original_qk_head_dim,
            mla_original_v_head_dim,
            rope_mode,
            rope_scale,
            rope_theta,
            rope_scaling or {},
            factors,
            rotary_dim or qk_head_dim,
            enable_disaggregation,
            dtype,
            "cpu",
            name,
            is_sinks=is_sinks,
            sliding_window_size=sliding_window_size,
            layer_sliding_window_size=layer_sliding_window_size,
            score_cap=score_cap,
        )


class TIRPagedKVCache(PagedKVCache):
    """A new cache of pages; its options are those of TVM.

    A layer of kind mha_sliding sees as many tokens as its window has, or those that
    `attention_kv_cache_enable_sliding_window_for_seq` lets a sequence keep. A positive
    `sliding_window_size` is its window; otherwise `layer_sliding_window_size` is. A positive
    `score_cap` replaces a score x of heads by score_cap * tanh(x / score_cap), as Gemma 2 does.

    The module gets the kernel that splits and rotates fused heads, and the one of attention.
    Appending is a function of the runtime, so `target` has no effect; neither has `is_sinks`, as
    the kernel takes the sinks that a call has.

    Errors:
        MisuseError (also ValueError): heads, kinds of attention or the datatype do not fit.
    """

    @user_facing
    def __init__(
        self,
        attn_kind: Kind | Sequence[Kind],
        max_batch_size: PrimExpr,
        max_total_seq_len: PrimExpr,
        prefill_chunk_size: PrimExpr,
        page_size: PrimExpr,
        support_sliding_window: PrimExpr,
        layer_partition: rx.ShapeExpr,
        num_hidden_layers: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        qk_head_dim: int,
        v_head_dim: int,
        mla_original_qk_head_dim: int,
        mla_original_v_head_dim: int,
        rope_mode: RopeMode,
        rope_scale: float,
        rope_theta: float,
        rope_scaling: Mapping[str, Any],
        rope_ext_factors: rx.Expr,
        rotary_dim: int,
        enable_disaggregation: bool,
        dtype: str,
        target: object = None,
        name: str = "paged_kv_cache",
        *,
        is_sinks: bool = False,
        sliding_window_size: int = -1,
        layer_sliding_window_size: int = 1024,
        score_cap: float = 0.0,
    ) -> None:
        group = heads_of_each(num_attention_heads, num_key_value_heads)
        if not DataType(dtype).is_float:
            raise MisuseError(f"keys and values of a cache are floats, found {dtype}", about=dtype)
        is_one = isinstance(attn_kind, (str, int))
        listed = [attn_kind] * num_hidden_layers if is_one else list(attn_kind)
        kinds = [_kind(kind) for kind in listed]
        if len(kinds) != num_hidden_layers:
            raise MisuseError(
                f"{num_hidden_layers} layers have a kind of attention each, found {len(kinds)}",
                about=attn_kind,
            )
        nothing = rx.Tuple(())
        split_rotary: rx.Expr = nothing
        attention: rx.Expr = nothing
        latent_attention: rx.Expr = nothing

        def kernel(name: str, func: PrimFunc) -> rx.Expr:
            return rx.Tuple((rx.StringImm("relaxpy"), current_builder().add_func(func, name)))

        if AttnKind.MLA not in kinds:
            rotate = llama_rope_with_position_map(
                rope_theta,
                rope_scale,
                qk_head_dim,
                num_attention_heads,
                num_key_value_heads,
                dtype,
                rope_scaling,
                # Without rotation, the kernel only splits heads, whose size may be odd.
                rotary_dim - rotary_dim % 2 if rope_mode == RopeMode.NONE else rotary_dim,
            )
            # It writes keys and values where they are kept, by head.
            by_head = dict.fromkeys("kv", (qk_head_dim, None, 1))
            split_rotary = kernel("tir_split_rotary", with_strides(rotate, by_head))
            sizes = num_key_value_heads, group, qk_head_dim, v_head_dim
            func = attention_of_rows(*sizes, dtype, score_cap=score_cap)
            attention = kernel("attention_of_rows", func)
        else:
            sizes = 1, num_attention_heads, qk_head_dim, v_head_dim
            func = attention_of_rows(*sizes, dtype, pitch=qk_head_dim)
            latent_attention = kernel("attention_of_latent_rows", func)
            if mla_original_qk_head_dim and set(kinds) == {AttnKind.MLA}:
                originals = mla_original_qk_head_dim, mla_original_v_head_dim
                func = attention_of_rows(num_attention_heads, 1, *originals, dtype)
                attention = kernel("attention_of_rows", func)
        window = sliding_window_size if sliding_window_size > 0 else layer_sliding_window_size
        if window < 1:
            raise MisuseError(f"a window has at least one token, found {window}", about=window)
        if isinstance(rope_ext_factors, rx.Constant):
            given, pairs = rope_ext_factors.data.size, rotary_dim // 2
            if given not in {pairs, 2 * pairs}:
                raise MisuseError(
                    f"{pairs} pairs of dimensions have a factor each, or one for long and one for "
                    f"short texts, found {given}",
                    about=rope_ext_factors,
                )
        limits = (max_batch_size, max_total_seq_len, prefill_chunk_size, page_size)
        args: list[rx.Expr] = [
            _shape((*limits, support_sliding_window, window)),
            layer_partition,
            *map(_number, (num_attention_heads, num_key_value_heads)),
            *map(_number, (qk_head_dim, v_head_dim)),
            _shape(kinds),
            _number(bool(enable_disaggregation)),
            _number(int(rope_mode)),
            _number(rope_scale),
            _number(rope_theta),
            rope_ext_factors,
            rx.const(0, dtype),
            *[nothing] * 2,
            attention,
            *[nothing] * 6,
            latent_attention,
            nothing,
            split_rotary,
            *[nothing] * 3,
        ]
        call = call_pure_packed(
            "vm.builtin.paged_attention_kv_cache_create", *args, sinfo_args=rx.ObjectStructInfo()
        )
        super().__init__(_expr=call, _name=name)


class FlashInferPagedKVCache(PagedKVCache):
    """The cache of TVM whose kernels are those of FlashInfer, which are for GPUs.

    Errors:
        MisuseError: always.
    """

    @user_facing
    def __init__(self, *args: object, **kwargs: object) -> None:
        raise MisuseError(
            "the kernels of FlashInfer are for GPUs", hint="TIRPagedKVCache takes the same options"
        )
