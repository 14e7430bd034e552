"""Special functions: errors, gamma and its relatives, orthogonal polynomials, Bessel and Airy.

DLMF is the Digital Library of Mathematical Functions of NIST.

Those of single elements are computed in float64, by kernels of loops. Some have a form for the
shorter datatypes, with an error of at most 2.2 ulp of float32.

Functions of Bessel and Airy are, for arguments below 25, sums of the trapezoidal rule for integrals
over a period or a line, which converge exponentially (Trefethen and Weideman, SIAM Review 56,
2014); above, Hankel's expansions, whose least terms are below exp(-50) there (DLMF 10.17, 10.40).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.te.text import T, kernel_text, variable
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Select
from relaxpy.ir.tir.intrin import cos, exp, floor, isinf, isnan, log, sin, sqrt, tan
from relaxpy.plugins.importing.tensors import Number, dtype_of, kernel, product, reshaped, shape_of
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.registry import Value, converter

#: A text of a function of numbers.
Scalar = Callable[..., Number]


def spread(cx: Context, value: Value, dtype: str) -> Expr:
    """An operand as a vector of the result's elements, in a datatype."""
    sizes = cx.result_shape()
    tensor = cx.tensor(value, dtype)
    if shape_of(tensor) != sizes:
        tensor = R.broadcast_to(tensor, tuple(sizes))
    return cx.emit(reshaped(tensor, [product(sizes)]))


def each_element(
    cx: Context, name: str, function: Scalar, *operands: Value, dtype: str = "float64", **fixed: Any
) -> Expr:
    """The text of a function, with these options, of each element of the operands.

    These broadcast; the function is computed in `dtype`.
    """
    inputs = {
        f"x{n}": spread(cx, operand, dtype_of(operand) if isinstance(operand, Expr) else dtype)
        for n, operand in enumerate(operands)
    }
    outputs = {"out": ([product(cx.result_shape())], cx.result_dtype())}
    options = {"function": function, "dtype": dtype, "fixed": fixed}
    (flat,) = kernel(cx, name, outputs, inputs, _each_element, **options)
    return reshaped(flat, cx.result_shape())


@kernel_text
def _each_element(
    out: Any, function: Scalar, dtype: str, fixed: Mapping[str, Any], **operands: Any
) -> None:
    for i in T.serial(out.shape[0]):
        numbers = [operand[i].astype(dtype) for operand in operands.values()]
        out[i] = function(*numbers, **fixed)


def elementwise(
    *names: str, prims: str = "", short: Scalar | None = None, **fixed: Any
) -> Callable[[Scalar], Scalar]:
    """Register the text of a function as the converter of operators, by their names of ATen.

    `short` is its form for float32 and shorter datatypes, a function of numbers of float32.
    """

    def register(function: Scalar) -> Scalar:
        def convert(cx: Context, *operands: Value) -> Expr:
            if short is not None and cx.result_dtype() != "float64":
                return each_element(cx, names[0], short, *operands, dtype="float32", **fixed)
            return each_element(cx, names[0], function, *operands, **fixed)

        converter(*names)(convert)
        if prims:
            converter(prims, namespace="prims")(convert)
        return function

    return register


_EPSILON = 2.0**-53
NAN, INFINITY = (ops.const(value, "float64") for value in (math.nan, math.inf))
#: B(2j) of the numbers of Bernoulli, j from 1.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)


def number(value: float) -> Number:
    """A literal of float64."""
    return ops.const(float(value), "float64")


def select(condition: Number, yes: Any, no: Any) -> Number:
    """One of two numbers."""
    yes, no = (number(v) if isinstance(v, (int, float)) else v for v in (yes, no))
    return Select(condition, yes, no)


def power_series(x: Number, coefficients: Sequence[float]) -> Number:
    """The sum of coefficients times powers of x, from the constant one on."""
    result, *rest = (ops.const(value, str(x.dtype)) for value in reversed(coefficients))
    for value in rest:
        result = result * x + value
    return result


