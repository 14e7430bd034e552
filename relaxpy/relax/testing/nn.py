"""Layers that emit kernels, and checkpoints around functions that build programs."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.testing.nn")
if TYPE_CHECKING:
    from relaxpy.plugins.training.checkpoint import checkpoint as checkpoint, emit_checkpoint as emit_checkpoint, emit_checkpoint_sequential as emit_checkpoint_sequential
    from relaxpy.tvm.test_models import Linear as Linear, LogSoftmax as LogSoftmax, Module as Module, Parameter as Parameter, Placeholder as Placeholder, ReLU as ReLU, Sequential as Sequential, emit as emit, emit_te as emit_te, init_params as init_params
