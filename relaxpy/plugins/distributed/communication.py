"""What the workers of a program send to each other, before it runs."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeAlias

from typing_extensions import override

from relaxpy.errors import MisuseError, Span, counted
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DeviceMesh
from relaxpy.ir.relax.op.distributed import current_workers
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.screen import Table

Bytes: TypeAlias = PrimExpr | int | None
_WIDEST = 50
"""The characters of an expression that a table or a message shows."""


@dataclass(frozen=True)
class Collective:
    """A call of a collective operator: its workers, and what the busiest sends or receives.

    The bytes are an expression of the sizes of the program, or None where a shape is not known.
    `steps` are messages that wait for each other.
    """

    op: str
    sinfo: rx.StructInfo | None
    workers: int
    steps: int
    sent: Bytes
    span: Span | None


@dataclass(frozen=True)
class Communication:
    """The collective operators of a function that `workers` run; it prints as a table."""

    workers: int
    calls: tuple[Collective, ...]

    @property
    def sent(self) -> Bytes:
        """The bytes of all calls; None if those of one are not known."""
        total: Bytes = 0
        for call in self.calls:
            total = _plus(total, call.sent)
        return total

    @user_facing
    def seconds(self, latency: float, bandwidth: float) -> float:
        """The time of all calls, one after the other, if nothing else uses the network.

        Units: seconds of a message without content, bytes in a second, and seconds.

        Errors:
            MisuseError (also TypeError, ValueError): the bytes depend on sizes that are not known,
                or a number is not one.
        """
        if not (latency >= 0 and bandwidth > 0):
            raise MisuseError(
                f"latency is at least 0 and bandwidth more, found {latency} and {bandwidth}"
            )
        if not isinstance(self.sent, int):
            raise MisuseError(
                f"the workers send {_shown(self.sent)} bytes, which is no number",
                hint="BindSymbolicVars replaces variables of shapes by numbers",
                about=self,
            )
        return sum(call.steps for call in self.calls) * latency + self.sent / bandwidth

    @property
    def table(self) -> Table:
        """The calls with their lines, and the sum."""
        rows = [
            (
                call.op,
                _clipped(str(call.sinfo)),
                "" if call.span is None else str(call.span.line),
                str(call.workers),
                _shown(call.sent),
            )
            for call in self.calls
        ]
        rows.append((counted(len(rows), "call"), "", "", "", _shown(self.sent)))
        return Table(("operator", "tensor", "line", "workers", "bytes"), tuple(rows), 3, 1)

    @override
    def __str__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table.html()


@user_facing
def communication(
    mod: IRModule, workers: int | None = None, func_name: str = "main"
) -> Communication:
    """What `workers` workers send to each other when they call a function once.

    `mod` is the program of each worker, as the pipeline "distributed" makes it. By default it says
    how many workers there are, by its mesh or by `num_workers` of a call; otherwise they are those
    of this process. Calls in branches
    and in local functions count once. An `allreduce` of n bytes among p workers is counted as
    2 n (p - 1) / p bytes in 2 log2(p) steps, and others as the algorithms of MPI for large tensors.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such Relax function.
    """
    func = mod.functions_by_name.get(func_name)
    if not isinstance(func, rx.Function):
        raise MisuseError(f"the module has no Relax function {func_name!r:.60}", about=mod)
    calls = [
        (node, node.op.name, node.op.record.sends)
        for node in walk(func.body)
        if isinstance(node, rx.Call) and isinstance(node.op, Op) and node.op.record.sends
    ]
    if workers is None:
        meshes = (i for infos in mod.global_infos.values() for i in infos)
        sizes = [math.prod(mesh.shape) for mesh in meshes if isinstance(mesh, DeviceMesh)]
        counts = (call.attrs.get("num_workers") for call, _, _ in calls)
        sizes += [count for count in counts if isinstance(count, int)]
        workers = max(sizes) if sizes else current_workers().size
    found = [_collective(call, name, sends, workers) for call, name, sends in calls]
    return Communication(workers, tuple(found))


def _collective(call: rx.Call, name: str, sends: tuple[int, int], everybody: int) -> Collective:
    among = call.attrs.get("among")
    count = call.attrs.get("num_workers", everybody) if among is None else among[0]
    sinfo = call.args[0].struct_info
    times, of_all = sends
    share = Fraction(times * (count - 1) * (count if of_all else 1), count)
    steps = times * (count - 1).bit_length()
    sent = _bytes(sinfo, share)
    return Collective(name.removeprefix("relax."), sinfo, count, steps, sent, call.span)


def _shown(size: Bytes) -> str:
    return "unknown" if size is None else _clipped(str(size))


def _clipped(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _bytes(sinfo: rx.StructInfo | None, share: Fraction) -> Bytes:
    dims = sinfo.get_shape() if isinstance(sinfo, rx.TensorStructInfo) else None
    if dims is None or not isinstance(sinfo, rx.TensorStructInfo):
        return None
    size: PrimExpr = ops.const(sinfo.dtype.numpy().itemsize * share.numerator, "int64")
    for dim in dims:
        size = ops.mul(size, dim)
    return _tidy(ops.floordiv(size, share.denominator))


def _plus(a: Bytes, b: Bytes) -> Bytes:
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return _tidy(ops.add(ops.cast_to(a, "int64"), ops.cast_to(b, "int64")))


def _tidy(size: PrimExpr) -> PrimExpr | int:
    found = Analyzer().simplify(size)
    return found.value if isinstance(found, IntImm) else found