#: (1 + 2 x) exp(x^2) erfc(x) in powers of (x - 3.75) / (x + 3.75). Its Chebyshev series is that of
#: Shepherd and Laframboise, Mathematics of Computation 36 (1981). Error: 2 ulp.
_SCALED_ERFC = (
    *(1.2375126308378275, -0.14024059858554525, 0.0035854154854790257, 0.08227673848999506),
    *(-0.10880393014244462, 0.09230432116428125, -0.05869339857664934, 0.02836227737211114),
    *(-0.009746579683265262, 0.0017556261651970652, 0.000293714378044958, -0.00029015535246077655),
    *(5.164652974177416e-05, 2.2387565714911816e-05, -1.1438048033346894e-05),
    *(-9.792625707303523e-07, 1.7419821586224816e-06, -5.084465378687302e-08),
    *(-2.4857126248016745e-07, 1.879082322370048e-08),
    *(3.197926671666804e-08, -1.9551358868985616e-09, -2.623107347133476e-09),
)


@kernel_text
def scaled_erfc(x: Number) -> Number:
    """exp(x^2) erfc(x)."""
    y = Select(x < 0, -x, x)
    place = (y - 3.75) / (y + 3.75)
    found = power_series(place, _SCALED_ERFC) / (y * 2.0 + 1.0)
    bounded = select(isinf(y), 0.0, found)
    return Select(isnan(x), x, Select(x < 0, exp(y * y) * 2.0 - bounded, bounded))


elementwise("special_erfcx", prims="erfcx")(scaled_erfc)


#: (1 + 2 x) exp(x^2) erfc(x) in powers of (x - 2) / (x + 2), where erfc(x) is a number of float32.
_SCALED_ERFC_SHORT = (
    *(1.2769783826827257, -0.0927638209472901, -0.1660305222634797, 0.1640510500105418),
    *(-0.05421781040802594, -0.008030956178877769, 0.008708940790627574, 0.0012529515241874827),
    *(-0.0014202714490782072, -0.00040086218340173833, 0.00016880528777708865),
    *(7.916335042235284e-05,),
)


@kernel_text
def _erfc_short(x: Number) -> Number:
    """erfc(x), computed in float64. Error: 0.52 ulp."""
    wide = T.Cast("float64", x)
    y = ops.minimum(Select(wide < 0.0, -wide, wide), number(11))
    place = (y - 2.0) / (y + 2.0)
    tail = exp(-y * y) * power_series(place, _SCALED_ERFC_SHORT) / (y * 2.0 + 1.0)
    return Select(isnan(x), x, T.Cast("float32", Select(x < 0.0, number(2) - tail, tail)))


@elementwise("erfc", "special_erfc", prims="erfc", short=_erfc_short)
@kernel_text
def erfc(x: Number) -> Number:
    y = Select(x < 0, -x, x)
    scaled = scaled_erfc(y)
    tail = exp(-y * y) * scaled
    return Select(x < 0, number(2) - tail, tail)


# Rational approximations of the quantile of the normal distribution, to 1e-16: algorithm AS 241,
# PPND16 (Wichura, Applied Statistics 37, 1988). The constant term of each denominator is 1.
_CENTRE = (
    (
        *(3.3871328727963665, 133.14166789178438, 1971.5909503065513, 13731.69376550946),
        *(45921.95393154987, 67265.7709270087, 33430.57558358813, 2509.0809287301227),
    ),
    (
        *(1.0, 42.31333070160091, 687.1870074920579, 5394.196021424751, 21213.794301586597),
        *(39307.89580009271, 28729.085735721943, 5226.495278852854),
    ),
)
_NEAR = (
    (
        *(1.4234371107496835, 4.630337846156546, 5.769497221460691, 3.6478483247632045),
        *(1.2704582524523684, 0.2417807251774506, 0.022723844989269184, 0.0007745450142783414),
    ),
    (
        *(1.0, 2.053191626637759, 1.6763848301838038, 0.6897673349851, 0.14810397642748008),
        *(0.015198666563616457, 0.0005475938084995345, 1.0507500716444169e-09),
    ),
)
_FAR = (
    (
        *(6.657904643501103, 5.463784911164114, 1.7848265399172913, 0.29656057182850487),
        *(0.026532189526576124, 0.0012426609473880784, 2.7115555687434876e-05),
        *(2.0103343992922881e-07,),
    ),
    (
        *(1.0, 0.599832206555888, 0.1369298809227358, 0.014875361290850615, 0.0007868691311456133),
        *(1.8463183175100548e-05, 1.421511758316446e-07, 2.0442631033899397e-15),
    ),
)


