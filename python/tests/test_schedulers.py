"""Schedulers in Python: the same decisions give the same bytes as the built-in ones, and exceptions come out
whole."""

import ast
import itertools
import os
import traceback
from typing import ClassVar

import pytest
import ropewalk
from ropewalk import _native
from ropewalk.testing import ContractError, check_scheduler


class Fastest(ropewalk.Scheduler):
    """minrtt's rule."""

    def select(self, view):
        if not view.sendable():
            return None
        best = view.fastest_available()
        if best is not None and view.explaining:
            view.say(f"{{subflow {best.id}}} is the fastest")
        return best


class Broken(ropewalk.Scheduler):
    def __init__(self) -> None:
        self.asked = 0

    def select(self, view):
        self.asked += 1
        if self.asked > 50:
            raise ZeroDivisionError("no reason")
        return view.fastest_available() if view.sendable() else None


class Listening(ropewalk.Scheduler):
    wants_events = True
    needs_chunks = True
    heard: ClassVar[dict] = {}

    def select(self, view):
        first = view.chunk_after(0)
        assert (first is None) == (view.chunks_in_flight == 0)
        front = view.front()
        return ropewalk.Send(front[1]) if view.sendable() and front[1] else ropewalk.Wait()

    def on_event(self, view, event, subflow, amount):
        self.heard[event] = self.heard.get(event, 0) + (amount or 1)


def test_the_same_rule_gives_the_same_run() -> None:
    for scenario in ("wifi-lte", "small-buffers"):
        own = ropewalk.simulate(scenario, Fastest, size="512 KiB", seed=5)
        built_in = ropewalk.simulate(scenario, "minrtt", size="512 KiB", seed=5)
        assert own.objective_s == built_in.objective_s
        assert own.overruled == built_in.overruled == 0
        assert own.events == built_in.events


def test_it_runs_beside_the_built_in_ones() -> None:
    result = ropewalk.compare("small-buffers", [Fastest, "minrtt"], sizes=["128 KiB"], runs=5)
    rows = {row["scheduler"]: row for row in result.rankings[0]["rows"]}
    assert rows["fastest"]["fct_mean_s"] == rows["minrtt"]["fct_mean_s"]


def test_reasons_are_recorded_with_the_paths_name() -> None:
    run = ropewalk.simulate("small-buffers", Fastest, size="64 KiB", decisions=True)
    assert run.decisions is not None and "wifi is the fastest" in run.decisions["reason"]


def test_an_exception_has_its_traceback_run_seed_and_moment() -> None:
    with pytest.raises(ropewalk.SchedulerError) as caught:
        ropewalk.compare("wifi-lte", [Broken], sizes=["1 MiB"], runs=3, seed=11, jobs=1)
    error = caught.value
    assert "`broken` raised" in str(error) and "ZeroDivisionError" in str(error)
    assert (error.run, error.seed) == (0, 11) and error.time_s > 0
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert "no reason" in "".join(traceback.format_exception(error.__cause__))
    assert "in select" in "".join(traceback.format_exception(error.__cause__))


def test_what_isnt_a_decision_is_an_error() -> None:
    class Wrong(ropewalk.Scheduler):
        def select(self, view):
            return "wifi"

    with pytest.raises(ropewalk.SchedulerError) as caught:
        ropewalk.simulate("wifi-lte", Wrong)
    assert "select() returned str" in str(caught.value.__cause__)


def test_events_and_chunks() -> None:
    run = ropewalk.simulate("wifi-lte", Listening, size="512 KiB")
    assert run.outcome == "complete"
    assert Listening.heard["acked"] > 300 and Listening.heard["subflow_added"] >= 2
    assert Listening.heard["written"] >= 512 << 10


def test_chunks_have_to_be_asked_for() -> None:
    class Asks(ropewalk.Scheduler):
        def select(self, view):
            return view.chunk_after(0)

    with pytest.raises(ropewalk.SchedulerError) as caught:
        ropewalk.simulate("wifi-lte", Asks)
    assert "needs_chunks" in str(caught.value.__cause__)


def test_the_contract() -> None:
    check_scheduler(Fastest)

    class Slowest(ropewalk.Scheduler):
        """Sends on a full subflow."""

        def select(self, view):
            return ropewalk.Send(max(view.usable(), key=lambda flow: flow.srtt), 1000)

    with pytest.raises(ContractError) as caught:
        check_scheduler(Slowest)
    assert "cwnd" in {rule for rule, _ in caught.value.departures}
    with pytest.raises(ropewalk.SchedulerError):
        check_scheduler(Broken)


def test_a_name_that_is_taken_is_refused() -> None:
    class Taken(Fastest):
        name = "minrtt"

    with pytest.raises(ropewalk.InputError, match="`minrtt` is there already"):
        ropewalk.simulate("wifi-lte", Taken)


def test_frames_of_an_application_are_messages_with_deadlines() -> None:
    class Watching(ropewalk.Scheduler):
        needs_chunks = True
        seen: ClassVar[set] = set()

        def select(self, view):
            if view.sendable():
                self.seen.add(view.message(view.next_offset))
            return view.fastest_available() if view.sendable() else None

    frames = ropewalk.Workload.cbr(frame="2000 B", rate="1.6 Mbit/s", duration=0.1, deadline=0.05)
    run = ropewalk.simulate(ropewalk.Scenario("wifi-lte", frames), Watching)
    assert run.outcome == "complete"
    found = sorted(message for message in Watching.seen if message)
    assert [(start, end) for start, end, _ in found] == [(at, at + 2000) for at in range(0, 20_000, 2000)]
    deadlines = [deadline for _, _, deadline in found]
    assert all(b - a == 10_000_000 for a, b in itertools.pairwise(deadlines))


def test_what_was_assigned_and_never_sent_can_be_withdrawn() -> None:
    class Regretting(ropewalk.Scheduler):
        """Queues on the slowest subflow beyond its window, and takes what waits there back when another has
        room."""

        queues_ahead = True
        withdrawn: ClassVar[int] = 0

        def select(self, view):
            if not view.sendable():
                return None
            usable = list(view.usable())
            slow = max(usable, key=lambda flow: flow.srtt, default=None)
            fast = view.fastest_available()
            if slow is not None and len(usable) > 1:
                if slow.queued_bytes and fast is not None:
                    Regretting.withdrawn += 1
                    return ropewalk.Withdraw(slow)
                if fast is None and slow.queued_bytes == 0:
                    return ropewalk.Queue(slow, 4 * slow.mss)
            return fast

    run = ropewalk.simulate("wifi-lte", Regretting, size="512 KiB")
    assert run.outcome == "complete"
    assert Regretting.withdrawn > 0


def test_the_type_stub_has_what_schedulers_see():
    with open(os.path.join(os.path.dirname(ropewalk.__file__), "_native.pyi")) as file:
        stub = ast.parse(file.read())
    declared = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    for kind in (_native.View, _native.Subflow, _native.Chunk):
        members = {node.name for node in declared[kind.__name__].body if isinstance(node, ast.FunctionDef)}
        there = {name for name in vars(kind) if not name.startswith("_")}
        assert there == {name for name in members if not name.startswith("_")}, kind.__name__
