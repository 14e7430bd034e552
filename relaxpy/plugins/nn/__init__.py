"""Models as trees of Python objects: tensors, layers, specifications, and the exporter."""
