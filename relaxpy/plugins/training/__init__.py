"""Training: losses and optimisers as Relax functions, and the passes that build a trainer."""

from relaxpy.plugin import Plugin

PLUGIN = Plugin(passes=("relaxpy.relax.training",))
