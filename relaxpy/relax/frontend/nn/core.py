"""Tensors, parameters and modules of models."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn.core")
if TYPE_CHECKING:
    from relaxpy.plugins.nn.core import Effect as Effect, Object as Object, Parameter as Parameter, Tensor as Tensor, get_default_dtype as get_default_dtype, set_default_dtype as set_default_dtype, wrap_nested as wrap_nested
    from relaxpy.plugins.nn.module import Module as Module, ModuleDict as ModuleDict, ModuleList as ModuleList, ParameterDict as ParameterDict, ParameterList as ParameterList
