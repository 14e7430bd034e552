"""Relay, the predecessor of Relax: types, expressions, modules, inference and passes."""

from relaxpy.plugin import Plugin

PLUGIN = Plugin(
    hooks={
        "relay_text": "relaxpy.plugins.relay.text.printer:text",
        "relay_std": "relaxpy.plugins.relay.text.std:load",
        "relay_kinds": "relaxpy.plugins.relay.saved:enter",
        "relay_operator": "relaxpy.plugins.relay.run.evaluator:run_operator",
    }
)
