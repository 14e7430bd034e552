"""The printer: programs as text, which parses to the same program."""

from relaxpy.script.printer.show import cprint, html, metadata, script, show
from relaxpy.support.missing import hint_at_absent as _hint_at_absent

__all__ = ["cprint", "html", "metadata", "script", "show"]

_hint_at_absent(globals())
