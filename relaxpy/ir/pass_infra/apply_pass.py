"""A pass for some of the functions of a module."""

from __future__ import annotations

import re

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.nodes import BaseFunc, ExternFunc, GlobalVar
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing


@dataclass(frozen=True)
class ApplyPassToFunction(Pass):
    """Applies a pass to the functions whose whole name the regular expression matches.

    The pass sees packed functions with the same signatures instead of the others.

    Errors:
        MisuseError: `pass_` is not a pass, or `func_name_regex` is not a regular expression.
        TransformError: no name matches, and `error_if_no_function_matches_regex` is set.
    """

    pass_: Pass
    func_name_regex: str
    error_if_no_function_matches_regex: bool = False

    @user_facing
    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            re.compile(self.func_name_regex)
        except re.error as error:
            raise MisuseError(
                f"expected a regular expression, found {self.func_name_regex!r:.60}: {error}",
                about=self.func_name_regex,
            ) from None

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        chosen = {v for v in mod if re.fullmatch(self.func_name_regex, v.name_hint)}
        if not chosen:
            if self.error_if_no_function_matches_regex:
                names = ", ".join(v.name_hint for v in mod) or "none"
                raise TransformError(
                    f"no function name matches {self.func_name_regex!r}; there are {names}"
                )
            return mod
        # Private functions are made public for the pass, since their users may be hidden.
        private = {v for v in chosen if "global_symbol" not in mod[v].attrs}
        marks = {v: mod[v].with_attr("global_symbol", v.name_hint) for v in private}
        hidden = {v: ExternFunc(v.name_hint, func.struct_info) for v, func in mod.items()}
        seen = IRModule(
            {v: marks.get(v, func) if v in chosen else hidden[v] for v, func in mod.items()},
            mod.attrs,
            mod.global_infos,
        )
        after = self.pass_(seen)
        if after is seen:
            return mod
        functions: dict[GlobalVar, BaseFunc] = {}
        for var, func in mod.items():
            if var not in chosen:
                functions[var] = func
            elif var in private and var in after:
                same = after[var] is marks[var]
                functions[var] = func if same else after[var].without_attr("global_symbol")
            elif var in after:
                functions[var] = after[var]
        functions |= {v: func for v, func in after.items() if v not in mod}
        return IRModule(functions, after.attrs, after.global_infos)
