"""Random expressions with common subexpressions.

What is varied: which expressions are shared, how often and how deep; tuples of one to three fields
in any order; functions that bind one of three variables, also one that is free elsewhere, in
expressions that are shared by several functions. Names are distinct: `graph_nodes.py` varies them.
"""

from __future__ import annotations

from hypothesis import strategies as st

from relaxpy.ir.relax import nodes as rx


@st.composite
def pools(draw: st.DrawFn) -> list[rx.Expr]:
    """Expressions that share each other and a few variables, some of which are bound."""
    variables = [rx.Var(name, rx.ObjectStructInfo()) for name in "abc"]
    pool: list[rx.Expr] = [*variables, rx.PrimValue(0)]
    for _ in range(draw(st.integers(2, 9))):
        parts = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3))
        if draw(st.booleans()):
            pool.append(rx.Tuple(parts))
        else:
            pool.append(rx.Function([draw(st.sampled_from(variables))], parts[0]))
    return pool
