"""All that decide whether an argument fits a parameter decide alike, and as the rules say.

These are the reference, the full check behind it, the quick checks in Python texts, and the entries
of native code. What they check is drawn, and the arguments: some fit, others almost.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError, RuntimeCheckError
from relaxpy.exec.runtime.values import to_value
from relaxpy.runtime import ShapeTuple
from relaxpy.script import from_source
from tests.exec.native.claims import copied
from tests.fuzz.seed import COUNT, SEED

Sizes: TypeAlias = dict[str, int]
Size: TypeAlias = int | str
TARGETS = ("reference", "numpy", "native")
DTYPES = ("float32", "float32", "int64", "int32", "bool", "uint8", "float16", "bfloat16")
SIZES: tuple[Size, ...] = ("n", "n", "m", "m", "n + 1", "2 * m", "n * m", "n // 2", 2, 3)


@dataclass(frozen=True)
class Tensor:
    """A tensor of known dimensions, of a known rank, or of any (None)."""

    dtype: str
    shape: tuple[Size, ...] | int | None

    def __str__(self) -> str:
        if isinstance(self.shape, tuple):
            return f"R.Tensor({literal(self.shape)}, {self.dtype!r})"
        ndim = "" if self.shape is None else f", ndim={self.shape}"
        return f"R.Tensor(dtype={self.dtype!r}{ndim})"


@dataclass(frozen=True)
class Number:
    """A number, which may be a size."""

    dtype: str
    value: Size | None

    def __str__(self) -> str:
        return f"R.Prim({self.dtype!r})" if self.value is None else f"R.Prim(value={self.value!r})"


@dataclass(frozen=True)
class Shape:
    """A shape of known members, or of a number of them."""

    values: tuple[Size, ...] | int

    def __str__(self) -> str:
        if isinstance(self.values, int):
            return f"R.Shape(ndim={self.values})"
        return f"R.Shape([{', '.join(map(repr, self.values))}])"


@dataclass(frozen=True)
class Fields:
    """A tuple."""

    fields: tuple["Param", ...]

    def __str__(self) -> str:
        return f"R.Tuple({', '.join(map(str, self.fields))})"


@dataclass(frozen=True)
class Other:
    """An object of any kind, or a packed function."""

    text: str

    def __str__(self) -> str:
        return self.text


Param: TypeAlias = Tensor | Number | Shape | Fields | Other
OBJECT, FUNCTION = Other("R.Object"), Other("R.Callable")


def literal(shape: Sequence[Size]) -> str:
    return f"({''.join(f'{size!r}, ' for size in shape)})"


def sizes_in(param: Param) -> list[Size]:
    """The sizes that a parameter names, from left to right."""
    match param:
        case Tensor(shape=tuple(sizes)) | Shape(values=tuple(sizes)):
            return [*sizes]
        case Number(value=value) if value is not None:
            return [value]
        case Fields(fields=fields):
            return [size for field in fields for size in sizes_in(field)]
        case _:
            return []


# ---- what fits, by the rules


def number_at(size: Size, sizes: Mapping[str, int]) -> int:
    return size if isinstance(size, int) else eval(size, {}, dict(sizes))


def is_tensor(value: Any) -> bool:
    if not isinstance(value, np.ndarray):
        return False
    kind = value.dtype
    return (kind.kind in "biuf" and kind.itemsize <= 8) or kind.name in dir(ml_dtypes)


def dtype_of(value: Any) -> str | None:
    """The datatype of a number; None if it is none."""
    if isinstance(value, np.generic):
        return value.dtype.name
    return {bool: "bool", int: "int64", float: "float64"}.get(type(value))


class Fit:
    """Whether values fit: sizes bind from left to right, and the others are compared at the end."""

    def __init__(self) -> None:
        self.sizes: Sizes = {}
        self.later: list[tuple[int, Size]] = []

    def all(self, params: Sequence[Param], args: Sequence[Any]) -> bool:
        fit = all(self.one(*pair) for pair in zip(params, args, strict=True))
        return fit and all(found == number_at(size, self.sizes) for found, size in self.later)

    def one(self, param: Param, value: Any) -> bool:
        match param:
            case Tensor(dtype=dtype, shape=shape):
                if not is_tensor(value) or value.dtype.name != dtype or not value.dtype.isnative:
                    return False
                if isinstance(shape, tuple):
                    return self.bind(value.shape, shape)
                return shape in (None, value.ndim)
            case Number(dtype=dtype, value=size):
                if dtype_of(value) != dtype:
                    return False
                return size is None or self.bind((value,), (size,))
            case Shape(values=values):
                if not isinstance(value, ShapeTuple):
                    return False
                return (
                    self.bind(value, values) if isinstance(values, tuple) else len(value) == values
                )
            case Fields(fields=fields):
                if not isinstance(value, tuple) or isinstance(value, ShapeTuple):
                    return False
                if len(value) != len(fields):
                    return False
                return all(self.one(*pair) for pair in zip(fields, value, strict=True))
            case _:
                return param is OBJECT or callable(value)

    def bind(self, found: Sequence[int], expected: Sequence[Size]) -> bool:
        if len(found) != len(expected):
            return False
        for actual, size in zip(found, expected, strict=True):
            if isinstance(size, str) and size.isidentifier() and size not in self.sizes:
                self.sizes[size] = actual
            else:
                self.later.append((actual, size))
        return True


# ---- parameters and arguments


def drawn_param(rng: random.Random, depth: int = 0) -> Param:
    sizes = tuple(rng.choice(SIZES) for _ in range(rng.randrange(4)))
    match rng.randrange(12):
        case 0:
            return Tensor(rng.choice(DTYPES), rng.choice((None, len(sizes))))
        case 1:
            return Number("int64", rng.choice("nm"))
        case 2:
            return Number(rng.choice(("int64", "bool", "float32", "float64", "int8")), None)
        case 3:
            return Shape(rng.choice((sizes, len(sizes))))
        case 4 | 5 if depth < 2:
            return Fields(tuple(drawn_param(rng, depth + 1) for _ in range(rng.randrange(4))))
        case 6:
            return rng.choice((OBJECT, OBJECT, FUNCTION))
        case _:
            return Tensor(rng.choice(DTYPES), sizes)


def drawn_params(rng: random.Random) -> list[Param]:
    """Parameters, among them a tensor of float32 for a kernel, and what binds each variable."""
    params = [drawn_param(rng) for _ in range(rng.randrange(1, 4))]
    params.append(Tensor("float32", tuple(rng.choice(SIZES) for _ in range(rng.randrange(1, 3)))))
    rng.shuffle(params)
    named = [size for param in params for size in sizes_in(param)]
    lone = [name for name in "nm" if name not in named and any(name in str(s) for s in named)]
    return [*params, *([Tensor("float32", tuple(lone))] if lone else [])]


def array(rng: random.Random, shape: Sequence[int], dtype: str) -> np.ndarray[Any, Any]:
    """An array in any layout: with gaps, reversed, transposed, read-only, unaligned, a subclass."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    whole = np.arange(math.prod(shape)).reshape(shape).astype(kind)
    match rng.randrange(12):
        case 0 if whole.ndim:
            whole = np.repeat(whole, 2, axis=0)[::2]
        case 1 if whole.ndim:
            whole = whole[::-1].copy()[::-1]
        case 2:
            whole = np.asfortranarray(whole)
        case 3:
            whole.flags.writeable = False
        case 4:
            raw = np.zeros(whole.nbytes + 1, np.uint8)[1:]
            raw[:] = np.frombuffer(whole.tobytes(), np.uint8)
            whole = raw.view(kind).reshape(shape)
        case 5:
            whole = whole.view(np.memmap)
        case 6 if dtype == "int64":
            whole = whole.astype("longlong")
        case _:
            pass
    return whole


