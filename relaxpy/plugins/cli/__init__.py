"""The command line: `relaxpy`, or `python -m relaxpy`."""

from relaxpy.plugin import Plugin

PLUGIN = Plugin(
    hooks={"passes": "relaxpy.plugins.cli.named_passes:public_passes"},
    models=dict.fromkeys((".py", ".json", ".rxp"), "relaxpy.plugins.cli.programs:file_program"),
)
