"""The error function, roundings, remainders and other functions of one or two numbers."""

from __future__ import annotations

import math
from typing import Final

from relaxpy.exec.native.llvm.function import Value
from relaxpy.exec.native.maths.exponential import exp
from relaxpy.exec.native.maths.numbers import (
    absolute,
    compare,
    const,
    fma,
    multiply_exactly,
    polynomial,
    select,
    square_root,
    with_sign,
)

#: (erf(x) / x - 2 / sqrt(pi)) / x**2 on [0, 1], in powers of x**2.
_ERF_SMALL: Final = (
    *(-4.3599416656269906e-12, 8.791682287223088e-11, -1.2187938053422122e-09),
    *(1.4796244617170383e-08, -1.636504874807076e-07, 1.6462074391226269e-06),
    *(-1.4925648977380536e-05, 0.00012055332949670276, -0.000854832702296908),
    *(0.005223977625437868, -0.02686617064513105, 0.11283791670955125, -0.37612638903183754),
)
#: erfc(x) e**(x**2) on [1, 6], in powers of (x - 2) / (x + 2).
_ERFC: Final = (
    *(3.69205321602869e-06, 1.8727019242453762e-06, -1.398178808615561e-05),
    *(-2.766380846501792e-05, 2.7530521490262972e-05, 0.00017436882044198908),
    *(4.355508239874221e-05, -0.0009819774065142409, -0.0008471432263480788),
    *(0.006997461749047515, 0.003732892403796403, -0.0789785810158471),
    *(0.24165819424247065, -0.427185847413958, 0.25539567631050575),
)
_TWO_OVER_SQRT_PI: Final = (1.1283791670955126, 1.533545961316588e-17)


def erf(x: Value) -> Value:
    """The error function of `double`. Error: 1.01 ulp."""
    a = absolute(x)
    high, low = multiply_exactly(x, _TWO_OVER_SQRT_PI[0])
    square = x * x
    more = fma(polynomial(square, _ERF_SMALL), square, _TWO_OVER_SQRT_PI[1])
    small = high + fma(x, more, low)
    limited = select(compare("ogt", a, 6.0), 6.0, a)
    square, error = multiply_exactly(limited, limited)
    ratio = (limited - 2.0) / (limited + 2.0)
    complement = exp(-square, -error) * polynomial(ratio, _ERFC)
    return with_sign(select(compare("ogt", a, 1.0), 1.0 - complement, small), x)


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x). Error: 1.48 ulp."""
    return 1.0 / square_root(x)


def hypot(x: Value, y: Value) -> Value:
    """sqrt(x**2 + y**2) of `double`, without overflow. Error: 1.02 ulp."""
    a, b = absolute(x), absolute(y)
    swap = compare("ogt", b, a)
    a, b = x.function.select(swap, b, a), x.function.select(swap, a, b)
    up, down = compare("olt", a, 2.0**-400), compare("ogt", a, 2.0**400)
    scale = select(up, 2.0**600, select(down, 2.0**-600, const(x, 1)))
    back = select(up, 2.0**-600, select(down, 2.0**600, const(x, 1)))
    a, b = a * scale, b * scale
    square, error = multiply_exactly(a, a)
    sum = fma(b, b, error) + square
    result = square_root(sum) * back
    result = x.function.select(compare("uno", x, y), x + y, result)
    for value in (x, y):
        result = select(compare("oeq", absolute(value), math.inf), math.inf, result)
    return result
