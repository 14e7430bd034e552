"""Relax functions as Python functions."""

from relaxpy.exec.python_module import RelaxToPyFuncConverter as RelaxToPyFuncConverter
