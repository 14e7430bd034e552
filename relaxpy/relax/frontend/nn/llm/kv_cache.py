"""Caches of keys and values in pages."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn.llm.kv_cache")
if TYPE_CHECKING:
    from relaxpy.plugins.nn.llm.kv_cache import AttnKind as AttnKind, FlashInferPagedKVCache as FlashInferPagedKVCache, PagedKVCache as PagedKVCache, RopeMode as RopeMode, TIRPagedKVCache as TIRPagedKVCache
    from relaxpy.plugins.nn.llm.tree_attention import _attention_sequence_prefill as _attention_sequence_prefill
