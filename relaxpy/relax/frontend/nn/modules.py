"""The layers that models are made of, and their effects."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn.modules")
if TYPE_CHECKING:
    from relaxpy.plugins.nn.core import Effect as Effect, Parameter as Parameter, Tensor as Tensor, get_default_dtype as get_default_dtype
    from relaxpy.plugins.nn.module import Module as Module, ModuleList as ModuleList
    from relaxpy.plugins.nn.modules import Attention as Attention, Conv1D as Conv1D, Conv2D as Conv2D, Conv3D as Conv3D, ConvTranspose1D as ConvTranspose1D, Embedding as Embedding, GELU as GELU, GroupNorm as GroupNorm, Identity as Identity, LayerNorm as LayerNorm, Linear as Linear, RMSNorm as RMSNorm, ReLU as ReLU, SiLU as SiLU, TimestepEmbedding as TimestepEmbedding, Timesteps as Timesteps
    from relaxpy.plugins.nn.session import IOEffect as IOEffect, KVCache as KVCache
