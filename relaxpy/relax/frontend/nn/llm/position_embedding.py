"""Rotary position embeddings."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn.llm.position_embedding")
if TYPE_CHECKING:
    from relaxpy.plugins.nn.llm.position_embedding import llama4_rope_with_position_map as llama4_rope_with_position_map, llama_rope as llama_rope, llama_rope_with_position_map as llama_rope_with_position_map, rope_freq_default as rope_freq_default, rope_freq_gptj as rope_freq_gptj, rope_freq_linear as rope_freq_linear, rope_freq_llama3 as rope_freq_llama3, rope_freq_llama4 as rope_freq_llama4, rope_freq_longrope as rope_freq_longrope, rope_freq_yarn as rope_freq_yarn, switch_rope_freq_func as switch_rope_freq_func, yarn_find_correction_dim as yarn_find_correction_dim, yarn_find_correction_range as yarn_find_correction_range