def drawn_value(rng: random.Random, param: Param, sizes: Sizes) -> Any:
    """A value that fits."""
    shape = tuple(number_at(size, sizes) for size in sizes_in(param))
    match param:
        case Tensor(dtype=dtype, shape=known):
            if not isinstance(known, tuple):
                shape = tuple(
                    rng.randrange(3) for _ in range(rng.randrange(3) if known is None else known)
                )
            return array(rng, shape, dtype)
        case Number(dtype=dtype, value=value):
            number = 1 if value is None else shape[0]
            kind = {"int64": int, "float64": float, "bool": bool}.get(dtype, np.dtype(dtype).type)
            return kind(number) if rng.randrange(3) else np.dtype(dtype).type(number)
        case Shape(values=values):
            return ShapeTuple(shape if isinstance(values, tuple) else (1,) * values)
        case Fields(fields=fields):
            return tuple(drawn_value(rng, field, sizes) for field in fields)
        case _:
            return (
                len if param is FUNCTION else rng.choice(("text", None, 1, 0.5, np.ones(2), (1,)))
            )


def changed(rng: random.Random, value: Any) -> Any:
    """Almost the same value: most do not fit where it does."""
    if isinstance(value, tuple) and type(value) is tuple and value and rng.randrange(4):
        at = rng.randrange(len(value))
        return (*value[:at], changed(rng, value[at]), *value[at + 1 :])
    others: list[Any] = [None, "text", object(), len, 1, True, 0.5, 1 << 40, np.float32(1), ()]
    others += [np.int8(1), np.bool_(True), np.ones((), "float32"), ShapeTuple((1,)), (1, 2)]
    if is_tensor(value):
        others += [value[None], value.reshape(-1), (value,), value.tolist(), value.astype(complex)]
        others += [value.astype(d) for d in ("float64", "int64", "int8", "bool", "float32", "O")]
        others += [value.astype(value.dtype.newbyteorder()), np.ma.masked_array(value)]
        others += [np.zeros([n + 1 for n in value.shape], value.dtype)] * 4
        others += [value[1:]] * 4 if value.ndim else []
        return rng.choice(others[rng.choice((0, 15)) :])
    if isinstance(value, tuple):
        others += (
            [value[:-1], (*value, 1), tuple(value), [*value], ShapeTuple((*value[1:], 7))] * 4
            if (isinstance(value, ShapeTuple))
            else [value[:-1], (*value, 1), [*value]] * 4
        )
    if isinstance(value, (int, float, np.generic)) and not isinstance(value, (bool, np.bool_)):
        others += [int(value) + 1, float(value), np.int64(1), np.array(value), int(value) - 1] * 3
    return rng.choice(others)


