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
    )
)
