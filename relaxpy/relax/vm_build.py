"""Compilation, under TVM's module name; also in two steps, as tests of TVM do it."""

from relaxpy.exec.compile import build as build
from relaxpy.exec.executable import VMExecutable as VMExecutable
from relaxpy.exec.vm_build import vm_codegen as _vmcodegen, vm_link as _vmlink

__all__ = ["VMExecutable", "_vmcodegen", "_vmlink", "build"]