def drawn_arguments(rng: random.Random, params: Sequence[Param]) -> list[Any]:
    sizes = {name: rng.choice((0, 1, 2, 3)) for name in "nm"}
    args = [drawn_value(rng, param, sizes) for param in params]
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        at = rng.randrange(len(args))
        args[at] = changed(rng, args[at])
    return args


# ---- what the functions say


def program(params: Sequence[Param]) -> str:
    """A function with a kernel, which returns what it gets."""
    names = [f"p{n}" for n in range(len(params))]
    kernel = next(n for n, p in zip(names, params, strict=True) if is_for_kernel(p))
    results = [n for n, p in zip(names, params, strict=True) if not isinstance(p, Shape)]
    signature = ", ".join(f"{n}: {p}" for n, p in zip(names, params, strict=True))
    return f"""
from relaxpy.script import relax as R

@R.function
def main({signature}):
    with R.dataflow():
        y = R.exp({kernel})
        R.output(y)
    return (y, {", ".join(results)})
"""


def is_for_kernel(param: Param) -> bool:
    return isinstance(param, Tensor) and param.dtype == "float32" and isinstance(param.shape, tuple)


def described(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple):
        return type(value), [*map(described, value)]
    return type(value), repr(value)


def outcome(function: Any, params: Sequence[Param], args: Sequence[Any]) -> tuple[bool, Any]:
    """True, the result, and which arguments are in it; or False and the error.

    Native functions may build an equal tuple.
    """
    try:
        _, *result = function(*args)
    except RelaxpyError as error:
        return False, (type(error), str(error))
    given = [pair for pair in zip(args, params, strict=True) if not isinstance(pair[1], Shape)]
    kept = [r is arg or isinstance(p, Fields) for r, (arg, p) in zip(result, given, strict=True)]
    return True, (described(tuple(result)), kept)


