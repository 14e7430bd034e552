"""The passes over Relax programs, each in a module that is named after it."""

from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, map_bindings
from relaxpy.ir.relax.transform.function_pass import (
    DataflowBlockPass,
    FunctionPass,
    dataflowblock_pass,
    function_pass,
)
from relaxpy.ir.relax.transform.legalize import LegalizeOps
from relaxpy.ir.relax.transform.normalize import Normalize
from relaxpy.ir.relax.transform.normalize_global_var import NormalizeGlobalVar

__all__ = [
    "BindingRewriter",
    "DataflowBlockPass",
    "FunctionPass",
    "LegalizeOps",
    "Normalize",
    "NormalizeGlobalVar",
    "dataflowblock_pass",
    "function_pass",
    "map_bindings",
]
