"""Models with quantised weights."""

from relaxpy.ir.relax.frontend.nn.quantization import (
    QuantizedEmbedding as QuantizedEmbedding,
    QuantizedLinear as QuantizedLinear,
    quantize_model as quantize_model,
    quantize_state_dict as quantize_state_dict,
)
from relaxpy.ir.relax.quantization import (
    QUANTIZATIONS as QUANTIZATIONS,
    Quantization as Quantization,
)
