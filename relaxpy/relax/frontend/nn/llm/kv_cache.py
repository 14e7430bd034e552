"""Caches of keys and values in pages."""

from relaxpy.ir.relax.frontend.nn.llm.kv_cache import (
    AttnKind as AttnKind,
    FlashInferPagedKVCache as FlashInferPagedKVCache,
    PagedKVCache as PagedKVCache,
    RopeMode as RopeMode,
    TIRPagedKVCache as TIRPagedKVCache,
)
from relaxpy.ir.relax.frontend.nn.llm.sequence_attention import (
    _attention_sequence_prefill as _attention_sequence_prefill,
)
