"""What each operator is on numbers: calls of it on small inputs, beside what NumPy says in float64.

Each module has the rows of one family, from its function `cases`. Nothing here uses relaxpy's
kernels: `expected` is the definition of the operator.
"""

from itertools import chain
from pkgutil import iter_modules, resolve_name

from tests.ir.ops.cases.case import Array, Case, floats, integers

__all__ = ["CASES", "WITHOUT_ROWS", "Array", "Case", "floats", "integers"]

_families = (module.name for module in iter_modules(__path__) if module.name != "case")
CASES: list[Case] = [
    *chain.from_iterable(resolve_name(f"{__name__}.{name}:cases")() for name in _families)
]

_CALLS = "the callee computes, whatever it is"
_MEMORY = "it allocates or frees memory, in which there are no numbers yet"
_DEVICES = "there is one device, on which it is the identity"
_SHARDS = "it is the identity on one device, and a request to the passes of distribution"
_WORKERS = "its value depends on the other workers (tests/ir/ops/test_ccl.py)"
_SHAPES = "it computes with sizes, and has no tensor of numbers"
_FIELDS = "it reads a property of a tensor (tests/ir/ops/test_inspect.py)"
#: Why an operator is not compared with a definition.
WITHOUT_ROWS: dict[str, str] = {
    **dict.fromkeys(("assert_op", "print", "null_value"), "it has an effect, or no operand"),
    **dict.fromkeys(
        (f"call_{n}" for n in ("tir", "tir_inplace", "tir_with_grad", "py_func")), _CALLS
    ),
    **dict.fromkeys((f"call_{n}_packed" for n in ("dps", "inplace", "pure")), _CALLS),
    **dict.fromkeys(
        ("call_builtin_with_ctx", "vm.call_tir_dyn", "dist.call_tir_local_view"), _CALLS
    ),
    **dict.fromkeys(("make_closure", "invoke_closure", "invoke_pure_closure"), _CALLS),
    **dict.fromkeys(("builtin.alloc_tensor", "vm.alloc_storage", "vm.alloc_tensor"), _MEMORY),
    **dict.fromkeys((f"memory.alloc_{n}" for n in ("storage", "tensor")), _MEMORY),
    **dict.fromkeys((f"memory.kill_{n}" for n in ("storage", "tensor")), _MEMORY),
    **dict.fromkeys(
        ("memory.view", "memory.ensure_zero_offset"), "the numbers are those in memory"
    ),
    "vm.kill_object": _MEMORY,
    **dict.fromkeys(("hint_on_device", "to_vdevice", "builtin.stop_lift_params"), _DEVICES),
    **dict.fromkeys((f"ccl.{n}" for n in ("allgather", "allreduce", "reduce_scatter")), _WORKERS),
    **dict.fromkeys((f"ccl.{n}_to_worker0" for n in ("gather", "reduce")), _WORKERS),
    **dict.fromkeys((f"ccl.{n}_worker0" for n in ("broadcast_from", "scatter_from")), _WORKERS),
    **dict.fromkeys((f"dist.{n}" for n in ("annotate_sharding", "redistribute")), _SHARDS),
    "dist.redistribute_replica_to_shard": _SHARDS,
    **dict.fromkeys(("shape_of", "shape_to_tensor", "tensor_to_shape"), _SHAPES),
    **dict.fromkeys((f"inspect.tensor_dtype_{n}" for n in ("bits", "code", "lanes")), _FIELDS),
    **dict.fromkeys((f"inspect.tensor_{n}" for n in ("byte_offset", "elem_offset")), _FIELDS),
    **dict.fromkeys((f"inspect.tensor_{n}" for n in ("ndim", "shape_i", "stride_i")), _FIELDS),
}
