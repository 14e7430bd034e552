"""The plug-ins: each folder is one, and the core works without it."""

WITH_MANIFEST = (
    *(f"{__name__}.{name}" for name in ("nn", "importing", "cli", "distributed", "pictures")),
    *(f"{__name__}.{name}" for name in ("relay", "testing", "training", "weights")),
    "relaxpy.tvm",
)
"""The packages with a `PLUGIN`; to look for it, the importers would import PyTorch and onnx.

Packed functions are looked for in this order, and language models need those of the first.
"""
