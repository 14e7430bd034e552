"""What models of language need: rotary position embeddings and paged caches."""

from relaxpy.relax.frontend.nn.llm import (
    kv_cache as kv_cache,
    position_embedding as position_embedding,
)
