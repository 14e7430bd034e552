"""Models as trees of Python objects: tensors, layers, specifications, and the exporter."""

from relaxpy.plugin import Plugin

PLUGIN = Plugin(
    functions=(
        "relaxpy.plugins.nn.caches.paged",
        "relaxpy.plugins.nn.caches.rows",
        "relaxpy.plugins.nn.caches.sequences",
    ),
    hooks={"nn_jit": "relaxpy.plugins.nn.compiled:jit"},
)
