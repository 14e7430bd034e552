"""The importer of ONNX models."""

from relaxpy.frontend.onnx.api import from_onnx as from_onnx
from relaxpy.relax.frontend.onnx import backend as backend
