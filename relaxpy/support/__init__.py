"""Shared by all of relaxpy: messages, screens, lazy names. Imports no other part of relaxpy."""

from relaxpy.support.missing import hint_at_absent as _hint_at_absent

_hint_at_absent(globals())
