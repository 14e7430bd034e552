"""The importer of ONNX: `from_onnx` gives a Relax module for a model."""
