"""Programs that several processes run together, which MPI has started."""

from relaxpy.plugin import Plugin

PLUGIN = Plugin(
    hooks={
        "started_workers": "relaxpy.plugins.distributed.start:started_workers",
        "communication": "relaxpy.plugins.distributed.communication:communication",
    }
)