def converted(function: Any, args: Sequence[Any]) -> list[Any] | None:
    """The values of the arguments; None if one cannot be read."""
    try:
        sinfos = [param.struct_info for param in function.inputs]
        return [to_value(arg, sinfo) for arg, sinfo in zip(args, sinfos, strict=True)]
    except RuntimeCheckError:
        return None


@pytest.mark.rule("FN-1", "FN-4", "FN-5", "MC-2", "MC-3", "MC-7", "MC-9", "MC-11", "MC-12", "MC-13")
@pytest.mark.parametrize("k", range(COUNT))
def test_functions_take_what_the_rules_say(k: int) -> None:
    pytest.importorskip("llvmlite")
    rng = random.Random(f"{SEED}.{k}")
    params = drawn_params(rng)
    text = program(params)
    functions = {t: relaxpy.compile(from_source(text), target=t)["main"] for t in TARGETS}
    print(text)
    for _ in range(40):
        args = drawn_arguments(rng, params)
        values = converted(functions["numpy"], args)
        fit = values is not None and Fit().all(params, values)
        found = {target: outcome(function, params, args) for target, function in functions.items()}
        assert found["reference"][0] == fit, (args, found)
        assert found["numpy"] == found["reference"], args
        assert found["native"] == found["reference"], args


# ---- kernels


@dataclass(frozen=True)
class Buffer:
    """An array of a kernel, contiguous or with declared strides in elements."""

    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...] | None = None


KernelParam: TypeAlias = Buffer | Number
OUT = Buffer("float32", (1,))


def drawn_kernel(rng: random.Random) -> list[KernelParam]:
    """Parameters, the last of which is written."""
    params: list[KernelParam] = []
    for _ in range(rng.randrange(1, 4)):
        shape = tuple(rng.choice(SIZES) for _ in range(rng.randrange(3)))
        steps: tuple[Size, ...] = (
            *(("s", "n", *shape[1:]) * len(shape)),
            rng.choice((1, 1, 2, "s")),
        )
        strides = tuple(rng.choice(steps) for _ in shape[1:]) + steps[-1:] if shape else None
        number = Number(rng.choice((*DTYPES, "int8", "float64")), None)
        array = Buffer(rng.choice(DTYPES), shape, strides if rng.randrange(3) == 0 else None)
        params.append(number if rng.randrange(4) == 0 else array)
    if rng.randrange(3) == 0:
        params.insert(rng.randrange(len(params)), Number(rng.choice(("int64", "int32")), "n"))
    lone = [name for name in "nms" if name not in lone_sizes(params)]
    used = [name for name in lone if any(name in str(size) for size in all_sizes(params))]
    return [*params, *([Buffer("float32", tuple(used))] if used else []), OUT]


def lone_sizes(params: Sequence[KernelParam]) -> set[Size]:
    return {size for size in all_sizes(params) if isinstance(size, str) and size.isidentifier()}


def all_sizes(params: Sequence[KernelParam]) -> Iterator[Size]:
    for param in params:
        if isinstance(param, Buffer):
            yield from (*param.shape, *(param.strides or ()))
        elif param.value is not None:
            yield param.value


def kernel_text(params: Sequence[KernelParam]) -> str:
    """A kernel that stores a number in its last array."""
    scalars = {p.value: p.dtype for p in params if isinstance(p, Number) and p.value is not None}
    names = [
        str(p.value) if isinstance(p, Number) and p.value is not None else f"p{n}"
        for n, p in enumerate(params)
    ]
    kinds = [f"T.{p.dtype}" if isinstance(p, Number) else "T.handle" for p in params]
    lines = [f"{name} = T.int64()" for name in "nms" if name not in scalars]
    wide = {name: f"T.Cast('int64', {name})" for name, dtype in scalars.items() if dtype != "int64"}
    for number, (name, param) in enumerate(zip(names, params, strict=True)):
        if isinstance(param, Buffer):
            shape, strides = (
                "".join(f"{wide.get(s, s)}, " for s in sizes)
                for sizes in (param.shape, param.strides or ())
            )
            strided = f", strides=[{strides}]" if param.strides else ""
            lines.append(f"A{number} = T.match_buffer({name}, ({shape}), {param.dtype!r}{strided})")
    return f"""
@T.prim_func
def main({", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True))}):
    T.func_attr({{"global_symbol": "main"}})
    {(chr(10) + "    ").join(lines)}
    A{len(params) - 1}[0] = T.float32(3)
"""


