"""Tests for schedulers of your own."""

from __future__ import annotations

from ropewalk import _native
from ropewalk.scheduler import Given, name_of


class ContractError(AssertionError):
    """A scheduler departs from the contract that all schedulers keep; `departures` lists rule and event."""

    def __init__(self, message: str, departures: list[tuple[str, str]]) -> None:
        super().__init__(message)
        self.departures = departures


def check_scheduler(scheduler: Given, exceptions: tuple[str, ...] = ()) -> None:
    """Run the contract tests of the built-in schedulers.

    The rules: `eligible` (only subflows that may carry data), `cwnd` (only those with room), `wait` (a wait's
    moment lies ahead), `work-conserving` (no endless wait with nothing in flight), `progress` (other
    decisions change something), `single-path` (over one path as minrtt), `even-split` (two identical paths:
    each at least 45 % of the bytes). `exceptions` names rules that it departs from by its nature.

    >>> import ropewalk
    >>> class Fastest(ropewalk.Scheduler):
    ...     def select(self, view):
    ...         return view.fastest_available() if view.sendable() else None
    >>> check_scheduler(Fastest)
    """
    if isinstance(scheduler, str):
        raise TypeError("expected a scheduler's class, found a name")
    found = [one for one in _native.departures(name_of(scheduler), scheduler) if one[0] not in exceptions]
    if found:
        lines = [f"  {rule}: {what}" for rule, what in found[:10]]
        more = f"\n  and {len(found) - 10} more" if len(found) > 10 else ""
        raise ContractError(
            f"`{name_of(scheduler)}` departs from the contract:\n" + "\n".join(lines) + more, found
        )
