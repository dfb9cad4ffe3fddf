"""Schedulers in Python, beside the built-in ones.

>>> import ropewalk
>>> class LargestWindow(ropewalk.Scheduler):
...     def select(self, view):
...         if not view.sendable():
...             return None
...         return max(view.available(), key=lambda subflow: subflow.cwnd, default=None)
>>> run = ropewalk.simulate("equal-paths", LargestWindow, size="64 KiB")
>>> run.outcome
'complete'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ropewalk._arguments import listed
from ropewalk._native import Chunk, Decision, Subflow, View

__all__ = [
    "Chunk",
    "Decision",
    "Duplicate",
    "Queue",
    "Scheduler",
    "Send",
    "SendAt",
    "Subflow",
    "View",
    "Wait",
    "Withdraw",
]

#: New data on a subflow: `Send(subflow, bytes=None)`; at most one segment if `bytes` isn't given.
Send = Decision.send
#: New data from `offset` on: `SendAt(subflow, offset, bytes=None)`.
SendAt = Decision.send_at
#: New data to be queued, beyond the congestion window: `Queue(subflow, bytes=None)`.
Queue = Decision.queue
#: The chunk at `offset` again on another subflow: `Duplicate(subflow, offset, opportunistic=False)`.
Duplicate = Decision.duplicate
#: What waits on `subflow` and was never sent is unassigned again: `Withdraw(subflow)`.
Withdraw = Decision.withdraw
#: Nothing now; asked again at the next event and at `until` (ns) at the latest: `Wait(until=None)`.
Wait = Decision.wait


class Scheduler:
    """A packet scheduler; one object per connection and direction of sending.

    Define `select`. It is called whenever something could be sent, and again after each decision that sent
    something, until it waits. The view and its subflows are refreshed in place: read them during the call and
    don't keep them.

    Class attributes say what the Rust trait's methods say: `name`; `wants_events` (call `on_event`);
    `repeats` (ask when nothing is unsent); `queues_ahead` (ask while no window has room); `needs_chunks`
    (copy what is in flight, for `view.chunk_after`); `wants_link_rate` (estimate `link_byte_time` of
    subflows); `opportunistic` and `penalise` (`"off"`, `"paper"`, `"linux"`).
    """

    name: str | None = None
    wants_events: bool = False
    repeats: bool = False
    queues_ahead: bool = False
    needs_chunks: bool = False
    wants_link_rate: bool = False
    opportunistic: str = "paper"
    penalise: str = "paper"

    def select(self, view: View) -> Subflow | Decision | None:
        """Decide: a subflow of the view (one segment on it), None (wait), or what `Send`, `Wait` and the
        others return."""
        raise NotImplementedError("a scheduler defines select(self, view)")

    def on_event(self, view: View, event: str, subflow: int | None, amount: int | None) -> None:
        """Hear of an event, with `wants_events = True`.

        `event` is subflow_added, subflow_removed, acked, data_acked, lost, timeout, reinjected,
        window_blocked, written or closed; `amount` is a number of segments (acked, lost) or bytes (written).
        """


#: What functions take as a scheduler: a name, a class, or anything that makes an object when called.
Given = str | type[Scheduler] | Callable[[], Scheduler]


def name_of(given: Given) -> str:
    """Give the name under which a scheduler runs: its `name`, or the class's name in lower case with dashes.

    >>> class MyOwn(Scheduler): ...
    >>> name_of(MyOwn)
    'my-own'
    """
    if isinstance(given, str):
        return given
    known = getattr(given, "name", None)
    if isinstance(known, str):
        return known
    name = getattr(given, "__name__", type(given).__name__)
    return (
        re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower().replace("<lambda>", "lambda").replace("_", "-")
    )


def split(given: Sequence[Given] | Given) -> tuple[list[str], list[tuple[str, Callable[[], Any]]]]:
    """Give the names of all, and those that are in Python with what makes their objects."""
    names: list[str] = []
    own: list[tuple[str, Callable[[], Any]]] = []
    for one in listed("schedulers", given):
        if not isinstance(one, str) and not callable(one):
            raise TypeError(f"`schedulers`: expected a scheduler's name or class, found {one!r}")
        names.append(name_of(one))
        if not isinstance(one, str):
            own.append((names[-1], one))
    return names, own
