"""Parameters that importers attach to functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.expect import expect
from relaxpy.support.entry import user_facing


@user_facing
def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[Any]]]:
    """The module without the attribute `params` of functions, and the arrays in it by function.

    Errors:
        MisuseError (also ValueError): an attribute `params` is not a list of arrays.
    """
    expect(mod, IRModule)
    result, params = mod.clone(), {}
    for name, func in mod.functions_by_name.items():
        if "params" not in func.attrs:
            continue
        values: Any = func.attrs["params"]
        arrays = list(values) if isinstance(values, (list, tuple)) else [None]
        if not all(isinstance(array, np.ndarray) for array in arrays):
            raise MisuseError(
                f"the attribute params of {name} is a list of arrays, found {values!r:.60}",
                about=mod,
            )
        params[name] = arrays
        result[name] = func.without_attr("params")
    return result, params
