"""The dataflow pattern language: patterns, contexts, rewriting."""

from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.relax.dpl import context as context, pattern as pattern, rewrite as rewrite
from relaxpy.relax.dpl.context import *
from relaxpy.relax.dpl.pattern import *
from relaxpy.relax.dpl.rewrite import *

_hint_at_absent(globals())
