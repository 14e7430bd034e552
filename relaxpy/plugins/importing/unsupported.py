"""Unsupported parts of a model, collected and raised as one error."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from relaxpy.errors import RelaxpyError, counted
from relaxpy.support.dataclass import dataclass

_SHOWN = 50


class FrontendError(RelaxpyError, ValueError):
    """A model that is not well-formed by the rules of the system that it is written for."""


class FrontendTypeError(FrontendError, TypeError):
    """The argument of an importer is not a model."""


class UnreadableFileError(FrontendError, OSError):
    """A file of a model that cannot be read."""


class MissingFileError(UnreadableFileError, FileNotFoundError):
    """A file of a model that does not exist."""


class OpNotImplemented(FrontendError, NotImplementedError):  # noqa: N818  # TVM's name
    """Nodes of a model that cannot be imported; `nodes` has each with its reason."""

    nodes: Sequence[UnsupportedNode] = ()


def pointer_hint(data: bytes) -> str | None:
    """The hint for a file that is still a pointer of Git LFS; None for other files."""
    if not data.startswith(b"version https://git-lfs"):
        return None
    return "it is a pointer of Git LFS: `git lfs pull` downloads the file"


class UnsupportedError(Exception):
    """Raised while one node is converted; the importer adds where it is."""


@dataclass(frozen=True)
class UnsupportedNode:
    """A node that cannot be imported: its position, operator, operands, and the reason."""

    where: str
    operator: str
    reason: str
    inputs: tuple[str, ...]

    @override
    def __str__(self) -> str:
        operands = f"({', '.join(self.inputs)})" if self.inputs else ""
        return f"{self.where}: {self.operator}{operands}: {self.reason}"


def refuse_nodes(nodes: Sequence[UnsupportedNode], system: str) -> None:
    """Raise one error for all nodes.

    Errors:
        OpNotImplemented (also ValueError, NotImplementedError): there is a node.
    """
    if not nodes:
        return
    lines = [f"  {node}" for node in nodes[:_SHOWN]]
    if len(nodes) > _SHOWN:
        lines.append(f"  and {len(nodes) - _SHOWN} more")
    error = OpNotImplemented(
        f"{counted(len(nodes), 'node')} of the {system} model cannot be imported:\n"
        + "\n".join(lines)
    )
    error.nodes = tuple(nodes)
    raise error
