"""The printer: programs as text, which parses to the same program."""

from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.script.printer.show import cprint, html, metadata, script, show

__all__ = ["cprint", "html", "metadata", "script", "show"]

_hint_at_absent(globals())
