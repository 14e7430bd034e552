"""Compiled programs."""

from relaxpy.exec.executable import Executable as Executable
