"""Pictures of programs: the dataflow of functions as SVG, Mermaid and DOT."""
