"""The frames of a builder in the module where TVM defines those of `relax`."""

from relaxpy.script.ir_builder.frames import *  # noqa: F403
