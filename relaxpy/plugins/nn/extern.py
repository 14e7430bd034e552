"""External functions that models call by the names of their symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from relaxpy.errors import CompileError, MisuseError, UnknownNameError, close_names, unexpected
from relaxpy.ir import hooks
from relaxpy.ir.relax.nodes import Expr, PrimValue, StringImm, StructInfo, Tuple
from relaxpy.ir.relax.op import call_dps_packed
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.nn.core import Tensor, items_of, wrap_nested
from relaxpy.plugins.nn.session import current_session
from relaxpy.support.entry import user_facing

_SUFFIXES = {"cpp": ".cpp", "cu": ".cu", "obj": ".o", "wasm": ".wasm"}


def as_argument(value: object, float_dtype: str = "float64") -> Expr:
    """The argument of an external function: a tensor, a scalar, a string, or a tuple of those.

    Errors:
        MisuseError (also TypeError): the value is something else.
    """
    match value:
        case Tensor():
            return value._expr
        case str():
            return StringImm(value)
        case int():
            return PrimValue(tir.IntImm("int64", value))
        case float():
            return PrimValue(tir.FloatImm(float_dtype, value))
        case tir.PrimExpr():
            return PrimValue(value)
        case tuple() | list():
            return Tuple(tuple(as_argument(field, float_dtype) for field in value))
        case _:
            raise unexpected(
                value, "an external function takes tensors, scalars, strings and tuples"
            )


def output_sinfo(out: object) -> StructInfo:
    """The struct info of the tensors, one or a sequence, that describe results."""
    sinfo = as_argument(out).struct_info
    assert sinfo is not None
    return sinfo


def call_external(name: str, args: Sequence[object], out_sinfo: StructInfo) -> Any:
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
