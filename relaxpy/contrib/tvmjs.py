"""Folders of weights, as TVM and MLC store them."""

from relaxpy.exec.runtime.tensor_cache import (
    dump_tensor_cache as dump_tensor_cache,
    load_tensor_cache as load_tensor_cache,
)
