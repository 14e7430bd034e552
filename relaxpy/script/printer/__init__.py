"""The printer: programs as text, which parses to the same program."""

from relaxpy.script.printer.show import html, metadata, script, show

__all__ = ["html", "metadata", "script", "show"]
