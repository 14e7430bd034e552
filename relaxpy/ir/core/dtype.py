"""Datatypes: the scalar and vector types of tensor elements and PrimExprs, by name."""

from __future__ import annotations

import re
from contextlib import suppress
from enum import IntEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import ml_dtypes
import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, close_names, unexpected

if TYPE_CHECKING:
    import numpy.typing as npt

Array: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[Any]]
"""An array of NumPy, of any shape and datatype."""

_SMALL_FLOATS = {
    "float8_e3m4": 8,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 8,
    "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8,
    "float8_e5m2": 8,
    "float8_e5m2fnuz": 8,
    "float8_e8m0fnu": 8,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
    "float4_e2m1fn": 4,
}
_PATTERN = re.compile(
    rf"({'|'.join(sorted(_SMALL_FLOATS, reverse=True))}|int|uint|float|bfloat|handle)"
    r"([0-9]{0,5})(?:x(vscalex)?([0-9]{1,5}))?"
)


class DataTypeCode(IntEnum):
    """The families of datatypes as numbers: the type codes of DLPack and TVM."""

    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    BFLOAT = 4
    Float8E3M4 = 7
    Float8E4M3 = 8
    Float8E4M3B11FNUZ = 9
    Float8E4M3FN = 10
    Float8E4M3FNUZ = 11
    Float8E5M2 = 12
    Float8E5M2FNUZ = 13
    Float8E8M0FNU = 14
    Float6E2M3FN = 15
    Float6E3M2FN = 16
    Float4E2M1FN = 17


_FAMILIES = ("int", "uint", "float", "handle", "bfloat", *_SMALL_FLOATS)
_CODES = {name: int(code) for name, code in zip(_FAMILIES, DataTypeCode, strict=True)}
_RELAX_BITS = {
    "int": frozenset((1, 8, 16, 32, 64)),
    "uint": frozenset((1, 8, 16, 32, 64)),
    "float": frozenset((16, 32, 64)),
}
# Abbreviations that other libraries use for the beginning of a name, or for the whole name.
_LONG_FORMS = {"fp": "float", "f": "float", "bf": "bfloat", "i": "int", "u": "uint"}
_LONG_FORMS |= {"half": "float16", "double": "float64", "long": "int64", "boolean": "bool"}
_ABBREVIATION = re.compile(rf"^(?:{'|'.join(sorted(_LONG_FORMS, key=len, reverse=True))})(?=\d|$)")


class _Parsed(NamedTuple):
    """The components of a datatype; `text` is its canonical name."""

    text: str
    family: str
    bits: int
    lanes: int
    scalable: bool
    element: str
    vector: str


_VOID = _Parsed("", "handle", 0, 0, False, "", "")


def _parse(text: str) -> _Parsed:
    if text in ("", "void", "handle0", "handle0x0", "handle64x0"):
        return _VOID
    if text == "bool" or text.startswith("boolx"):
        text = text.replace("bool", "uint1", 1)
    match = _PATTERN.fullmatch(text)
    if match is None or (match[2] and match[1] in _SMALL_FLOATS):
        known = [
            "bool",
            "bfloat16",
            *(f"{f}{b}" for f, bs in _RELAX_BITS.items() for b in bs if b > 1),
        ]
        expanded = _ABBREVIATION.sub(lambda m: _LONG_FORMS[m[0]], text)
        hint = f"did you mean {expanded!r}?" if expanded in known else close_names(text, known)
        raise MisuseError(f"unknown dtype {text!r:.60}", rule="DT-1", hint=hint, about=text)
    family, digits, scalable, lane_digits = match.groups()
    fixed = {"handle": 64, "bfloat": 16, **_SMALL_FLOATS}.get(family)
    bits = int(digits) if digits else fixed or 32
    lanes = int(lane_digits) if lane_digits else 1
    if not 0 < bits <= 65535 or not 0 < lanes <= 65535 or bits != (fixed or bits):
        raise MisuseError(f"dtype {text!r} has an impossible width", rule="DT-8", about=text)
    stem = family if family == "handle" or family in _SMALL_FLOATS else f"{family}{bits}"
    element = "bool" if stem == "uint1" else stem
    if lanes == 1 and not scalable:
        return _Parsed(element, family, bits, 1, False, element, "")
    vector = f"x{scalable or ''}{lanes}"
    return _Parsed(stem + vector, family, bits, lanes, bool(scalable), element, vector)


