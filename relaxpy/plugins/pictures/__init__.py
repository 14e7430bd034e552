"""Pictures of programs: the dataflow of functions as SVG, Mermaid and DOT."""

from relaxpy.plugin import Plugin

PLUGIN = Plugin(
    hooks={
        "graph": "relaxpy.plugins.pictures.graph:graph",
        "graph_of_change": "relaxpy.plugins.pictures.graph:graph_of_change",
        "memory_chart": "relaxpy.plugins.pictures.chart:memory_chart",
        "profile_chart": "relaxpy.plugins.pictures.chart:profile_chart",
        "curve": "relaxpy.plugins.pictures.chart:curve",
    }
)
