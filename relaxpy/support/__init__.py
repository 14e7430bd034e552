"""What all of relaxpy uses, messages, screens and lazy names: it imports nothing of the rest."""

from relaxpy.support.missing import hint_at_absent as _hint_at_absent

_hint_at_absent(globals())
