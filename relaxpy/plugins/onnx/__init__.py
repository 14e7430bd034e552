"""The importer of ONNX: `from_onnx` gives a Relax module for a model."""

try:
    import onnx as _onnx
except ImportError:
    raise ImportError(
        "ONNX files need the package onnx, which is missing: pip install 'relaxpy[onnx]'",
        name="onnx",
    ) from None

del _onnx