@kernel_text
def _ratio(place: Number, above: Sequence[float], below: Sequence[float]) -> Number:
    """A quotient of two polynomials."""
    x = place
    return power_series(x, above) / power_series(x, below)


@kernel_text
def _quantile(distance: Number, tail: Number) -> Number:
    """The quantile of the normal distribution at 1/2 + `distance`, which is at least 0.

    `tail` is 1/2 - `distance`, which may have digits that the distance has lost.
    """
    depth = sqrt(-log(tail))
    outer = Select(depth < 5.0, _ratio(depth - 1.6, *_NEAR), _ratio(depth - 5.0, *_FAR))
    centre = distance * _ratio(number(0.180625) - distance * distance, *_CENTRE)
    return select(tail == 0.0, math.inf, Select(distance < 0.425, centre, outer))


#: erfinv(x) / x in powers of w - 1 up to 5, and of sqrt(w) - 3 beyond, where w = -log(1 - x^2)
#: (Giles, GPU Computing Gems, 2010).
_ERFINV_SHORT = (
    (
        *(1.1273744106292725, 0.24783283472061157, 0.004250578116625547, -0.0023762662895023823),
        *(0.0001002745921141468, 3.811092392425053e-05, -4.3333561734471004e-06),
        *(-5.376742819862557e-07, 1.421765745135417e-07, -8.68243166252114e-09),
    ),
    (
        *(2.832976818084717, 1.0016748905181885, 0.00944519229233265, -0.0076369550079107285),
        *(0.0056878081522881985, -0.0035989880561828613, 0.0014828555285930634),
        *(-5.376355329644866e-05, -0.00030774855986237526, 0.00011364053352735937),
    ),
)


@kernel_text
def _erfinv_short(x: Number) -> Number:
    """erfinv(x), computed in float32. Error: 2.2 ulp."""
    y = Select(x < 0.0, -x, x)
    w = -log((ops.const(1.0, "float32") - y) * (y + 1.0))
    near, far = w - 1.0, sqrt(w) - 3.0
    centre, outer = map(power_series, (near, far), _ERFINV_SHORT)
    found = Select(w < 5.0, centre, outer) * x
    return Select(y == 1.0, x * math.inf, found)


@elementwise("erfinv", "special_erfinv", prims="erf_inv", short=_erfinv_short)
@kernel_text
def erfinv(x: Number) -> Number:
    size = Select(x < 0, -x, x)
    y = _quantile(size * 0.5, (number(1) - size) * 0.5) * 2**-0.5
    return Select(x < 0, -y, y)


@elementwise("special_ndtri", prims="ndtri")
@kernel_text
def ndtri(p: Number) -> Number:
    tail = Select(p > 0.5, number(1) - p, p)
    y = _quantile(number(0.5) - tail, tail)
    return Select(p > 0.5, y, -y)


@kernel_text
def _moved(x: Number) -> tuple[Number, Number, Number, Number]:
    """The mirror image m of `x` above 1/2, whether it is below 8, m (m + 7), and m beyond 8.

    The factors m + j and m + 7 - j of the product of m + j up to 7 are m (m + 7) + j (7 - j).
    """
    mirrored = Select(x < 0.5, number(1) - x, x)
    below = mirrored < 8.0
    part = mirrored * (mirrored + 7.0)
    beyond = Select(below, mirrored + 8.0, mirrored)
    return mirrored, below, part, beyond


