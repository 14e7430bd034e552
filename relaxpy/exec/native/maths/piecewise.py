"""Odd functions of `float` that tend to 1, by a polynomial for each of 16 intervals.

Intervals halve the binades; the first one begins at 0. A polynomial is one of the distance from a
point near the middle of its interval at which the function is nearly a number of `float`, so that
the last sum makes most of the error. The coefficients are in registers, from which one instruction
selects those of all lanes.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from relaxpy.exec.native.literals import literal
from relaxpy.exec.native.llvm import F32, POINTER, Value
from relaxpy.exec.native.maths.numbers import (
    absolute,
    bits,
    both,
    compare,
    fma,
    select,
    shifted,
    with_sign,
)

_Table: TypeAlias = tuple[tuple[float, ...], ...]
"""The points, and the coefficients from the lowest power on, each for all intervals.

The number of an interval is that of its binade and half, modulo 16.
"""

_TANH: Final[_Table] = (
    (
        *(2.4997172, 3.5005865, 4.99977, 6.998237, 8.603815, 0.0, 0.078113504, 0.10934932),
        *(0.15629765, 0.21874551, 0.31252342, 0.43750852, 0.62510663, 0.875142, 1.2497119),
        *(1.749765,),
    ),
    (
        *(0.9866068, 0.99818003, 0.99990916, 0.99999833, 0.99999994, 0.0, 0.077955015, 0.10891555),
        *(0.15503724, 0.21532206, 0.302731, 0.41157714, 0.55467355, 0.7039772, 0.8482028),
        *(0.9413488,),
    ),
    (
        *(0.026607178, 0.0036366954, 0.0001819452, 3.3430053e-06, 1.3407102e-07, 1.0, 0.993923),
        *(0.9881374, 0.9759635, 0.9536364, 0.9083539, 0.83060426, 0.6923373, 0.50441605),
        *(0.28055185, 0.1138624),
    ),
    (
        *(-0.026250584, -0.003630035, -0.000181766, -3.3398765e-06, -3.0494306e-07, 9.546717e-09),
        *(-0.077481285, -0.10762351, -0.15131068, -0.20533894, -0.27498692, -0.3418573, -0.3840212),
        *(-0.35509744, -0.23796497, -0.10718424),
    ),
    (
        *(0.017026525, 0.0024089178, 0.00011887526, 2.1844921e-06, 9.6717216e-08, -0.3333347),
        *(-0.32522908, -0.31765723, -0.30186233, -0.27366504, -0.21953759, -0.13616924),
        *(-0.017779011, 0.08183944, 0.10834063, 0.06295035),
    ),
    (
        *(-0.008054889, -0.0011961227, -5.9827322e-05, -1.1002801e-06, 9.0168106e-07),
        *(5.8690923e-05, 0.05113388, 0.07030085, 0.097247824, 0.12728484, 0.15812664, 0.16965874),
        *(0.13787131, 0.0607549, -0.01255824, -0.023527903),
    ),
    (
        *(0.0028886907, 0.0004898232, 2.8495735e-05, 5.246758e-07, -1.0064782e-09, 0.13249817, 0.0),
        *(0.12011193, 0.10717063, 0.08515935, 0.045495868, -0.0056202984, -0.05435118),
        *(-0.058536306, -0.019717116, 0.0034792281),
    ),
    (
        *(-0.0006989935, -0.00015705878, -9.2143255e-06, -1.6955043e-07, -1.5086246e-06, 0.0, 0.0),
        *(0.3616103, -0.05876929, 0.0, -0.07295907, 0.0, -0.02425999, 0.0129244365, 0.015113105),
        *(0.0020899153,),
    ),
)
_ERF: Final[_Table] = (
    (
        *(2.4996042, 3.5009537, 3.5009537, 0.0, 0.039056063, 0.054690756, 0.078123525, 0.10935938),
        *(0.15621643, 0.21876748, 0.31258795, 0.4375308, 0.62512016, 0.87506956, 1.2496336),
        *(1.7500873,),
    ),
    (
        *(0.9995922, 0.9999993, 0.9999993, 0.0, 0.04404765, 0.061650436, 0.087973945, 0.12290868),
        *(0.17484792, 0.24297051, 0.34155864, 0.46392682, 0.6233326, 0.78411156, 0.9228134),
        *(0.9866763,),
    ),
    (
        *(0.0021826318, 5.361751e-06, 5.361751e-06, 1.1283792, 1.1266593, 1.1250092, 1.1215134),
        *(1.1149647, 1.1011759, 1.0756477, 1.0233392, 0.9317871, 0.7633849, 0.52468115, 0.23673788),
        *(0.05275888,),
    ),
    (
        *(-0.005454756, -1.961099e-05, -1.961099e-05, -5.2537303e-05, -0.044001758, -0.061527595),
        *(-0.08761658, -0.12193185, -0.17202176, -0.23531663, -0.3198835, -0.4076852, -0.47720727),
        *(-0.45913252, -0.29583585, -0.09233262),
    ),
    (
        *(0.008361976, 4.2136046e-05, 4.2136046e-05, -0.36267683, -0.37442642, -0.37275952),
        *(-0.3692746, -0.36273295, -0.3491435, -0.32412302, -0.27445194, -0.19168048, -0.055587057),
        *(0.09295486, 0.16754502, 0.09014059),
    ),
    (
        *(-0.008655256, -5.8966758e-05, -5.8966758e-05, -1.4756078, 0.0, 0.030537045, 0.043656766),
        *(0.06043125, 0.08459873, 0.11373198, 0.14952356, 0.17754818, 0.17644167, 0.112374425),
        *(-0.0060482174, -0.048102293),
    ),
    (
        *(0.00614973, 8.01884e-05, 8.01884e-05, 78.81192, 0.0, 0.1050759, 0.110086426, 0.0),
        *(0.099301875, 0.0, 0.06364493, 0.026676152, -0.027438994, -0.0672182, -0.047238234),
        *(0.006623381,),
    ),
    (
        *(-0.0026615555, -0.000107854736, -0.000107854736, -2014.6964, 0.0, 1.5399001, -0.07712624),
        *(0.0, -0.020212313, 0.0, -0.046527974, 0.0, -0.041136555, -0.010440782, 0.020612456),
        *(0.009042736,),
    ),
    (
        *(0.00040295752, 6.621578e-05, 6.621578e-05, 19836.984, 0.0, 57.071053, -1.5872362, 0.0),
        *(0.06721288, 0.0, -0.011728446, 0.0, 0.01368824, 0.018456075, 0.0038034306, -0.0059346748),
    ),
)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent. Error: 1.28 ulp."""
    return _piecewise(x, "tanh", _TANH, 0xF5, 9.2)


