"""The codes that calls of `vm.builtin.match_shape` and `vm.builtin.make_shape` contain."""

from relaxpy.ir.relax.op.vm import MakeShapeCode as MakeShapeCode, MatchShapeCode as MatchShapeCode
