"""Charts: pictures in SVG that a notebook shows and `save` writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from os import PathLike, fspath
from pathlib import Path

from relaxpy.errors import unexpected
from relaxpy.plugins.pictures.style import style
from relaxpy.plugins.pictures.svg import escaped, notebook_html
from relaxpy.support.entry import user_facing


class Chart(ABC):
    """A picture of numbers."""

    __slots__ = ()

    @abstractmethod
    def to_svg(self) -> str:
        """The chart as an SVG document."""

    @user_facing
    def save(self, path: str | PathLike[str]) -> None:
        """Write the chart to a file .svg.

        Errors:
            MisuseError (also TypeError, ValueError): it is not the path of such a file.
            OSError: the file cannot be written.
        """
        target = Path(fspath(path)) if isinstance(path, (str, PathLike)) else None
        if target is None or target.suffix != ".svg":
            raise unexpected(path, "expected the path of a file .svg")
        target.write_text(self.to_svg(), encoding="utf-8")

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": notebook_html(self.to_svg(), repr(self))}


def document(width: float, height: float, title: str, parts: str) -> str:
    """An SVG document with the style of all pictures."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="relaxpy-picture" role="img" '
        'style="max-width:none" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">\n'
        f"<title>{escaped(title)}</title><style>{style()}</style>\n{parts}</svg>\n"
    )


def label(x: float, y: float, text: str, kind: str = "small") -> str:
    """A text whose left end is at a position."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escaped(text)}</text>\n'
