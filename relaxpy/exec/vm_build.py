"""TVM's two compilation steps: the functions of a module, and then its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxpy.errors import MisuseError, unexpected
from relaxpy.exec.compile import TargetLike, build
from relaxpy.exec.exec_builder import ExecBuilder
from relaxpy.exec.executable import Executable
from relaxpy.ir.module import IRModule
from relaxpy.support.entry import user_facing


@user_facing
def vm_codegen(builder: ExecBuilder, mod: IRModule, exec_mode: str = "bytecode") -> IRModule:
    """The module, which `vm_link` compiles; the builder has to be new.

    Errors:
        MisuseError (also TypeError, ValueError): an argument is of another class, the mode is
            unknown, or the builder has functions.
    """
    if not isinstance(builder, ExecBuilder) or builder.has_functions:
        raise unexpected(builder, "expected a new ExecBuilder")
    if not isinstance(mod, IRModule) or exec_mode not in ("bytecode", "compiled"):
        raise MisuseError(
            f"expected an IRModule and 'bytecode' or 'compiled', found {type(mod).__name__} and "
            f"{exec_mode!r:.60}",
            about=mod,
        )
    return mod


@user_facing
def vm_link(
    builder: ExecBuilder,
    target: TargetLike | None = None,
    tir_mod: IRModule | None = None,
    tir_pipeline: str | None = "default",
    ext_libs: Sequence[object] | None = None,
    params: Mapping[str, object] | None = None,
    *,
    system_lib: bool | None = None,
) -> Executable:
    """The executable of a module without further passes, or of the functions of the builder.

    Errors:
        MisuseError (also TypeError, ValueError): there are external libraries, or an option has an
            unknown value.
        CompileError: the module cannot run on this target.
    """
    if ext_libs:
        raise MisuseError("external libraries are not linked; register packed functions instead")
    if tir_mod is None:
        return builder.get()
    return build(tir_mod, target, params, None, tir_pipeline, system_lib=system_lib)
