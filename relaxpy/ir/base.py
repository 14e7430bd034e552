"""Structural comparison and serialisation of programs, under TVM's module name."""

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
