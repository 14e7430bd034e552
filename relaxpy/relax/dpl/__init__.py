"""The dataflow pattern language: patterns, contexts, rewriting."""

from relaxpy.relax.dpl import context as context, pattern as pattern, rewrite as rewrite
from relaxpy.relax.dpl.context import *
from relaxpy.relax.dpl.pattern import *
from relaxpy.relax.dpl.rewrite import *
