"""Type parameters: `def f[n](...)`, from Python 3.12 on, declares the shape variable n."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from relaxpy.errors import ParseError
from relaxpy.script.parser.source.report import Report


def type_parameters(
    node: ast.FunctionDef | ast.ClassDef, error: Callable[..., ParseError], report: Report
) -> list[str]:
    """Return the type parameters of a definition; errors in them are reported."""
    args = node.args if isinstance(node, ast.FunctionDef) else None
    taken = set() if args is None else {a.arg for a in (*args.posonlyargs, *args.args)}
    names: list[str] = []
    for param in getattr(node, "type_params", ()):
        name: str = param.name
        message, details = "", dict[str, Any]()
        if args is None:
            message = "the class of a module has no type parameters"
            details = {"rule": "SC-12", "hint": f"each function has its own: def f[{name}](...)"}
        elif type(param).__name__ in ("TypeVarTuple", "ParamSpec"):
            message = f"{name} is one shape variable, without a star"
            details = {"rule": "SC-12", "hint": f"[{name}] declares the shape variable {name}"}
        elif getattr(param, "bound", None) or getattr(param, "default_value", None):
            message = f"shape variable {name} is an int64 and has neither type nor default"
            details = {"rule": "PX-9", "hint": f"write [{name}]"}
        elif name in names or name in taken:
            other = "a shape variable" if name in names else "a parameter"
            message = f"{name} is the name of {other} already"
            details = {"rule": "SC-9"}
        if message:
            report.add(error(param, message, **details))
        if name not in names and name not in taken:
            names.append(name)
    return names
