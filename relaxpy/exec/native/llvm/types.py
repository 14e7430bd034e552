"""The types of LLVM: scalars, and vectors of them."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.support.dataclass import dataclass

FLOATS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
"""The floating-point types, and their bits."""
SUFFIXES = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}


@dataclass(frozen=True, slots=True)
class Type:
    """A scalar type of LLVM such as `float` or `i64`, or a vector of `lanes` of it."""

    element: str
    lanes: int = 1

    @override
    def __str__(self) -> str:
        return self.element if self.lanes == 1 else f"<{self.lanes} x {self.element}>"

    @property
    def is_float(self) -> bool:
        """True if the elements are floating-point numbers."""
        return self.element in FLOATS

    @property
    def bits(self) -> int:
        """The size of an element in bits."""
        return FLOATS.get(self.element) or (64 if self.element == "ptr" else int(self.element[1:]))

    @property
    def alignment(self) -> int:
        """The size of an element in bytes, which is also its alignment."""
        return max(1, self.bits // 8)

    @property
    def suffix(self) -> str:
        """The type in the name of an intrinsic, such as `v16f32`."""
        element = SUFFIXES.get(self.element, self.element)
        return element if self.lanes == 1 else f"v{self.lanes}{element}"

    def of(self, element: str) -> Type:
        """The type with the same number of lanes of `element`."""
        return Type(element, self.lanes)


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of the result and of the parameters of a function."""

    result: Type
    params: tuple[Type, ...]

    @override
    def __str__(self) -> str:
        return f"{self.result} ({', '.join(map(str, self.params))})"


BOOL = Type("i1")
I8 = Type("i8")
I16 = Type("i16")
I32 = Type("i32")
I64 = Type("i64")
I128 = Type("i128")
F32 = Type("float")
F64 = Type("double")
POINTER = Type("ptr")
VOID = Type("void")
