"""Types of TIR variables: scalars and pointers to scalars."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from relaxpy.errors import check_type
from relaxpy.ir import hooks
from relaxpy.ir.core.dtype import DataType
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes.base_classes import StructInfo


@dataclass(frozen=True, slots=True)
class PrimType:
    """The type of a scalar with this datatype."""

    dtype: DataType

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", DataType(self.dtype))

    def script(self, **options: object) -> str:
        """The text of the type, as programs write it; the options are those of programs."""
        text: str = hooks.call("script", self, **options)
        return text

    def __struct_info__(self) -> StructInfo:
        """The struct info of the scalars of this type, which it means as an annotation."""
        from relaxpy.ir.relax.nodes.struct_info import PrimStructInfo

        return PrimStructInfo(self.dtype)


@dataclass(frozen=True, slots=True)
class PointerType:
    """The type of a pointer into the memory scope `storage_scope` ("" is global)."""

    element_type: PrimType
    storage_scope: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.element_type, PrimType):
            object.__setattr__(self, "element_type", PrimType(DataType(self.element_type)))
        check_type(self.storage_scope, str, "expected a storage scope as a string")

    def script(self, **options: object) -> str:
        """The text of the type, as programs write it; the options are those of programs."""
        text: str = hooks.call("script", self, **options)
        return text


@lru_cache(maxsize=1 << 8)
def scalar_type(dtype: DataType) -> PrimType:
    """The type of a scalar; equal ones are mostly one object."""
    return PrimType(dtype)


@lru_cache(maxsize=1 << 8)
def pointer_type(dtype: DataType, scope: str) -> PointerType:
    """The type of a pointer to scalars; equal ones are mostly one object."""
    return PointerType(scalar_type(dtype), scope)