def _sine_of_pi(x: Number) -> Number:
    """|sin(pi x)|, exact in its zeros."""
    distance = x - floor(x + 0.5)
    return sin(Select(distance < 0.0, -distance, distance) * math.pi)


@kernel_text
def lgamma(x: Number, *, short: bool = False) -> Number:
    """Stirling's series (DLMF 5.11.1) behind 8, and recurrence and reflection before.

    The short form has one logarithm of a quotient, which of all float64 may be out of range.
    """
    _, below, part, z = _moved(x)
    passed = part * (part + 6.0) * (part + 10.0) * (part + 12.0)
    factor = select(below, passed, 1.0)
    inverse = number(1) / z
    square = inverse * inverse
    terms = [b / (2 * j * (2 * j - 1)) for j, b in enumerate(_BERNOULLI, 1)]
    main = (z - 0.5) * (log(z) - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5)
    whole = main + power_series(square, terms) * inverse
    quotient = Select(x < 0.5, factor * math.pi / _sine_of_pi(x), factor) if short else factor
    right = whole - log(quotient)
    mirrored = -right if short else number(math.log(math.pi)) - log(_sine_of_pi(x)) - right
    value = Select(x < 0.5, mirrored, right)
    pole = isinf(x) | ((x <= 0.0) & (floor(x) == x))
    return Select(isnan(x), x, Select(pole, INFINITY, value))


@kernel_text
def _lgamma_short(x: Number) -> Number:
    wide = T.Cast("float64", x)
    return T.Cast("float32", lgamma(wide, short=True))


elementwise("lgamma", "special_gammaln", prims="lgamma", short=_lgamma_short)(lgamma)


@elementwise("digamma", "special_digamma", "special_psi", prims="digamma")
@kernel_text
def digamma(x: Number) -> Number:
    """DLMF 5.11.2 behind 8, and recurrence and reflection before."""
    mirrored, below, part, z = _moved(x)
    # The logarithmic derivative of the product of m + j up to 7.
    passed = power_series(part, (0, 720, 252, 28, 1))
    slope = power_series(part, (720, 504, 84, 4)) * (mirrored * 2.0 + 7.0)
    inverse = number(1) / z
    square = inverse * inverse
    terms = [b / (2 * j) for j, b in enumerate(_BERNOULLI, 1)]
    series = log(z) - inverse * 0.5 - power_series(square, terms) * square
    right = series - select(below, slope / passed, 0.0)
    reflected = right - number(math.pi) / tan((x - floor(x + 0.5)) * math.pi)
    finite = Select(x < 0.5, reflected, right)
    pole = (x < 0.0) & (floor(x) == x)
    at_zero = select(number(1) / x < 0.0, math.inf, -math.inf)
    infinite = select(x < 0.0, math.nan, math.inf)
    return Select(x == 0.0, at_zero, Select(isinf(x), infinite, Select(pole, NAN, finite)))


@kernel_text
def _inverse_square(value: Number) -> Number:
    x = value
    return number(1) / (x * x)


@kernel_text
def _trigamma(x: Number) -> Number:
    """DLMF 5.15.8 behind 8, and recurrence and reflection (5.15.6) before."""
    mirrored, below, _, z = _moved(x)
    passed = sum([_inverse_square(mirrored + float(j)) for j in range(8)], number(0))
    inverse = number(1) / z
    square = inverse * inverse
    series = power_series(square, (1.0, *_BERNOULLI)) + inverse * 0.5
    right = series * inverse + select(below, passed, 0.0)
    sine = _sine_of_pi(x)
    return Select(x < 0.5, number(math.pi**2) / (sine * sine) - right, right)


