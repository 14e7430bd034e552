"""Late-bound functions of `script` and `exec` that `ir` calls, imported at their first call.

`ir` imports neither package; these names are its only dependencies on them. Inside `ir`, a method
that a higher layer implements imports that layer when it is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

Hook = Literal[
    "script",
    "show",
    "program_diff",
    "html",
    "graph",
    "graph_of_change",
    "memory_chart",
    "profile_chart",
    "curve",
    "call_function",
    "call_kernel",
    "native_obstacle",
    "packed_function",
    "packed_is_pure",
    "register_packed",
    "python_module",
    "nn_jit",
    "relay_text",
    "relay_std",
    "relay_operator",
    "relay_kinds",
    "value_check",
    "started_workers",
    "communication",
    "open_weights",
    "save_weights",
    "passes",
    "tvm_pipelines",
]

_TARGETS: dict[Hook, str] = {
    "script": "relaxpy.script.printer:script",
    "show": "relaxpy.script.printer:show",
    "program_diff": "relaxpy.script.printer.show:program_diff",
    "html": "relaxpy.script.printer:html",
    "graph": "relaxpy.plugins.pictures.graph:graph",
    "graph_of_change": "relaxpy.plugins.pictures.graph:graph_of_change",
    "memory_chart": "relaxpy.plugins.pictures.chart:memory_chart",
    "profile_chart": "relaxpy.plugins.pictures.chart:profile_chart",
    "curve": "relaxpy.plugins.pictures.chart:curve",
    "call_function": "relaxpy.exec.eager:call_function",
    "call_kernel": "relaxpy.exec.eager:call_kernel",
    "native_obstacle": "relaxpy.exec.native.machine_code.machine:obstacle",
    "packed_function": "relaxpy.exec.runtime.registry:get_global_func",
    "packed_is_pure": "relaxpy.exec.runtime.registry:is_registered_pure",
    "register_packed": "relaxpy.exec.runtime.registry:register_func",
    "python_module": "relaxpy.exec.python_module:BasePyModule",
    "nn_jit": "relaxpy.plugins.nn.compiled:jit",
    "relay_text": "relaxpy.plugins.relay.text.printer:text",
    "relay_std": "relaxpy.plugins.relay.text.std:load",
    "relay_kinds": "relaxpy.plugins.relay.saved:enter",
    "value_check": "relaxpy.exec.bisect:ValueCheck",
    "started_workers": "relaxpy.plugins.distributed.start:started_workers",
    "communication": "relaxpy.plugins.distributed.communication:communication",
    "open_weights": "relaxpy.plugins.weights.files:open_weights",
    "save_weights": "relaxpy.plugins.weights.files:save_weights",
    "passes": "relaxpy.plugins.cli.passes:public_passes",
    "tvm_pipelines": "relaxpy.tvm.pipelines:pipelines",
    "relay_operator": "relaxpy.plugins.relay.run.evaluator:run_operator",
}


@cache
def _resolve(hook: Hook) -> Callable[..., Any]:
    module, name = _TARGETS[hook].split(":")
    target: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return target


def call(hook: Hook, *args: object, **kwargs: object) -> Any:
    """Call the function of `hook` with these arguments."""
    return _resolve(hook)(*args, **kwargs)
