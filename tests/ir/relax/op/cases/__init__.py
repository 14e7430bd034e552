"""What each operator is on numbers: calls of it on small inputs, beside what NumPy says in float64.

Each module has the rows of one family, from its function `cases`. Nothing here uses relaxpy's
kernels: `expected` is the definition of the operator.
"""

from itertools import chain
from pkgutil import iter_modules, resolve_name

from tests.ir.relax.op.cases.case import Array, Case, floats, integers

__all__ = ["CASES", "Array", "Case", "floats", "integers"]

_families = (module.name for module in iter_modules(__path__) if module.name != "case")
CASES: list[Case] = [
    *chain.from_iterable(resolve_name(f"{__name__}.{name}:cases")() for name in _families)
]
