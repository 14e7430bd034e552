"""Models with quantised weights."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn.quantization")
if TYPE_CHECKING:
    from relaxpy.ir.relax.group_quantization import QUANTIZATIONS as QUANTIZATIONS, Quantization as Quantization
    from relaxpy.plugins.nn.quantization import QuantizedEmbedding as QuantizedEmbedding, QuantizedLinear as QuantizedLinear, quantize_model as quantize_model, quantize_state_dict as quantize_state_dict
