"""What models of language need: rotary position embeddings, paged caches, trees of tokens."""

from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.relax.frontend.nn.llm import (
    kv_cache as kv_cache,
    position_embedding as position_embedding,
    tree_attn as tree_attn,
)
from relaxpy.relax.frontend.nn.llm.position_embedding import llama_rope as llama_rope

_hint_at_absent(globals())
