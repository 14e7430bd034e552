"""Names, strings and attributes that are hard to print.

What is varied: names that Python, the script or another variable uses already, that are not
identifiers, that NFKC makes equal, and long ones; strings with quotes, escapes, line ends of all
kinds and control characters; attributes of nested lists and dictionaries of all literals.
"""

from hypothesis import strategies as st

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
