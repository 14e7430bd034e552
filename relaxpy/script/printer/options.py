"""The options of the printer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from relaxpy.errors import MisuseError, check_type, close_names, unexpected
from relaxpy.ir.equality.mismatch import AccessPath
from relaxpy.ir.short_text.document import INDENT, WIDTH
from relaxpy.script.printer.names import is_name
from relaxpy.support.dataclass import dataclass

_SWITCHES = (
    "show_meta",
    "show_all_struct_info",
    "verbose_expr",
    "syntax_sugar",
    "show_object_address",
    "print_line_numbers",
)

#: The names of options in TVM after v0.27.
_NEWER = {"show_all_ty": "show_all_struct_info"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a program is printed.

    `name` is the name of the printed module or function. `show_meta` writes large constants, too.
    `module_alias` is the name of the module inside its functions, "" for that of the class. Without
    `show_all_struct_info` bindings have no annotations. With `verbose_expr` the text of a part of a
    program begins with lines that describe its free variables. Without `syntax_sugar` each loop,
    axis, allocation and parameter of a kernel is a statement by itself. With `show_object_address`
    the names of variables end in a number that identifies the object.

    `obj_to_underline` and `path_to_underline` are components of the program, by themselves or by
    their paths; `obj_to_annotate` and `path_to_annotate` have the comment for each. Lines have
    numbers with `print_line_numbers`. If `num_context_lines` is not negative, only lines at most
    that far from an underlined one are printed.

    Units:
        indent_spaces, width  characters
        num_context_lines     lines
    """

    name: str | None = None
    show_meta: bool = False
    ir_prefix: str = "I"
    tir_prefix: str = "T"
    relax_prefix: str = "R"
    module_alias: str = "cls"
    indent_spaces: int = INDENT
    show_all_struct_info: bool = True
    verbose_expr: bool = False
    syntax_sugar: bool = True
    show_object_address: bool = False
    width: int = WIDTH
    print_line_numbers: bool = False
    num_context_lines: int = -1
    obj_to_underline: Sequence[object] | None = None
    obj_to_annotate: Mapping[object, str] | None = None
    path_to_underline: Sequence[AccessPath] | None = None
    path_to_annotate: Mapping[AccessPath, str] | None = None

    def __post_init__(self) -> None:
        for key in ("ir_prefix", "tir_prefix", "relax_prefix"):
            _require_name(key, getattr(self, key))
        if self.name is not None:
            _require_name("name", self.name)
        if self.module_alias != "":
            _require_name("module_alias", self.module_alias)
        names = [self.ir_prefix, self.tir_prefix, self.relax_prefix, self.module_alias]
        names += [] if self.name is None else [self.name]
        if len(set(names)) < len(names):
            raise MisuseError(
                f"the prefixes, the module's alias and the name must differ from each other, "
                f"found {', '.join(names)}"
            )
        for key in _SWITCHES:
            value = getattr(self, key)
            check_type(value, bool, f"{key} is True or False")
        for key in ("obj_to_underline", "path_to_underline"):
            value = getattr(self, key)
            if value is not None and not isinstance(value, (list, tuple)):
                raise unexpected(value, f"{key} is a list")
        for key in ("obj_to_annotate", "path_to_annotate"):
            value = getattr(self, key)
            if value is not None and not isinstance(value, Mapping):
                raise unexpected(value, f"{key} is a mapping to texts")
        for key in ("indent_spaces", "width"):
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise unexpected(value, f"{key} is a positive integer")

    @staticmethod
    def of(keywords: Mapping[str, object]) -> Options:
        """Create options from keywords.

        Errors:
            MisuseError (also TypeError, ValueError): an option is unknown or has a wrong value.
        """
        known = [f.name for f in fields(Options)]
        keywords = {_NEWER.get(key, key): value for key, value in keywords.items()}
        for key, value in keywords.items():
            if key not in known:
                raise MisuseError(
                    f"the printer has no option {key!r}; it has {', '.join(known)}",
                    about=value,
                    hint=close_names(key, known),
                )
        return Options(**keywords)  # type: ignore[arg-type]


def _require_name(key: str, value: object) -> None:
    if not isinstance(value, str) or not is_name(value):
        raise unexpected(value, f"{key} is a Python name")
    if value.startswith("__") or value in ("_", "metadata", "range"):
        raise MisuseError(
            f"{key} cannot be {value!r:.60}, which is reserved in a program", about=value
        )
