"""What the IR needs from above it: names of functions, looked up when they are first called.

`ir` imports neither `script` nor `exec`; these strings are the only way up. The nodes of Relax
reach the operators, tensors the functions of tensors, and buffers the statements, which are built
on them, the same way; index maps what reasons about iterators, which few programs need.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

Hook = Literal[
    "reduced",
    "short_text",
    "script",
    "show",
    "html",
    "call_function",
    "evaluate_call",
    "packed_is_pure",
    "apply_operator",
    "negate_elements",
    "convert_elements",
    "make_call",
    "project_tuple",
    "unpack_tuple",
    "inspected",
    "combine_tensors",
    "bind_params",
    "bind_symbolic_vars",
    "inline_functions",
    "is_base_of",
    "python_module",
    "store_at",
    "buffer_offsets",
    "flattened_buffer",
    "buffer_access_ptr",
    "index_map_shape",
    "index_map_inverse",
    "are_equal_indices",
    "extract_matched_expr",
    "rewriter_of_module",
]

_TARGETS: dict[Hook, str] = {
    "reduced": "relaxpy.ir.serialize:reduced",
    "short_text": "relaxpy.ir.short_text.nodes:short_text",
    "script": "relaxpy.script.printer:script",
    "show": "relaxpy.script.printer:show",
    "html": "relaxpy.script.printer:html",
    "call_function": "relaxpy.exec.eager:call_function",
    "evaluate_call": "relaxpy.exec.eager:evaluate_call",
    "packed_is_pure": "relaxpy.exec.runtime.registry:is_registered_pure",
    "apply_operator": "relaxpy.ir.relax.op.operators:apply",
    "negate_elements": "relaxpy.ir.relax.op.operators:negative",
    "convert_elements": "relaxpy.ir.relax.op.operators:convert",
    "make_call": "relaxpy.ir.relax.nodes.expr:make_call",
    "project_tuple": "relaxpy.ir.relax.nodes.expr:project_tuple",
    "unpack_tuple": "relaxpy.ir.relax.nodes.expr:unpack_tuple",
    "inspected": "relaxpy.ir.relax.op.inspect:inspected",
    "combine_tensors": "relaxpy.ir.te.topi.elementwise:combine",
    "bind_params": "relaxpy.ir.relax.rewrite.bind:bind_params",
    "bind_symbolic_vars": "relaxpy.ir.relax.rewrite.bind:bind_symbolic_vars",
    "inline_functions": "relaxpy.ir.relax.rewrite.inline:inline_functions",
    "is_base_of": "relaxpy.ir.relax.relations.compatibility:is_base_of",
    "extract_matched_expr": "relaxpy.ir.relax.dpl.matcher:extract_matched_expr",
    "rewriter_of_module": "relaxpy.ir.relax.dpl.rewriter:rewriter_of_module",
    "python_module": "relaxpy.exec.python_module:BasePyModule",
    "store_at": "relaxpy.ir.tir.stmt:store_at",
    "buffer_offsets": "relaxpy.ir.tir.analysis.addressing:offsets",
    "flattened_buffer": "relaxpy.ir.tir.analysis.addressing:flattened",
    "buffer_access_ptr": "relaxpy.ir.tir.analysis.addressing:access_ptr",
    "index_map_shape": "relaxpy.ir.tir.analysis.index_inverse:shape_of",
    "index_map_inverse": "relaxpy.ir.tir.analysis.index_inverse:inverse_of",
    "are_equal_indices": "relaxpy.ir.tir.analysis.index_inverse:are_equal",
}


@cache
def _resolve(hook: Hook) -> Callable[..., Any]:
    module, name = _TARGETS[hook].split(":")
    target: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return target


def call(hook: Hook, *args: object, **kwargs: object) -> Any:
    """What the function behind `hook` gives for these arguments."""
    return _resolve(hook)(*args, **kwargs)
