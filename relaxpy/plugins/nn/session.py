"""The export that is in progress, with its effects and external functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import field
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from typing_extensions import override

from relaxpy.errors import (
    BuilderStateError,
    CompileError,
    MisuseError,
    UnknownNameError,
    close_names,
    unexpected,
)
from relaxpy.ir import hooks
from relaxpy.ir.ops import call_dps_packed, null_value
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.nn import core
from relaxpy.plugins.nn.core import Tensor, items_of, wrap_nested
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.scopes import setting

_current: ContextVar[Session | None] = ContextVar("relaxpy_nn_session", default=None)


class ImpureMethod(Exception):  # noqa: N818  # a signal to the exporter, not an error
    """A method that is exported as pure calls a function with effects; it is exported again."""


@dataclass
class Session:
    """One call of `export_tvm`; `pure` says how the present method is exported.

    `omitted` has the mode for each variable that a mode leaves out of the parameters.
    """

    builder: BlockBuilder
    io_effect: IOEffect | None
    extern_mods: list[ExternModule] = field(default_factory=list)
    omitted: dict[rx.Var, str] = field(default_factory=dict)
    pure: bool = True

    def active(self) -> AbstractContextManager[None]:
        """The scope in which this export is the current one."""
        return setting(_current, self)

    def require_impure(self) -> None:
        """Note that the present method has effects. Errors: ImpureMethod, if it was pure so far."""
        if self.pure:
            raise ImpureMethod

    def add_extern(self, mod: ExternModule) -> None:
        """Add a module of external functions. Errors: MisuseError if it has a symbol again."""
        known = {symbol for other in self.extern_mods for symbol in other.symbols}
        if repeated := sorted(known & mod.symbols.keys()):
            raise MisuseError(
                f"external modules have symbols twice: {', '.join(repeated)}", about=mod
            )
        self.extern_mods.append(mod)


def current_session() -> Session | None:
    """The export that is in progress, or None."""
    return _current.get()


def required_session(action: str) -> Session:
    """The export that is in progress. Errors: BuilderStateError (also RuntimeError) if none is."""
    session = _current.get()
    if session is None:
        raise BuilderStateError(
            f"{action} belongs in a method that is being exported",
            hint="call it in a method of an nn.Module, and export_tvm exports the method",
        )
    return session


_SUFFIXES = {"cpp": ".cpp", "cu": ".cu", "obj": ".o", "wasm": ".wasm"}


def as_argument(value: object, float_dtype: str = "float64") -> rx.Expr:
    """The argument of an external function: a tensor, a scalar, a string, or a tuple of those.

    Errors:
        MisuseError (also TypeError): the value is something else.
    """
    match value:
        case Tensor():
            return value._expr
        case str():
            return rx.StringImm(value)
        case int():
            return rx.PrimValue(tir.IntImm("int64", value))
        case float():
            return rx.PrimValue(tir.FloatImm(float_dtype, value))
        case tir.PrimExpr():
            return rx.PrimValue(value)
        case tuple() | list():
            return rx.Tuple(tuple(as_argument(field, float_dtype) for field in value))
        case _:
            raise unexpected(
                value, "an external function takes tensors, scalars, strings and tuples"
            )


def output_sinfo(out: object) -> rx.StructInfo:
    """The struct info of the tensors, one or a sequence, that describe results."""
    sinfo = as_argument(out).struct_info
    assert sinfo is not None
    return sinfo


def call_external(name: str, args: Sequence[object], out_sinfo: rx.StructInfo) -> Any:
    """Call the packed function `name`, which writes its results to its last arguments.

    The method that is being exported becomes impure, since the function may have effects.
    """
    operands = as_argument(items_of(args, "arguments"))
    if (session := current_session()) is not None:
        session.require_impure()
    return wrap_nested(call_dps_packed(name, operands, out_sinfo), name)


class ExternModule:
    """External functions by their symbols.

    Each symbol has a Python function from its arguments to placeholders of its results.

    `module["symbol"](x, y)` calls one. Where the program runs, a packed function must be
    registered under the symbol; it writes to its last arguments, the results.
    """

    def __init__(self, symbols: Mapping[str, Callable[..., Any]]) -> None:
        if not isinstance(symbols, Mapping) or not all(map(callable, symbols.values())):
            raise unexpected(symbols, "symbols is a mapping from names to functions")
        self.symbols = dict(symbols)

    @user_facing
    def __getitem__(self, func_name: str) -> Callable[..., Any]:
        """The function of a symbol. Errors: UnknownNameError (also KeyError) if there is none."""
        if func_name not in self.symbols:
            raise UnknownNameError(
                f"the external module has no symbol {func_name!r}",
                hint=close_names(str(func_name), self.symbols),
                about=func_name,
            )
        describe = self.symbols[func_name]

        def call(*args: object) -> Any:
            return call_external(func_name, args, output_sinfo(describe(*args)))

        return call

    @user_facing
    def load(self) -> dict[str, Callable[..., Any]]:
        """The packed function that is registered for each symbol.

        Errors:
            CompileError: there is none for a symbol; compiled code is not loaded.
        """
        found = {symbol: hooks.call("packed_function", symbol, True) for symbol in self.symbols}
        if missing := [symbol for symbol, function in found.items() if function is None]:
            raise CompileError(
                f"no Python function is registered as {', '.join(missing)}, and relaxpy neither "
                "compiles nor loads C++",
                hint=f'write @relaxpy.register_func("{missing[0]}") above a function that writes '
                "its results to its last arguments",
            )
        return found


class ObjectModule(ExternModule):
    """External functions in a compiled file.

    Errors:
        MisuseError (also ValueError): there is no such file.
    """

    @user_facing
    def __init__(
        self, symbols: Mapping[str, Callable[..., Any]], filepath: str | PathLike[str]
    ) -> None:
        self.filepath = Path(filepath)
        if not self.filepath.is_file():
            raise MisuseError(f"there is no file {str(self.filepath)!r}", about=filepath)
        super().__init__(symbols)


class SourceModule(ExternModule):
    """External functions in C++ ("cpp") or CUDA ("cu"), as text or as the path of a file.

    Errors:
        MisuseError (also ValueError): a format is unknown, or there is no such file.
    """

    @user_facing
    def __init__(
        self,
        symbols: Mapping[str, Callable[..., Any]],
        source_code: str | Path,
        source_format: str,
        compile_options: Sequence[str] | None = None,
        compiler: str | None = None,
        output_format: str = "obj",
    ) -> None:
        for found, known in ((source_format, ("cpp", "cu")), (output_format, ("obj", "wasm"))):
            if found not in known:
                raise MisuseError(f"expected a format {' or '.join(known)}, found {found!r:.60}")
        self.source_code = _read(source_code)
        self.source_suffix = _SUFFIXES[source_format]
        self.output_suffix = _SUFFIXES[output_format]
        self.compile_options = list(compile_options or ())
        self.compiler = compiler
        super().__init__(symbols)

    def compile(self, output_path: Path) -> NoReturn:
        """Errors: CompileError, since relaxpy needs no compiler and calls none."""
        raise CompileError(
            f"cannot compile {output_path.name}: relaxpy calls no compiler of C++",
            hint="register a Python function for each symbol",
        )


def _read(source_code: str | Path) -> str:
    """The text of a file, or the text itself."""
    if isinstance(source_code, str) and ("\n" in source_code or not Path(source_code).is_file()):
        return source_code
    path = Path(source_code)
    if not path.is_file():
        raise MisuseError(f"there is no file {str(path)!r}", about=source_code)
    return path.read_text(encoding="utf-8")


class IOEffect(core.Effect):
    """The order of prints and other calls of `debug_func`.

    Its state is a null object, which each call takes from the one before it.
    """

    def __init__(self) -> None:
        self.effect: rx.Var | None = None

    @override
    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[rx.Var]:
        return [builder.emit(null_value(), f"{name_hint}.io")]

    @override
    def create(self, name_hint: str) -> list[rx.Var]:
        return [rx.Var(f"{name_hint}.io", rx.ObjectStructInfo())]

    @override
    def set_state(self, state_vars: list[rx.Var]) -> None:
        (self.effect,) = state_vars

    @override
    def finalize(self) -> list[rx.Var]:
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
        self.cache: rx.Var | None = None

    @override
    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[rx.Var]:
        shape = rx.ShapeExpr((self.init_seq_len, *self.unit_shape))
        create = R.call_pure_packed(
            "vm.builtin.attention_kv_cache_create",
            R.zeros(shape, self.dtype),
            shape,
            0,
            sinfo_args=rx.ObjectStructInfo(),
        )
        return [builder.emit(create, name_hint)]

    @override
    def create(self, name_hint: str) -> list[rx.Var]:
        return [rx.Var(name_hint, rx.ObjectStructInfo())]

    @override
    def set_state(self, state_vars: list[rx.Var]) -> None:
        (self.cache,) = state_vars

    @override
    def finalize(self) -> list[rx.Var]:
        result, self.cache = self._present(), None
        return [result]

    @override
    def to(self, dtype: str | None = None) -> None:
        """Change the datatype of the rows, if one is passed."""
        self.dtype = dtype or self.dtype

    @user_facing
    def view(self, seq_len: int | tir.PrimExpr) -> core.Tensor:
        """The rows; it is an error at run time if their number is not `seq_len`."""
        shape = rx.ShapeExpr((seq_len, *self.unit_shape))
        view = R.call_pure_packed(
            "vm.builtin.attention_kv_cache_view",
            self._present(),
            shape,
            sinfo_args=rx.TensorStructInfo(shape, self.dtype),
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
            sinfo_args=rx.ObjectStructInfo(),
        )
        self.cache = core.current_builder().emit(append)

    def _present(self) -> rx.Var:
        if self.cache is None:
            raise BuilderStateError(
                "a cache has a state only in a method that is being exported",
                hint='the method needs "effect_mode": "plain" or "packed"',
            )
        return self.cache