class DataType(str):
    """A datatype, which is also the string that names it: `DataType("float32") == "float32"`.

    `""` is Void: in struct info, a datatype that is not known at compile time (DT-3, DT-7).
    `"bool"` is UInt with one bit (DT-5).

    Errors:
        MisuseError (also ValueError, TypeError): the text does not name a datatype.
    """

    __slots__ = (
        "_element",
        "bits",
        "family",
        "is_bool",
        "is_float",
        "is_int",
        "is_scalable",
        "is_void",
        "lanes",
        "vector",
    )
    _element: str
    family: str
    """`int`, `uint`, `float`, `handle`, `bfloat`, or the full name of a small float."""
    bits: int
    """The number of bits of one lane."""
    lanes: int
    """The number of lanes: 1 for a scalar, 0 for Void."""
    vector: str
    """The suffix of a vector's name, `x4` or `xvscalex4`; empty for a scalar."""
    is_scalable: bool
    """True if the hardware decides by which factor a vector has more than `lanes` lanes."""
    is_void: bool
    """True if this is Void, a datatype not known at compile time."""
    is_int: bool
    """True if this is Int or UInt (Bool included)."""
    is_bool: bool
    """True if one lane is a boolean."""
    is_float: bool
    """True if this is a floating-point datatype of any format."""

    def __new__(cls, text: str | Self | npt.DTypeLike = "") -> Self:
        """The datatype for a name, a NumPy type or a Python scalar class."""
        if isinstance(text, cls):
            return text
        if not isinstance(text, str):
            text = _name_of(text)
        return cls._named(str(text))

    @classmethod
    @lru_cache(maxsize=1 << 12)
    def _named(cls, text: str) -> Self:
        parsed = _parse(text)
        new = super().__new__(cls, parsed.text)
        is_int = parsed.family in ("int", "uint")
        for name, value in (
            ("_element", parsed.element),
            ("family", parsed.family),
            ("bits", parsed.bits),
            ("lanes", parsed.lanes),
            ("vector", parsed.vector),
            ("is_scalable", parsed.scalable),
            ("is_void", not parsed.text),
            ("is_int", is_int),
            ("is_bool", parsed.family == "uint" and parsed.bits == 1),
            ("is_float", not is_int and parsed.family != "handle"),
        ):
            object.__setattr__(new, name, value)
        return new

    @override
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a datatype cannot be changed")

    @override
    def __delattr__(self, name: str) -> None:
        raise AttributeError("a datatype cannot be changed")

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return DataType, (str(self),)

    @property
    def dtype(self) -> Self:
        """This datatype: in later versions of TVM than v0.22, `sinfo.dtype.dtype` is its name."""
        return self

    @property
    def type_code(self) -> int:
        """The type code of the family in DLPack and TVM."""
        return _CODES[self.family]

    @property
    def itemsize(self) -> int:
        """The number of bytes of one element with all its lanes, rounded up.

        Errors:
            MisuseError (also ValueError): the vector is scalable, so that its size is not known.
        """
        if self.is_scalable:
            raise MisuseError(f"the size of {self} is not known at compile time")
        return (self.bits * max(1, self.lanes) + 7) // 8

    @property
    def element(self) -> DataType:
        """The datatype of one lane."""
        return DataType(self._element) if self.vector else self

    @property
    def relax_defect(self) -> str | None:
        """The reason why struct info may not have this datatype (DT-2, DT-4, DT-8), or None."""
        family, bits = self.family, self.bits
        if self.is_void:
            return None
        if family == "handle":
            return "DT-4: a handle is not a datatype of Relax values"
        if self.vector:
            return "DT-2: vector datatypes are not allowed in Relax"
        if bits not in _RELAX_BITS.get(family, (bits,)):
            allowed = ", ".join(map(str, sorted(_RELAX_BITS[family])))
            return f"DT-8: {family} comes in {allowed} bits"
        return None

    def with_lanes(self, lanes: int) -> DataType:
        """The vector datatype with `lanes` of these elements."""
        return DataType(self._element if lanes == 1 else f"{self._element}x{lanes}")

    def spread(self, over: DataType) -> DataType:
        """The datatype with this element for each lane of `over`."""
        if not over.vector:
            return self
        lanes = self.lanes * over.lanes
        if over.is_scalable:
            return DataType(f"{self._element}xvscalex{lanes}")
        return self.with_lanes(lanes)

    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy (or ml_dtypes) type of one element.

        Errors:
            MisuseError: NumPy does not have this type.
        """
        return _numpy_type(self.element)

    def of_elements(self) -> np.dtype[np.generic]:
        """The NumPy (or ml_dtypes) type of a tensor whose elements have this datatype.

        Errors:
            MisuseError: it is a vector (DT-2), a handle (DT-4) or Void, or NumPy does not have it.
        """
        if self.vector or self.family == "handle":
            rule = "DT-2" if self.vector else "DT-3" if self.is_void else "DT-4"
            raise MisuseError(
                f"a tensor has no elements of datatype {self or 'void'}",
                rule=rule,
                hint="use a datatype such as float32, int64 or bool",
                about=self,
            )
        return self.numpy()


@cache
def _numpy_type(name: str) -> np.dtype[np.generic]:
    if name == "bool":
        return np.dtype(np.bool_)
    if name != "float128":  # NumPy's float128 has 80 bits where it exists
        with suppress(TypeError):
            return np.dtype(name)
    scalar_type: type[np.generic] | None = getattr(ml_dtypes, name, None)
    if scalar_type is None:
        _, _, widths = (DataType(name).relax_defect or "").rpartition("DT-8: ")
        raise MisuseError(f"dtype {name!r} has no NumPy form", rule="DT-8", hint=widths or None)
    return np.dtype(scalar_type)


def _name_of(value: Any) -> str:
    """The name of a NumPy type or of a Python scalar class."""
    plain = {bool: "bool", int: "int64", float: "float64", None: ""}
    try:
        if value in plain:
            return plain[value]
        name: str = np.dtype(value).name
        return name
    except (TypeError, ValueError):
        hint = "dimensions are written in a tuple, as in (4, 4)" if isinstance(value, int) else None
        if type(value).__module__ == "torch":
            hint = f"write {str(value).rpartition('.')[2]!r}"
        raise unexpected(value, "expected a dtype", rule="DT-1", hint=hint) from None


BOOL = DataType("bool")
INT32 = DataType("int32")
INT64 = DataType("int64")
FLOAT32 = DataType("float32")
FLOAT64 = DataType("float64")
HANDLE = DataType("handle")
VOID = DataType("")


def accumulator(dtype: DataType) -> DataType:
    """The datatype in which elements are summed: float32 for narrower floats."""
    return FLOAT32 if dtype.is_float and dtype.bits < FLOAT32.bits else dtype
