"""Errors of tensor functions for arguments of wrong types."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from relaxpy.support.entry import found_at, user_facing

P = ParamSpec("P")
T = TypeVar("T")


def checked(function: Callable[P, T], module: str = "") -> Callable[P, T]:
    """Decorate a tensor function so that it reports arguments of wrong types.

    Users find it in a `module`, by default the one that defines it.

    Errors:
        MisuseError (also TypeError): an argument does not match its annotation.
    """
    vars(function)["shown_name"] = f"topi.{function.__name__}"
    return found_at(module or function.__module__, user_facing(function))
