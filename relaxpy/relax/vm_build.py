"""Compilation, under TVM's module name; also in two steps, as tests of TVM do it."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.vm_build")
if TYPE_CHECKING:
    from relaxpy.exec.api.compile import build as build
    from relaxpy.exec.api.executable import VMExecutable as VMExecutable
    from relaxpy.exec.inspect.check_values import check_values as check_values
    from relaxpy.tvm.exec_builder import vm_codegen as _vmcodegen
    from relaxpy.tvm.exec_builder import vm_link as _vmlink
    __all__ = ['VMExecutable', '_vmcodegen', '_vmlink', 'build', 'check_values']
