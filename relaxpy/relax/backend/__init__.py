"""Patterns for backends and their registry, and passes that choose how operators are computed."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.relax.backend import cpu_generic as cpu_generic, cuda as cuda, dispatch_sampling as dispatch_sampling, dispatch_sort_scan as dispatch_sort_scan, pattern_registry as pattern_registry, patterns as patterns, rocm as rocm, utils as utils
    from relaxpy.relax.backend.pattern_registry import get_pattern as get_pattern, get_patterns_with_prefix as get_patterns_with_prefix, register_patterns as register_patterns
    from relaxpy.tvm.lowering.call_tir_rewrite import DispatchSampling as DispatchSampling, DispatchSortScan as DispatchSortScan
else:
    _face(globals(), """
        relaxpy.relax.backend.: cpu_generic cuda dispatch_sampling dispatch_sort_scan pattern_registry patterns rocm utils
        relaxpy.relax.backend.pattern_registry: get_pattern get_patterns_with_prefix register_patterns
        relaxpy.tvm.lowering.call_tir_rewrite: DispatchSampling DispatchSortScan
    """)
