"""What models of language need: rotary position embeddings and paged caches."""

from relaxpy.absent import hint_at_absent as _hint_at_absent
from relaxpy.relax.frontend.nn.llm import (
    kv_cache as kv_cache,
    position_embedding as position_embedding,
)

_hint_at_absent(globals())
