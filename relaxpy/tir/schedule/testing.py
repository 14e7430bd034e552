"""Comparison of kernels whatever their names are."""

from relaxpy.exec.runtime.verify import assert_structural_equal_ignore_global_symbol

__all__ = ["assert_structural_equal_ignore_global_symbol"]
