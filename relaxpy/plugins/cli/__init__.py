"""The command line: `relaxpy`, or `python -m relaxpy`."""

from relaxpy.plugin import Plugin

PLUGIN = Plugin(hooks={"passes": "relaxpy.plugins.cli.passes:public_passes"})
