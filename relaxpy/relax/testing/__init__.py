"""Tools to inspect and test programs."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.testing")
if TYPE_CHECKING:
    from relaxpy.relax.testing import ast_printer as ast_printer, attention as attention, matmul as matmul, nn as nn, runtime_builtin as runtime_builtin, transform as transform, vm as vm
    from relaxpy.relax.testing.attention import get_relax_attention_module as get_relax_attention_module, get_relax_stacked_attention_module as get_relax_stacked_attention_module
    from relaxpy.relax.testing.matmul import get_relax_matmul_module as get_relax_matmul_module
    from relaxpy.relax.testing.nn import Linear as Linear, LogSoftmax as LogSoftmax, Module as Module, Parameter as Parameter, Placeholder as Placeholder, ReLU as ReLU, Sequential as Sequential, checkpoint as checkpoint, emit as emit, emit_checkpoint as emit_checkpoint, emit_checkpoint_sequential as emit_checkpoint_sequential, emit_te as emit_te, init_params as init_params
    from relaxpy.tvm.relax.dump_ast import dump_ast as dump_ast
