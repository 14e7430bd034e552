"""Caches of keys and values in pages."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.frontend.nn.llm.kv_cache import AttnKind as AttnKind, FlashInferPagedKVCache as FlashInferPagedKVCache, PagedKVCache as PagedKVCache, RopeMode as RopeMode, TIRPagedKVCache as TIRPagedKVCache
    from relaxpy.ir.relax.frontend.nn.llm.sequence_attention import _attention_sequence_prefill as _attention_sequence_prefill
else:
    _face(globals(), """
        relaxpy.ir.relax.frontend.nn.llm.kv_cache: AttnKind FlashInferPagedKVCache PagedKVCache RopeMode TIRPagedKVCache
        relaxpy.ir.relax.frontend.nn.llm.sequence_attention: _attention_sequence_prefill
    """)