def holds(dtype: str, value: Any) -> bool:
    """True if a datatype has a number, which is rounded if it is a float."""
    value = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if dtype_of(value) is None or not is_tensor(np.asarray(value)):
        return False
    if dtype == "bool":
        return value in (0, 1)
    if "int" in dtype:
        info = np.iinfo(dtype)
        return math.isfinite(value) and value == int(value) and info.min <= int(value) <= info.max
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype)).type
    with np.errstate(all="ignore"):
        return math.isfinite(float(kind(value))) or not math.isfinite(value)


class KernelFit(Fit):
    """Whether values fit the parameters of a kernel."""

    def kernel(self, params: Sequence[KernelParam], args: Sequence[Any]) -> bool:
        pairs = [*zip(params, args, strict=True)]
        for param, value in pairs:
            if isinstance(param, Number):
                if not holds(param.dtype, value):
                    return False
                if param.value is not None:
                    self.sizes[str(param.value)] = int(value)
        for param, value in pairs:
            if isinstance(param, Buffer):
                if not self.one(Tensor(param.dtype, param.shape), value):
                    return False
                for stride, found in zip(param.strides or (), value.strides, strict=False):
                    if isinstance(stride, str):
                        self.sizes.setdefault(stride, found // value.itemsize)
        if any(found != number_at(size, self.sizes) for found, size in self.later):
            return False
        if not args[-1].flags.writeable:
            return False
        return all(
            found == number_at(stride, self.sizes) * value.itemsize or size < 2 or not value.size
            for param, value in pairs
            if isinstance(param, Buffer) and param.strides is not None
            for stride, found, size in zip(param.strides, value.strides, value.shape, strict=True)
        )


def drawn_kernel_arguments(rng: random.Random, params: Sequence[KernelParam]) -> list[Any]:
    sizes = {name: rng.choice((0, 1, 2, 3)) for name in "nms"}
    args: list[Any] = []
    for param in params:
        if isinstance(param, Number):
            args.append(drawn_value(rng, param, sizes))
            continue
        shape = tuple(number_at(size, sizes) for size in param.shape)
        if param.strides is None:
            args.append(array(rng, shape, param.dtype))
            continue
        strides = [number_at(stride, sizes) for stride in param.strides]
        kind = np.dtype(getattr(ml_dtypes, param.dtype, param.dtype))
        memory = np.zeros(1 + sum(n * s for n, s in zip(shape, strides, strict=True)), kind)
        steps = tuple(stride * kind.itemsize for stride in strides)
        args.append(np.ndarray(shape, kind, memory, 0, steps))
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        at = rng.randrange(len(args))
        args[at] = changed(rng, args[at])
    return args


def stored(function: Any, args: Sequence[Any]) -> tuple[bool, Any]:
    """True and the arguments after the call, or False and the error.

    Of the arrays, only the one that is written may be read-only: the reference names them all.
    """
    plain = [np.asarray(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
    copies = [*map(copied, plain)]
    if isinstance(args[-1], np.ndarray):
        copies[-1].flags.writeable = args[-1].flags.writeable
    try:
        function(*copies)
    except RelaxpyError as error:
        return False, (type(error), str(error))
    return True, [*map(described, copies)]


@pytest.mark.rule("EV-27")
@pytest.mark.parametrize("k", range(COUNT))
def test_kernels_take_what_the_rules_say(k: int) -> None:
    pytest.importorskip("llvmlite")
    rng = random.Random(f"{SEED}.{k}")
    params = drawn_kernel(rng)
    text = kernel_text(params)
    print(text)
    functions = {t: relaxpy.compile(from_source(text), target=t)["main"] for t in TARGETS}
    for _ in range(40):
        args = drawn_kernel_arguments(rng, params)
        values = converted(functions["numpy"], args)
        fit = values is not None and KernelFit().kernel(params, values)
        found = {target: stored(function, args) for target, function in functions.items()}
        assert found["reference"][0] == fit, (args, found)
        assert found["numpy"] == found["reference"], args
        assert found["native"] == found["reference"], args
