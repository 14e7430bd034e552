"""Modules with one product of matrices."""

from relaxpy.ir.relax.frontend.testing import get_relax_matmul_module as get_relax_matmul_module