@elementwise("special_zeta", "special_zeta.self_scalar", "special_zeta.other_scalar", prims="zeta")
@kernel_text
def zeta(s: Number, q: Number) -> Number:
    """The sum of (q + j)^-s by the formula of Euler and Maclaurin (DLMF 25.11.5)."""
    a, total = variable(q), variable(number(0))
    defined = (s > 1.0) & ((q > 0.0) | ((floor(q) != q) & (floor(s) == s)))
    if defined:
        while a[0] < 10.0:
            total[0] += _to_power(a[0], s)
            a[0] += 1.0
        last = _to_power(a[0], s)
        total[0] = total[0] + last * a[0] / (s - 1.0) + last * 0.5
        inverse = number(1) / (a[0] * a[0])
        term = variable(last * s / a[0])
        [_add_term(total, term, s, inverse, j, b) for j, b in enumerate(_BERNOULLI, 1)]
    pole = (s == 1.0) | ((q <= 0.0) & (floor(q) == q) & (s > 1.0))
    return Select(pole, INFINITY, Select(defined, total[0], NAN))


@kernel_text
def _add_term(total: Any, term: Any, s: Number, inverse: Number, j: int, b: float) -> None:
    """Add the term of the formula with the number B(2j) of Bernoulli."""
    total[0] += term[0] * (b / math.factorial(2 * j))
    term[0] = term[0] * (s + (2 * j - 1.0)) * (s + 2.0 * j) * inverse


@kernel_text
def _to_power(base: Number, s: Number) -> Number:
    """base^-s; the base may be negative where s is an integer."""
    size = exp(-s * log(Select(base < 0, -base, base)))
    odd = floor(s * 0.5) * 2.0 != s
    return Select((base < 0.0) & odd, -size, size)


@converter("polygamma", "special_polygamma")
def polygamma(cx: Context, order: int, x: Value) -> Expr:
    if order < 2:
        name, function = ("trigamma", _trigamma) if order else ("digamma", digamma)
        return each_element(cx, name, function, x)
    return each_element(cx, "polygamma", _derivative, x, order=order)


@kernel_text
def _derivative(x: Number, order: int) -> Number:
    """The derivative of an order above 1 of the digamma function."""
    return zeta(number(order + 1), x) * number(math.factorial(order) * (1 if order % 2 else -1))


@kernel_text
def _incomplete_gamma(a: Number, x: Number, *, upper: bool) -> Number:
    """The lower or the upper function, divided by Gamma(a): DLMF 8.7.1 and 8.9.2."""
    result = variable(NAN)
    if (a > 0.0) & (x > 0.0) & ~isinf(a) & ~isinf(x):
        front = exp(a * log(x) - x - lgamma(a))
        if (x < 1.0) | (x < a):
            term, below = variable(number(1) / a), variable(a)
            total = variable(term[0])
            while term[0] > total[0] * _EPSILON:
                below[0] += 1.0
                term[0] = term[0] * x / below[0]
                total[0] += term[0]
            lower = front * total[0]
            result[0] = number(1) - lower if upper else lower
        else:
            fraction = _fraction(a, x)
            result[0] = front * fraction if upper else number(1) - front * fraction
    if (x == 0.0) & (a > 0.0):
        result[0] = 1.0 if upper else 0.0
    if (a == 0.0) & (x > 0.0):
        result[0] = 0.0 if upper else 1.0
    if isinf(a) & (a > 0.0) & (x >= 0.0) & ~isinf(x):
        result[0] = 1.0 if upper else 0.0
    if isinf(x) & (x > 0.0) & (a >= 0.0) & ~isinf(a):
        result[0] = 0.0 if upper else 1.0
    return result[0]


@kernel_text
def _fraction(a: Number, x: Number) -> Number:
    """The continued fraction of the upper function by Lentz's method (DLMF 3.10)."""
    b, c = variable(x + 1.0 - a), variable(number(1e300))
    d = variable(number(1) / b[0])
    h = variable(d[0])
    change, step = variable(number(0)), variable(number(0))
    while ((change[0] - 1.0) * (change[0] - 1.0) > 1e-31) & (step[0] < 5000.0):
        step[0] += 1.0
        an = -step[0] * (step[0] - a)
        b[0] += 2.0
        d[0] = an * d[0] + b[0]
        c[0] = b[0] + an / c[0]
        d[0] = select(d[0] == 0.0, 1e-300, d[0])
        c[0] = select(c[0] == 0.0, 1e-300, c[0])
        d[0] = number(1) / d[0]
        change[0] = d[0] * c[0]
        h[0] *= change[0]
    return h[0]


