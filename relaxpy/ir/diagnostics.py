"""The renderer of the errors of a source that does not parse."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.errors import RelaxpyError, unexpected

Renderer = Callable[[RelaxpyError], object]

_renderer: Renderer | None = None


def override_renderer(render_func: Renderer | None) -> None:
    """Call `render_func` with each error of a source before it is raised; None disables this.

    The error has its `diagnostics`, and each of them a `message` and a `span`.

    Errors:
        MisuseError (also TypeError): it is not callable.
    """
    global _renderer
    if render_func is not None and not callable(render_func):
        raise unexpected(render_func, "a renderer is a function")
    _renderer = render_func


def render(error: RelaxpyError) -> None:
    """Call the renderer, if there is one."""
    if _renderer is not None:
        _renderer(error)
