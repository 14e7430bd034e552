"""The context in which patterns are matched against a block as a whole."""

from relaxpy.ir.relax.dpl.context import PatternContext as PatternContext
