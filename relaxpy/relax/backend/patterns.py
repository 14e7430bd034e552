"""Patterns that are common to many backends."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.backend.patterns")
if TYPE_CHECKING:
    from relaxpy.tvm.libraries.patterns import make_attention_pattern as make_attention_pattern, make_conv2d_pattern as make_conv2d_pattern, make_fused_bias_activation_pattern as make_fused_bias_activation_pattern, make_layer_norm_pattern as make_layer_norm_pattern, make_matmul_dequantize_pattern as make_matmul_dequantize_pattern, make_matmul_multiply_pattern as make_matmul_multiply_pattern, make_matmul_pattern as make_matmul_pattern, make_residual_block_pattern as make_residual_block_pattern, make_rms_norm_pattern as make_rms_norm_pattern, make_stacked_attention_pattern as make_stacked_attention_pattern
