"""What generated programs share: there and back, names, and the values of attributes."""

from typing import Any

from hypothesis import strategies as st

from relaxpy.ir.core.node import Node
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from relaxpy.script.printer import metadata

HINTS = [
    *("x", "y", "lv", "gv", "R", "T", "I", "cls", "class", "max", "None", "_", "__x", "x_1"),
    *("é", "1st", "a b", "metadata", "Module", "", "ﬁ", "fi", "self", "match", "n", "m", "sum"),
    *("lambda", "range", "print", "_x", "日本", "main", "w" * 60),
]
hints = st.sampled_from(HINTS)
strings = st.sampled_from(["", "it's", 'a "b"\n', "é", "\\", "'\"\\", "\x00\r\u2028", "{}", "#"])
_leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), strings, st.text(max_size=4)
)
_values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=6,
)
attributes = st.one_of(
    st.just({}), st.dictionaries(strings | st.just("class"), _values, max_size=3)
)


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
