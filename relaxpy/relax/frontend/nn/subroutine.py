"""Layers that become functions of their own."""

from relaxpy.ir.relax.frontend.nn.subroutine import SubroutineMixin as SubroutineMixin
