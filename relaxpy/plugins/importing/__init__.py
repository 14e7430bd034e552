"""Shared by importers: names, integers known at import, the error listing unsupported nodes."""

from relaxpy.plugin import Plugin

MATRICES = "relaxpy.matrices."
"""The beginning of the names of packed functions on matrices."""
PLUGIN = Plugin(
    functions=(
        "relaxpy.plugins.importing.images",
        "relaxpy.plugins.importing.matrices",
        "relaxpy.plugins.importing.sequences",
        "relaxpy.plugins.importing.strings",
    ),
    # The packages of the importers import onnx and torch.
    models={
        "onnx.ModelProto": "relaxpy.plugins.onnx.importer:model_module",
        ".onnx": "relaxpy.plugins.onnx.importer:model_module",
        "torch.ExportedProgram": "relaxpy.plugins.torch.models:program_module",
        "torch.Module": "relaxpy.plugins.torch.models:model_module",
        ".pt2": "relaxpy.plugins.torch.models:file_module",
    },
)