elementwise("igamma", "special_gammainc", prims="igamma", upper=False)(_incomplete_gamma)
elementwise("igammac", "special_gammaincc", prims="igammac", upper=True)(_incomplete_gamma)


Scalars = Callable[[Number], Number]
Following = Callable[[Number, Number, Number, Number], Number]


@kernel_text
def _polynomial(
    x: Number, degree: Number, place: Scalars, first: Scalars, following: Following
) -> Number:
    """The polynomial of a degree by a recurrence, from those of degrees 1 and n."""
    at = place(x)
    before, last, step = variable(number(1)), variable(first(at)), variable(number(1))
    while step[0] + 1.0 <= degree:
        new = following(at, step[0], last[0], before[0])
        before[0] = last[0]
        last[0] = new
        step[0] += 1.0
    return select(degree <= -1.0, 0.0, select(degree < 1.0, 1.0, last[0]))


def _chebyshev(x: Number, n: Number, p: Number, before: Number) -> Number:
    return x * 2.0 * p - before


#: DLMF 18.9: the polynomial of degree 1, and the next one by n, those of degrees n and n - 1.
_FAMILIES: dict[str, tuple[Scalars, Following]] = {
    "chebyshev_polynomial_t": (lambda x: x, _chebyshev),
    "chebyshev_polynomial_u": (lambda x: x * 2.0, _chebyshev),
    "chebyshev_polynomial_v": (lambda x: x * 2.0 - 1.0, _chebyshev),
    "chebyshev_polynomial_w": (lambda x: x * 2.0 + 1.0, _chebyshev),
    "hermite_polynomial_h": (lambda x: x * 2.0, lambda x, n, p, q: (x * p - n * q) * 2.0),
    "hermite_polynomial_he": (lambda x: x, lambda x, n, p, q: x * p - n * q),
    "laguerre_polynomial_l": (
        lambda x: number(1) - x,
        lambda x, n, p, q: ((n * 2.0 + 1.0 - x) * p - n * q) / (n + 1.0),
    ),
    "legendre_polynomial_p": (
        lambda x: x,
        lambda x, n, p, q: ((n * 2.0 + 1.0) * x * p - n * q) / (n + 1.0),
    ),
}


def _register() -> None:
    places = {"special": lambda x: x, "special_shifted": lambda x: x * 2.0 - 1.0}
    for name, (first, following) in _FAMILIES.items():
        for prefix, place in places.items():
            if prefix == "special" or name.startswith("chebyshev"):
                options: dict[str, Any] = {"place": place, "first": first}
                options["following"] = following
                elementwise(f"{prefix}_{name}", **options)(_polynomial)


_register()