def erf(x: Value) -> Value:
    """The error function. Error: 1.69 ulp."""
    return _piecewise(x, "erf", _ERF, 0xF3, 4.0)


def _piecewise(x: Value, name: str, table: _Table, first: int, greatest: float) -> Value:
    """The function of a table whose least interval is `first`, and which is 1 from `greatest`."""
    distance = absolute(x)
    distance = select(compare("ogt", distance, greatest), greatest, distance)
    interval = x.function.intrinsic("smax", shifted("lshr", bits(distance), 22), first)
    point, *coefficients = _selected(name, table, interval)
    distance = distance - point
    total = coefficients.pop()
    for coefficient in reversed(coefficients):
        total = fma(total, distance, coefficient)
    return with_sign(total, x)


def _selected(name: str, table: _Table, interval: Value) -> list[Value]:
    """The values of all rows of a table, in each lane, for an interval modulo 16."""
    f, lanes = interval.function, interval.type.lanes
    if lanes == 1 or not f.module.triple.startswith("x86_64"):
        symbol = f"relaxpy.{name}.table"
        rows = ", ".join(f"[16 x float] [{_listed(row)}]" for row in table)
        type = f"[{len(table)} x [16 x float]]"
        f.module.add_text(f"@{symbol} = internal constant {type} [{rows}]")
        start = both(interval, 15)
        here = Value(f, POINTER, f"@{symbol}")
        return [f.gather(F32, here, start + 16 * row) for row in range(len(table))]
    width = 16 if f.module.has_avx512 else 8
    if lanes < width:
        whole = f.shuffle(interval, None, [min(n, lanes - 1) for n in range(width)])
        return [f.shuffle(v, None, range(lanes)) for v in _selected(name, table, whole)]
    if lanes > width:
        halves = (range(lanes // 2), range(lanes // 2, lanes))
        low, high = (_selected(name, table, f.shuffle(interval, None, half)) for half in halves)
        return [f.shuffle(a, b, range(lanes)) for a, b in zip(low, high, strict=True)]
    return [_permuted(row, interval) for row in table]


def _permuted(row: tuple[float, ...], interval: Value) -> Value:
    """The elements of 16 that the lanes of a register select."""
    f, index = interval.function, interval.type
    type = index.of("float")
    instruction = "avx512.permvar.sf.512" if index.lanes == 16 else "avx2.permps"
    symbol = f"llvm.x86.{instruction}"
    f.module.declare(symbol, type, [type, index])
    low, *high = (
        f.computed(type, f"call {type} @{symbol}({type} <{_listed(part)}>, {interval})")
        for part in (row[k : k + index.lanes] for k in range(0, 16, index.lanes))
    )
    if not high:
        return low
    return f.select(compare("slt", shifted("shl", interval, 28), 0), high[0], low)


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"float {literal('float', value)}" for value in values)
