"""Programs printed and read again."""

from typing import Any

from relaxpy.ir.core.node import Node
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from relaxpy.script.printer import metadata


def round_trip(node: Node, **options: Any) -> Any:
    """`node` printed and read again, checked to be the same program and the same text."""
    text = node.script(**options)
    names = {
        options.get("ir_prefix", "I"): I,
        options.get("relax_prefix", "R"): R,
        options.get("tir_prefix", "T"): T,
        "metadata": metadata(node, **options),
    }
    again = from_source(text, names, check_well_formed=False)
    assert_structural_equal(node, again)
    assert again.script(**options).split("\n") == text.split("\n")
    return again
