"""Kernels, and maps of indices."""

from relaxpy.ir.tir.analysis.index_map import IndexMap as IndexMap
from relaxpy.ir.tir.prim_func.function import PrimFunc as PrimFunc
