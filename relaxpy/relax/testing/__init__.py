"""Tools to inspect and test programs."""

from relaxpy.ir.relax.dump_ast import dump_ast as dump_ast
from relaxpy.relax.testing import (
    ast_printer as ast_printer,
    nn as nn,
    runtime_builtin as runtime_builtin,
    transform as transform,
    vm as vm,
)
