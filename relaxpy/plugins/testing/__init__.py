"""Random inputs, comparisons of results, and assertions of tests about programs and passes."""

from relaxpy.plugin import Plugin

PLUGIN = Plugin(hooks={"value_check": "relaxpy.plugins.testing.bisect:ValueCheck"})
