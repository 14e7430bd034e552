"""Compilation, under TVM's module name."""

from relaxpy.exec.compile import build as build
from relaxpy.exec.executable import VMExecutable as VMExecutable
