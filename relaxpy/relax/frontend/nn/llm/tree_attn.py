"""Kernels of attention to trees of tokens."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn.llm.tree_attn")
if TYPE_CHECKING:
    from relaxpy.plugins.nn.llm.tree_attention import tree_attn as tree_attn, tree_attn_cpu as tree_attn_cpu, tree_attn_with_paged_kv_cache as tree_attn_with_paged_kv_cache, tree_attn_with_paged_kv_cache_cpu as tree_attn_with_paged_kv_cache_cpu
