"""Late-bound functions of higher layers that the core calls, imported at their first call.

`ir` imports neither `script` nor `exec`, and the core imports no plug-in. The functions of `script`
and `exec` stand here, and those of `ir` that methods of its nodes call from below; those of a
plug-in are in its manifest (`relaxpy/plugin.py`).
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from relaxpy import plugin
from relaxpy.errors import MisuseError

_TARGETS: dict[str, str] = {
    "access_ptr": "relaxpy.ir.tir.analysis.addressing:access_ptr",
    "bind_params": "relaxpy.ir.relax.rewrite.bind:bind_params",
    "bind_symbolic_vars": "relaxpy.ir.relax.rewrite.bind:bind_symbolic_vars",
    "buffer_offsets": "relaxpy.ir.tir.analysis.addressing:offsets",
    "convert": "relaxpy.ir.ops.python_syntax:convert",
    "flattened_buffer": "relaxpy.ir.tir.analysis.addressing:flattened",
    "inline_functions": "relaxpy.ir.relax.rewrite.bind:inline_functions",
    "is_base_of": "relaxpy.ir.relax.relations:is_base_of",
    "make_call": "relaxpy.ir.relax.nodes.expr:make_call",
    "operator": "relaxpy.ir.ops.python_syntax:apply",
    "project_tuple": "relaxpy.ir.relax.nodes.expr:project_tuple",
    "property_of": "relaxpy.ir.ops.python_syntax:property_of",
    "reduced": "relaxpy.ir.serialize:reduced",
    "short_text": "relaxpy.ir.short_text.nodes:short_text",
    "simplify": "relaxpy.ir.arith.prove:simplify",
    "subscript": "relaxpy.ir.ops.python_syntax:subscript",
    "unary_operator": "relaxpy.ir.ops.python_syntax:apply_unary",
    "unpack_tuple": "relaxpy.ir.relax.nodes.expr:unpack_tuple",
    "directives": "relaxpy.script:tir",
    "script": "relaxpy.script.printer:script",
    "show": "relaxpy.script.printer:show",
    "program_diff": "relaxpy.script.printer.show:program_diff",
    "html": "relaxpy.script.printer:html",
    "statements": "relaxpy.script.parser.reading:statements",
    "bind": "relaxpy.exec.api.bind:bound",
    "call_function": "relaxpy.exec.api.eager:call_function",
    "call_kernel": "relaxpy.exec.api.eager:call_kernel",
    "check_values": "relaxpy.exec.inspect.check_values:checked",
    "checking": "relaxpy.exec.inspect.check_values:checking",
    "export": "relaxpy.exec.export.files:export",
    "kernel_source": "relaxpy.exec.inspect.kernel_source:source_of_kernel",
    "memory_use": "relaxpy.exec.inspect.memory_use:memory_use",
    "native_obstacle": "relaxpy.exec.native.machine_code.machine:obstacle",
    "packed_function": "relaxpy.exec.runtime.registry:get_global_func",
    "packed_is_pure": "relaxpy.exec.runtime.registry:is_registered_pure",
    "profile": "relaxpy.exec.inspect.profile:profiled",
    "register_packed": "relaxpy.exec.runtime.registry:register_func",
}


@cache
def resolve(hook: str) -> Any:
    """The function, or module, of `hook`."""
    place = _TARGETS.get(hook) or plugin.hooks().get(hook)
    if place is None:
        parts = ", ".join(sorted(plugin.manifests()))
        raise MisuseError(
            f"the part of relaxpy that provides {hook!r} is not installed",
            hint=f"install the whole of relaxpy; it has the parts {parts}",
        )
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)


def call(hook: str, *args: object, **kwargs: object) -> Any:
    """Call the function of `hook` with these arguments."""
    return resolve(hook)(*args, **kwargs)
