"""Layers of language models: rotary position embeddings, paged KV caches, trees of tokens."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn.llm")
if TYPE_CHECKING:
    from relaxpy.relax.frontend.nn.llm import kv_cache as kv_cache, position_embedding as position_embedding, tree_attn as tree_attn
    from relaxpy.relax.frontend.nn.llm.position_embedding import llama_rope as llama_rope
