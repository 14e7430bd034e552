"""The printer: programs as text, which parses to the same program."""

from relaxpy.script.printer.show import cprint, html, metadata, script, show

__all__ = ["cprint", "html", "metadata", "script", "show"]
