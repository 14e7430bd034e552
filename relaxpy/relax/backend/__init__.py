"""Patterns for backends and their registry, and passes that choose how operators are computed."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.backend")
if TYPE_CHECKING:
    from relaxpy.relax.backend import cpu_generic as cpu_generic, cuda as cuda, dispatch_sampling as dispatch_sampling, dispatch_sort_scan as dispatch_sort_scan, pattern_registry as pattern_registry, patterns as patterns, rocm as rocm, utils as utils
    from relaxpy.relax.backend.pattern_registry import get_pattern as get_pattern, get_patterns_with_prefix as get_patterns_with_prefix, register_patterns as register_patterns
    from relaxpy.tvm.lowering.call_tir_rewrite import DispatchSampling as DispatchSampling, DispatchSortScan as DispatchSortScan
