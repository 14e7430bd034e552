"""The effects of models: what they print, and caches of keys and values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from relaxpy.errors import BuilderStateError, MisuseError
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import ObjectStructInfo, ShapeExpr, TensorStructInfo, Var
from relaxpy.ir.relax.op import null_value
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.nn import core
from relaxpy.support.entry import user_facing


class IOEffect(core.Effect):
    """The order of prints and other calls of `debug_func`.

    Its state is a null object, which each call takes from the one before it.
    """

    def __init__(self) -> None:
        self.effect: Var | None = None

    @override
    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        return [builder.emit(null_value(), f"{name_hint}.io")]

    @override
    def create(self, name_hint: str) -> list[Var]:
        return [Var(f"{name_hint}.io", ObjectStructInfo())]

    @override
    def set_state(self, state_vars: list[Var]) -> None:
        (self.effect,) = state_vars

    @override
    def finalize(self) -> list[Var]:
        result, self.effect = self.effect, None
        assert result is not None
        return [result]


class KVCache(core.Effect):
    """Rows of keys or values: `append` adds some at the end, and `view` is all of them.

    The cache has room for `init_seq_len` rows of shape `unit_shape`, and grows when it is full.
    """

    def __init__(
        self, init_seq_len: int, unit_shape: Sequence[int], dtype: str | None = None
    ) -> None:
        """Errors: MisuseError (also TypeError) if a size is not an integer from 0."""
        sizes = [init_seq_len, *core.items_of(unit_shape, "sizes")]
        for size in sizes:
            if not isinstance(size, (int, np.integer)) or size < 0:
                raise MisuseError(
                    f"a cache has literal sizes, found {size!r:.60}", about=unit_shape
                )
        self.init_seq_len, *self.unit_shape = map(int, sizes)
        self.dtype = dtype or core.get_default_dtype()
        self.cache: Var | None = None

    @override
    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        shape = ShapeExpr((self.init_seq_len, *self.unit_shape))  # type: ignore[arg-type]
        create = R.call_pure_packed(
            "vm.builtin.attention_kv_cache_create",
            R.zeros(shape, self.dtype),
            shape,
            0,
            sinfo_args=ObjectStructInfo(),
        )
        return [builder.emit(create, name_hint)]

    @override
    def create(self, name_hint: str) -> list[Var]:
        return [Var(name_hint, ObjectStructInfo())]

    @override
    def set_state(self, state_vars: list[Var]) -> None:
        (self.cache,) = state_vars

    @override
    def finalize(self) -> list[Var]:
        result, self.cache = self._present(), None
        return [result]

    @override
    def to(self, dtype: str | None = None) -> None:
        """Change the datatype of the rows, if one is passed."""
        self.dtype = dtype or self.dtype

    @user_facing
    def view(self, seq_len: int | tir.PrimExpr) -> core.Tensor:
        """The rows; it is an error at run time if their number is not `seq_len`."""
        shape = ShapeExpr((seq_len, *self.unit_shape))  # type: ignore[arg-type]
        view = R.call_pure_packed(
            "vm.builtin.attention_kv_cache_view",
            self._present(),
            shape,
            sinfo_args=TensorStructInfo(shape, self.dtype),  # type: ignore[arg-type]
        )
        return core.Tensor(_expr=core.current_builder().emit(view))

    @user_facing
    def append(self, new_element: core.Tensor) -> None:
        """Add rows at the end.

        Errors:
            MisuseError (also TypeError): the rows have another datatype.
        """
        rows = core.expr_of(new_element)
        if new_element.dtype != self.dtype:
            raise MisuseError(
                f"a cache of {self.dtype} cannot contain rows of {new_element.dtype}",
                about=new_element,
            )
        append = R.call_inplace_packed(
            "vm.builtin.attention_kv_cache_append",
            self._present(),
            rows,
            inplace_indices=[0],
            sinfo_args=ObjectStructInfo(),
        )
        self.cache = core.current_builder().emit(append)

    def _present(self) -> Var:
        if self.cache is None:
            raise BuilderStateError(
                "a cache has a state only in a method that is being exported",
                hint='the method needs "effect_mode": "plain" or "packed"',
            )
        return self.cache
