"""Patterns for backends and their registry, and passes that choose how operators are computed."""

from relaxpy.ir.relax.transform.lowering.dispatch_sampling import (
    DispatchSampling as DispatchSampling,
)
from relaxpy.ir.relax.transform.lowering.dispatch_sort_scan import (
    DispatchSortScan as DispatchSortScan,
)
from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.relax.backend import (
    cpu_generic as cpu_generic,
    cuda as cuda,
    dispatch_sampling as dispatch_sampling,
    dispatch_sort_scan as dispatch_sort_scan,
    pattern_registry as pattern_registry,
    patterns as patterns,
    rocm as rocm,
    utils as utils,
)
from relaxpy.relax.backend.pattern_registry import (
    get_pattern as get_pattern,
    get_patterns_with_prefix as get_patterns_with_prefix,
    register_patterns as register_patterns,
)

_hint_at_absent(globals())
