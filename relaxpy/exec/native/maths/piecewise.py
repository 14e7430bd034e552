"""The error function of `float`, by a polynomial for each of 8 intervals.

A polynomial is one of the distance from a point near the middle of its interval at which the
function is nearly a number of `float`, so that the last sum makes most of the error.
"""

from __future__ import annotations

from typing import Final

from relaxpy.exec.native.llvm.function import Value
from relaxpy.exec.native.maths.numbers import (
    absolute,
    bits,
    compare,
    fma,
    format_of,
    select,
    with_sign,
)
from relaxpy.exec.native.maths.tables import Table, selected

#: Intervals for each 1 of the argument.
_DENSITY: Final = 1.88
# The coefficient of the first power is 1 less, so that the distance is added as it is: this leaves
# nearly no error where the function is nearly linear.
#: The points, and the coefficients from the lowest power on, each for all intervals (Remez).
_ERF: Final[Table] = (
    (
        *(0.0, 0.5324566, 1.061952, 1.596872),
        *(2.1289413, 2.6553192, 3.1873543, 3.7263527),
    ),
    (
        *(0.0, 0.5485545, 0.8668582, 0.97607416),
        *(0.9973942, 0.9998268, 0.99999344, 0.9999999),
    ),
    (
        *(0.12837917, -0.15017748, -0.63467205, -0.91189426),
        *(-0.98786443, -0.9990219, -0.9999563, -0.9999989),
    ),
    (
        *(2.5151053e-07, -0.45249304, -0.38796106, -0.14069356),
        *(-0.025835972, -0.0025970677, -0.00013848893, -5.9180093e-06),
    ),
    (
        *(-0.37613693, -0.12265469, 0.15288821, 0.120409295),
        *(0.032631792, 0.004266754, 0.00028081692, 7.945222e-06),
    ),
    (
        *(0.00015989541, 0.18343583, 0.04816886, -0.04924007),
        *(-0.02612391, -0.004805118, -0.00043667053, 1.1821726e-05),
    ),
    (
        *(0.11176674, -0.0021903545, -0.06631661, -0.004631469),
        *(0.0122246165, 0.003926447, 0.00044808077, 4.6136392e-05),
    ),
    (
        *(0.0031245528, -0.04729458, 0.009909195, 0.0155151),
        *(-0.0016661513, -0.0021026428, 0.0, 0.0),
    ),
    (
        *(-0.02968721, 0.0068958504, 0.012437684, -0.0061346632),
        *(0.0, 0.0, 0.0, 0.0),
    ),
)


def erf(x: Value) -> Value:
    """The error function. Error: 1.66 ulp."""
    distance = absolute(x)
    distance = select(compare("ogt", distance, 3.97), 3.97, distance)
    # The last bits of this sum are the number of the interval.
    interval = bits(fma(distance, _DENSITY, format_of(x).round_to_integer))
    point, *coefficients = selected("erf", _ERF, interval)
    distance = distance - point
    total = coefficients.pop()
    for coefficient in reversed(coefficients[1:]):
        total = fma(total, distance, coefficient)
    return with_sign(fma(total, distance, coefficients[0] + distance), x)
