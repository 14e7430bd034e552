"""The calls of a profile on a time line, in the format of Chrome's and Perfetto's viewers."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from relaxpy.support.dataclass import dataclass

#: Further calls are counted in a profile, but are not in its trace.
MAX_EVENTS: Final = 200_000


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One call of a function, with the arrays among its arguments, as in "float32[2, 3]".

    If it has a `worker` (a native thread id), it is that thread's share of a loop of the innermost
    call.

    Units:
        seconds, the start from that of the profiled call
    """

    name: str
    start: float
    duration: float
    arrays: tuple[str, ...] = ()
    is_finished: bool = True
    worker: int | None = None


def chrome_trace(
    events: Sequence[TraceEvent], kinds: Mapping[str, Mapping[str, object]], dropped: int = 0
) -> str:
    """The events in the JSON format of Chrome's trace viewer; `kinds` are facts by name.

    A call that did not return, since it or one inside of it failed, is marked as failed.
    """
    process, thread = os.getpid(), threading.get_native_id()
    process_name = {"ph": "M", "name": "process_name", "args": {"name": "relaxpy"}}
    rows: list[dict[str, Any]] = [process_name | {"pid": process, "tid": thread}]
    threads = {thread: threading.current_thread().name}
    workers = sorted({event.worker for event in events if event.worker is not None})
    threads.update((worker, f"worker {number}") for number, worker in enumerate(workers, 1))
    for tid, name in threads.items():
        title = {"ph": "M", "name": "thread_name", "args": {"name": name}}
        rows.append(title | {"pid": process, "tid": tid})
    for event in sorted(events, key=lambda event: (event.start, -event.duration)):
        facts = dict(kinds.get(event.name, {}))
        if event.arrays:
            facts["arguments"] = ", ".join(event.arrays)
        if not event.is_finished:
            facts["failed"] = True
        place = {"pid": process, "tid": thread if event.worker is None else event.worker}
        row = {"ph": "X", "name": event.name, "cat": facts.pop("kind", "") or "call", "args": facts}
        rows.append(row | {"ts": event.start * 1e6, "dur": event.duration * 1e6} | place)
    data: dict[str, object] = {"traceEvents": rows, "displayTimeUnit": "ms"}
    if dropped:
        data["otherData"] = {"calls that are not shown": dropped}
    return json.dumps(data)
