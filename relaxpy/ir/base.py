"""Comparison and storage of programs, where users of TVM look for them."""

from relaxpy.ir.equality.structural import (
    assert_structural_equal,
    get_first_structural_mismatch,
    structural_equal,
    structural_hash,
)
from relaxpy.ir.serialize import load_json, save_json

__all__ = [
    "assert_structural_equal",
    "get_first_structural_mismatch",
    "load_json",
    "save_json",
    "structural_equal",
    "structural_hash",
]