_LARGE = 25.0
#: A mean of n waves is J but for J of order 2 n, and in the sums of Y of order 2 n - 60.
_WAVES = 32
#: The distance of the places at which an integral over a line is summed.
_STEP = 0.125
_SINES_OF_J = [math.sin((k + 0.5) * math.pi / _WAVES) for k in range(_WAVES // 2)]
_COUNT = 64
_ANGLES = [(k + 0.5) * math.pi / _COUNT for k in range(_COUNT // 2)]
_SINES = [math.sin(angle) for angle in _ANGLES]
#: Weights of DLMF 10.8.3 with each J of an even order as such a sum.
_NEUMANN = [
    sum((-1) ** (k + 1) * math.cos(2 * k * angle) / k for k in range(1, 31)) * 8 / math.pi / _COUNT
    for angle in _ANGLES
]


def _hankel(order: float, count: int = 24) -> list[float]:
    """The coefficients of DLMF 10.17.1."""
    found = [1.0]
    for k in range(1, count):
        found.append(found[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (k * 8))
    return found


def size_of(x: Number) -> Number:
    """|x|."""
    return Select(x < 0, -x, x)


@kernel_text
def _oscillating(x: Number, order: float, *, second: bool) -> Number:
    """J or Y of a large argument."""
    inverse = number(1) / x
    square = inverse * inverse
    terms = _hankel(order)
    even = [value * (-1) ** j for j, value in enumerate(terms[::2])]
    odd = [value * (-1) ** j for j, value in enumerate(terms[1::2])]
    p = power_series(square, even)
    q = power_series(square, odd) * inverse
    phase = x - (order / 2 + 0.25) * math.pi
    wave = p * sin(phase) + q * cos(phase) if second else p * cos(phase) - q * sin(phase)
    return select(isinf(x), 0.0, sqrt(inverse * (2 / math.pi)) * wave)


def _near_j(x: Number, order: int) -> Number:
    waves = [sin(x * sine) * sine if order else cos(x * sine) for sine in _SINES_OF_J]
    return sum(waves, number(0)) * (2 / _WAVES)


@kernel_text
def _bessel_j(x: Number, order: int) -> Number:
    size, result = size_of(x), variable(x)
    if size < _LARGE:
        result[0] = _near_j(size, order)
    if size >= _LARGE:
        result[0] = _oscillating(size, order, second=False)
    return Select(x < 0, -result[0], result[0]) if order else result[0]


elementwise("special_bessel_j0", prims="bessel_j0", order=0)(_bessel_j)
elementwise("special_bessel_j1", prims="bessel_j1", order=1)(_bessel_j)


@kernel_text
def _bessel_y(x: Number, order: int) -> Number:
    result = variable(NAN)
    if (x > 0.0) & (x < _LARGE):
        logarithm = (log(x * 0.5) + 0.57721566490153286061) * (2 / math.pi)
        found = logarithm * _near_j(x, order) + _neumann(x, order)
        result[0] = found - _near_j(x, 0) * (2 / math.pi) / x if order else found
    if x >= _LARGE:
        result[0] = _oscillating(x, order, second=True)
    return select(x == 0.0, -math.inf, result[0])


def _neumann(x: Number, order: int) -> Number:
    total = number(0)
    for sine, weight in zip(_SINES, _NEUMANN, strict=True):
        total = total + (sin(x * sine) * sine if order else cos(x * sine)) * weight
    return total


elementwise("special_bessel_y0", order=0)(_bessel_y)
elementwise("special_bessel_y1", order=1)(_bessel_y)


@kernel_text
def _scaled_i(x: Number, order: int) -> Number:
    """I(|x|) exp(-|x|): DLMF 10.25.2 and 10.40.1."""
    size, result = size_of(x), variable(x)
    if size < _LARGE:
        terms = [1 / (math.factorial(j) * math.factorial(j + order)) for j in range(40)]
        quarter = size * size * 0.25
        front = size * 0.5 if order else number(1)
        result[0] = front * power_series(quarter, terms) * exp(-size)
    if size >= _LARGE:
        terms = [value * (-1) ** j for j, value in enumerate(_hankel(order))]
        inverse = number(1) / size
        result[0] = power_series(inverse, terms) * sqrt(inverse * (0.5 / math.pi))
    return Select(x < 0, -result[0], result[0]) if order else result[0]


@kernel_text
def _exponential(x: Number, scaled: Number) -> Number:
    """A scaled value times exp(|x|)."""
    half = exp(size_of(x) * 0.5)
    return Select(isinf(x), x * x * Select(x < 0, number(-1), number(1)), scaled * half * half)


elementwise("special_i0e", prims="bessel_i0e", order=0)(_scaled_i)
elementwise("special_i1e", prims="bessel_i1e", order=1)(_scaled_i)


@elementwise("i0", "special_i0", "special_modified_bessel_i0", prims="bessel_i0")
@kernel_text
def i0(x: Number) -> Number:
    scaled = _scaled_i(x, 0)
    return Select(isinf(x), INFINITY, _exponential(x, scaled))


@elementwise("special_i1", "special_modified_bessel_i1", prims="bessel_i1")
@kernel_text
def i1(x: Number) -> Number:
    return _exponential(x, _scaled_i(x, 1))


@kernel_text
def _scaled_k(x: Number, order: float) -> Number:
    """K(x) exp(x): DLMF 10.32.9 and 10.40.2."""
    result = variable(NAN)
    if (x > 0.0) & (x < _LARGE):
        total, place, exponent = [variable(number(value)) for value in (0.5, _STEP, 0.0)]
        while exponent[0] < 45.0:
            # cosh(t) - 1 = (exp(t / 2) - exp(-t / 2))^2 / 2
            half = exp(place[0] * 0.5)
            root = half - number(1) / half
            exponent[0] = x * root * root * 0.5
            wide = exp(place[0] * float(order))
            weight = (wide + number(1) / wide) * 0.5 if order else number(1)
            total[0] += exp(-exponent[0]) * weight
            exponent[0] -= place[0] * float(order)
            place[0] += _STEP
        result[0] = total[0] * _STEP
    if x >= _LARGE:
        inverse = number(1) / x
        result[0] = power_series(inverse, _hankel(order)) * sqrt(inverse * (math.pi / 2))
    return Select(x == 0.0, INFINITY, result[0])


elementwise("special_scaled_modified_bessel_k0", order=0)(_scaled_k)
elementwise("special_scaled_modified_bessel_k1", order=1)(_scaled_k)


@kernel_text
def _bessel_k(x: Number, order: int) -> Number:
    return _scaled_k(x, order) * exp(-x)


elementwise("special_modified_bessel_k0", order=0)(_bessel_k)
elementwise("special_modified_bessel_k1", order=1)(_bessel_k)


@elementwise("special_spherical_bessel_j0", prims="spherical_bessel_j0")
@kernel_text
def spherical_j0(x: Number) -> Number:
    return select(x == 0.0, 1.0, select(isinf(x), 0.0, sin(x) / x))


#: Ai and -Ai' at 0.
_AIRY = (0.355028053887817239, 0.258819403792806798)


@elementwise("special_airy_ai")
@kernel_text
def airy_ai(x: Number) -> Number:
    """DLMF 9.4.1 about 0, 9.6.2 above, 9.7.9 below."""
    result, size = variable(NAN), size_of(x)
    zeta = size * sqrt(size) * (2 / 3)
    if (x > -7.0) & (x < 1.0):
        cube = x * x * x
        even, odd, step = variable(number(1)), variable(x), variable(number(3))
        total = variable(number(_AIRY[0]) - x * _AIRY[1])
        for _ in T.serial(T.int64(40)):
            even[0] = even[0] * cube / (step[0] * (step[0] - 1.0))
            odd[0] = odd[0] * cube / (step[0] * (step[0] + 1.0))
            total[0] = total[0] + even[0] * _AIRY[0] - odd[0] * _AIRY[1]
            step[0] += 3.0
        result[0] = total[0]
    if x >= 1.0:
        value = _scaled_k(zeta, 1 / 3) * exp(-zeta)
        result[0] = select(isinf(x), 0.0, value * sqrt(x / 3.0) / math.pi)
    if x <= -7.0:
        terms = _airy_terms()
        inverse = number(1) / zeta
        square, phase = inverse * inverse, zeta - math.pi / 4
        even_part = power_series(square, [t * (-1) ** j for j, t in enumerate(terms[::2])])
        odd_part = power_series(square, [t * (-1) ** j for j, t in enumerate(terms[1::2])])
        wave = cos(phase) * even_part + sin(phase) * odd_part * inverse
        value = wave / (sqrt(sqrt(size)) * math.pi**0.5)
        result[0] = select(isinf(x), 0.0, value)
    return Select(isnan(x), x, result[0])


def _airy_terms() -> list[float]:
    """The u of DLMF 9.7.2."""
    found = [1.0]
    for k in range(1, 22):
        found.append(found[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1)))
    return found
