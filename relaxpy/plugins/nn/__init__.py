"""Models as trees of Python objects: tensors, layers, specifications, and the exporter."""

from relaxpy.plugin import Plugin

PLUGIN = Plugin(hooks={"nn_jit": "relaxpy.plugins.nn.compiled:jit"})
