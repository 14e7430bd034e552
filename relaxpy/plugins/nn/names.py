"""Hints for names of PyTorch that models of nn write in another way."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final, NoReturn

from relaxpy.errors import UnknownAttributeError, close_names
from relaxpy.ir.relax.op.definition.registry import registered_ops
from relaxpy.support.absent import instead_of
from relaxpy.support.missing import from_import_error

_RUN_TIME: Final = "elements are known at run time only: return the tensor, and read the result"
#: Replacements for names that nn spells otherwise or does not have.
INSTEAD: Final = {
    "F": "its functions are those of nn.op",
    "LSTM": "write its steps in forward, with nn.op and a Python loop",
    "LeakyReLU": "write nn.op.maximum(x, x * slope)",
    "MultiheadAttention": "write nn.Attention or nn.op.scaled_dot_product_attention",
    "Sigmoid": "write nn.op.sigmoid(x)",
    "Softmax": "write nn.op.softmax(x, axis)",
    "Tanh": "write nn.op.tanh(x)",
    "abs": "write x.abs()",
    "bmm": "write nn.op.matmul(a, b)",
    "cat": "write nn.op.concat(tensors, dim)",
    "clamp": "write nn.op.maximum and nn.op.minimum",
    "contiguous": "leave it out: tensors of a model have no strides",
    "cpu": "leave it out: models run on the processor",
    "cuda": "leave it out: models run on the processor",
    "detach": "leave it out: a model has no graph of gradients",
    "div": "write a / b, or nn.op.divide",
    "expand": "write nn.op.broadcast_to(x, shape)",
    "flatten": "write x.flatten(1)",
    "float": 'write x.astype("float32")',
    "functional": "its functions are those of nn.op",
    "half": 'write x.astype("float16")',
    "init": "set parameter.data, or call load_state_dict",
    "item": _RUN_TIME,
    "linear": "write nn.Linear, or nn.op.matmul(x, nn.op.permute_dims(weight))",
    "masked_fill": "write nn.op.where(mask, value, x)",
    "mean": "write x.mean(axis)",
    "mm": "write nn.op.matmul(a, b)",
    "mul": "write a * b, or nn.op.multiply",
    "neg": "write -x, or nn.op.negative",
    "numpy": _RUN_TIME,
    "stack": "write nn.op.concat([nn.op.unsqueeze(x, dim) for x in tensors], dim)",
    "sub": "write a - b, or nn.op.subtract",
    "to": 'write x.astype("float16")',
    "tolist": _RUN_TIME,
    "transpose": "write x.transpose(dim0, dim1), or nn.op.permute_dims(x, axes)",
    "view": "write x.view(...), or nn.op.reshape(x, shape)",
}


_NO_MODES: Final = "leave it out: a model is exported for inference, where dropout drops nothing"
_LISTED: Final = "named_parameters() has the parameters by path, and print(model) shows the layers"
_ATTRIBUTE: Final = "write self.name = nn.Parameter(shape): parameters and layers are attributes"
_GRADIENTS: Final = "a model has no graph of gradients: relax.training trains what it exports"
#: Replacements for methods of PyTorch's modules.
MODULE_INSTEAD: Final = {
    "add_module": _ATTRIBUTE,
    "backward": _GRADIENTS,
    "bfloat16": 'write model.to("bfloat16")',
    "children": _LISTED,
    "compile": "model.jit(spec) compiles the methods that the specification names",
    "cpu": INSTEAD["cpu"],
    "cuda": INSTEAD["cuda"],
    "double": 'write model.to("float64")',
    "eval": _NO_MODES,
    "float": 'write model.to("float32")',
    "half": 'write model.to("float16")',
    "modules": _LISTED,
    "named_children": _LISTED,
    "named_modules": _LISTED,
    "register_buffer": _ATTRIBUTE,
    "register_module": _ATTRIBUTE,
    "register_parameter": _ATTRIBUTE,
    "requires_grad_": _GRADIENTS,
    "summary": "print(model) shows the layers and the shapes of parameters",
    "train": _GRADIENTS,
    "zero_grad": _GRADIENTS,
}


def tensor_hint(name: str, known: Iterable[str]) -> str | None:
    """The hint for a method or function of PyTorch or NumPy on a tensor."""
    if name in INSTEAD:
        return INSTEAD[name]
    close = close_names(name, (other for other in known if not other.startswith("_")))
    if close is None and {f"relax.{name}", f"relax.nn.{name}"} & registered_ops().keys():
        return f"write nn.op.{name}(x) if nn.op has it, or the operator in an R.function"
    return close


def missing_name(module: str, name: str) -> NoReturn:
    """Raise the error for a name that a module of nn does not have, with what to write instead.

    Errors:
        UnknownAttributeError (also AttributeError), UnknownImportError in a statement of import
    """
    message = f"{module.partition('frontend.')[2]} has no attribute {name!r}"
    if name.startswith("_"):
        raise AttributeError(message)
    public = [other for other in dir(sys.modules[module]) if not other.startswith("_")]
    hint = instead_of(f"{module}.{name}") or INSTEAD.get(name) or close_names(name, public)
    raise from_import_error(module, name, hint) or UnknownAttributeError(
        message, hint=hint, about=name
    )
