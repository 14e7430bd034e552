"""The strategy of hypothesis that draws arguments of functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.core.dtype import Array
from relaxpy.plugins.testing.random_inputs import (
    dimension_names,
    domains_in,
    moved_inside,
    params_of,
    random_inputs,
)
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from hypothesis import strategies as st

#: The value of all elements; None for random ones.
_FILLS: Final = (0, 1, None)
_MAX_CHANGED: Final = 3
#: Elements that are written into arrays: those of floats, and those of integers.
_FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-3, 100.0, -100.0)
_INTEGERS: Final = (0, 1, 2, 9)


@user_facing
def inputs(
    func: Any, sizes: Mapping[str, int] | None = None, *, max_size: int = 5
) -> st.SearchStrategy[tuple[Value, ...]]:
    """A strategy of tuples of arguments for a function, as `random_inputs` takes it.

    Dimensions are as in `sizes`, or drawn from 1 to `max_size`, the same ones for all parameters.
    Arrays are zeros, ones or random, with some elements changed. An example that fails shrinks to
    small dimensions and to zeros. Values stay in the domains that `random_inputs` knows.

    Errors:
        MisuseError (also TypeError, ValueError): as `random_inputs` raises, or hypothesis is not
            installed.
    """
    try:
        from hypothesis import reject, strategies as st
    except ImportError:
        raise MisuseError("the strategy needs hypothesis", hint="pip install hypothesis") from None
    params, domains = params_of(func), domains_in(func)
    given = dict(sizes or {})
    drawn = [n for n in {n: None for p in params for n in dimension_names(p)} if n not in given]

    @st.composite
    def draw_inputs(draw: st.DrawFn) -> tuple[Value, ...]:
        chosen = {**given, **{name: draw(st.integers(1, max_size)) for name in drawn}}
        try:
            values = random_inputs(func, chosen, draw(st.integers(0, 2**16)))
        except MisuseError:
            if not drawn:
                raise
            reject()  # a dimension that is computed from others would be negative
        return tuple(
            moved_inside(changed(draw, value), domains.get(param), chosen)
            for param, value in zip(params, values, strict=True)
        )

    def changed(draw: st.DrawFn, value: Value) -> Value:
        if isinstance(value, tuple) and type(value) is tuple:
            return tuple(changed(draw, field) for field in value)
        if not isinstance(value, np.ndarray):
            return value
        array: Array = value
        fill = draw(st.sampled_from(_FILLS))
        if fill is not None:
            array = np.full_like(array, fill)
        if array.size:
            elements = _INTEGERS if array.dtype.kind in "iu" else _FLOATS
            values = (0, 1) if array.dtype.kind == "b" else elements
            places = st.integers(0, array.size - 1)
            changes = st.dictionaries(places, st.sampled_from(values), max_size=_MAX_CHANGED)
            for place, element in draw(changes).items():
                array.flat[place] = element
        return array

    random_inputs(func, {**dict.fromkeys(drawn, max_size), **given})  # raises for other parameters
    return draw_inputs()
