"""Runs, comparisons, advice, bounds, papers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ropewalk import _native
from ropewalk._arguments import asked, files, quantity_or_none, texts, whole, whole_or_none
from ropewalk._progress import bar
from ropewalk._scenario import Path, Scenario, as_scenario
from ropewalk._table import Table
from ropewalk.scheduler import Given, split

if TYPE_CHECKING:
    from ropewalk._plot import ComparisonPlot, RunPlot

#: What functions take as a scenario: one, a built-in's name, a file, or a list of paths.
AnyScenario = Scenario | str | os.PathLike[str] | Sequence[Path | str]
#: What functions take as sizes of flows: texts with units, or bytes.
Sizes = Sequence[str | int] | str | int | None
#: Whether a progress bar is shown (with tqdm, in a terminal or a notebook), or what hears of progress.
AnyProgress = bool | Callable[[int], object]


def _directed(scenario: Scenario, direction: str | None) -> Scenario:
    return scenario if direction is None else scenario.replace(direction=direction)


class Run:
    """What a run gave.

    `runs` is a table of one row with every metric; `segments`, `decisions` and `samples` are tables if they
    were asked for.
    """

    def __init__(self, given: dict[str, Any], scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.seed = seed
        #: Its scheduler, or `tcp PATH`.
        self.scheduler: str = given["scheduler"]
        #: `complete`, `limit` (the time limit came first) or `failed`.
        self.outcome: str = given["outcome"]
        #: Why it failed.
        self.reason: str | None = given["reason"]
        #: What it is judged by, seconds: completion time, mean delay, or seconds per 10^6 bytes. None: not
        #: complete.
        self.objective_s: float | None = given["objective_s"]
        #: From the workload's start to its end, seconds.
        self.duration_s: float = given["duration_s"]
        #: How often the engine overruled the scheduler.
        self.overruled: int = given["overruled"]
        #: Events simulated.
        self.events: int = given["events"]
        #: Delays of frames, exchanges or objects, seconds, in order.
        self.message_delays_s: list[float] = given["message_delays_s"]
        #: One row: every metric of the run.
        self.runs = Table(given["runs"])
        #: Each data segment: when it was sent, arrived and was acknowledged. None: not asked for.
        self.segments = _table(given["segments"])
        #: Each decision with its reason. None: not asked for.
        self.decisions = _table(given["decisions"])
        #: cwnd, srtt and queues over time, a row per subflow. None: not asked for.
        self.samples = _table(given["samples"])

    @property
    def plot(self) -> RunPlot:
        """Plots with matplotlib: `.plot.rope()`."""
        from ropewalk._plot import RunPlot

        return RunPlot(self)

    def __repr__(self) -> str:
        took = "" if self.objective_s is None else f", {self.objective_s:.6g} s"
        return f"Run({self.scheduler}, seed {self.seed}: {self.outcome}{took})"


def _table(native: _native.Table | None) -> Table | None:
    return None if native is None else Table(native)


def simulate(
    scenario: AnyScenario = "wifi-lte",
    scheduler: Given = "minrtt",
    *,
    size: str | int | None = None,
    seed: int = 1,
    congestion: str | None = None,
    direction: str | None = None,
    segments: bool = False,
    decisions: bool = False,
    samples_every: str | float | None = None,
) -> Run:
    """Simulate one run.

    `scheduler` is a name with parameters (`"ecf(beta=0.5)"`), `"tcp:wifi"` for plain TCP on a path, or a
    class of yours. `size` is one flow's instead of the scenario's workload (bytes, or a text with its unit).
    `segments`, `decisions` and `samples_every` (seconds, or a text) record traces. The same arguments give
    the same bytes.

    >>> import ropewalk
    >>> run = ropewalk.simulate("equal-paths", "roundrobin", size="64 KiB", samples_every="10 ms")
    >>> run.samples.units["srtt_s"]
    's'
    """
    used = _directed(as_scenario(scenario), direction)
    names, own = split([scheduler])
    seed = whole("seed", seed)
    given = _native.simulate(
        used._native,
        own,
        names[0],
        congestion,
        quantity_or_none("size", size, "B"),
        seed,
        segments,
        decisions,
        quantity_or_none("samples_every", samples_every, "s"),
    )
    return Run(given, used, seed)


@dataclass(frozen=True)
class Bound:
    """Lower bounds of a run's objective (s), for any scheduler."""

    #: By the links alone, seconds.
    capacity_s: float
    #: By the links and by windows that start small and at most double, seconds.
    window_s: float


def bound(
    scenario: AnyScenario = "wifi-lte", *, size: str | int | None = None, path: str | None = None
) -> Bound | None:
    """Give the least that any scheduler could take; with `path` plain TCP on it. None: no bound is known.

    >>> import ropewalk
    >>> least = ropewalk.bound("equal-paths", size="1 MiB")
    >>> 0 < least.capacity_s <= least.window_s
    True
    """
    found = _native.bound(as_scenario(scenario)._native, path, quantity_or_none("size", size, "B"))
    return None if found is None else Bound(*found)


class Comparison:
    """The answer of `compare`: the verdict, the rankings, and every run."""

    def __init__(self, document: dict[str, Any], runs: Table, page: str, scenario: Scenario) -> None:
        #: What `ropewalk compare --json` prints.
        self.document = document
        #: A row per run.
        self.runs = runs
        self._page = page
        self.scenario = scenario

    @property
    def verdict(self) -> str:
        """The answer in a few sentences."""
        return str(self.document["verdict"])

    @property
    def named(self) -> str | None:
        """The one that is recommended, if one is."""
        decision = self.document["decision"] or {}
        named = decision.get("named")
        return None if named is None else str(named)

    @property
    def rankings(self) -> list[dict[str, Any]]:
        """One per workload: `workload`, `measure`, `unit`, and `rows` from the fastest on."""
        return list(self.document["rankings"])

    @property
    def plot(self) -> ComparisonPlot:
        """Plots with matplotlib: `.plot.ranking()`, `.box()`, `.cdf()`, `.heatmap()`, `.rope()`."""
        from ropewalk._plot import ComparisonPlot

        return ComparisonPlot(self)

    def report(self, file: str | os.PathLike[str]) -> None:
        """Write the report: one HTML page that needs no network."""
        with open(file, "w", encoding="utf-8") as out:
            out.write(self._page)

    def _repr_html_(self) -> str:
        from ropewalk._html import comparison

        return comparison(self.document)

    def __repr__(self) -> str:
        return f"Comparison({self.document['scenario']}: {self.verdict})"


def compare(
    scenario: AnyScenario = "wifi-lte",
    schedulers: Sequence[Given] | Given | None = None,
    *,
    sizes: Sizes = None,
    congestion: str | None = None,
    direction: str | None = None,
    runs: int | None = None,
    budget: str | float | None = None,
    seed: int = 1,
    open_on: str | None = None,
    join: str | None = None,
    limit: str | float | None = None,
    buffer: str | int | None = None,
    value: str | None = None,
    jobs: int | None = None,
    progress: AnyProgress = True,
) -> Comparison:
    """Rank schedulers on paths, as `ropewalk compare` does.

    Schedulers are names or classes of yours; without any those that the command compares, with `"all"` every
    one. Plain TCP on each path and `linux` always run. Either each gets `runs` seeded runs, or as many as it
    takes within `budget` (a second is 4 million segments). `open_on` and `join` are the command's, and so are
    all defaults. `limit` (s) ends a run, `buffer` (bytes) fixes all buffers, `value` says what bytes are
    worth. The result doesn't depend on `jobs`.

    >>> import ropewalk
    >>> result = ropewalk.compare("small-buffers", ["minrtt"], runs=5, progress=False)
    >>> sorted(set(result.runs["scheduler"]))
    ['linux', 'minrtt', 'tcp lte', 'tcp wifi']
    """
    used = _directed(as_scenario(scenario), direction)
    names, own = (None, []) if schedulers is None else split(schedulers)
    settings = asked(
        "compare",
        schedulers=None if names is None else ",".join(names),
        sizes=sizes,
        congestion=congestion,
        runs=runs,
        budget=budget,
        seed=seed,
        open_on=open_on,
        join=join,
        limit=limit,
        buffer=buffer,
        value=value,
    )
    usual = used._usual and sizes is None
    with bar(progress, "compare") as told:
        document, table, page = _native.compare(
            used._native, own, usual, settings, whole_or_none("jobs", jobs), told
        )
    return Comparison(json.loads(document), Table(table), page, used)


class Advice(dict[str, Any]):
    """What `ropewalk advise --json` prints: `recommendation`, `scheduler`, `versus_tcp`, `flips`, `to_type`,
    and so on."""

    @property
    def recommendation(self) -> str:
        """What to use, in a sentence."""
        return str(self["recommendation"])


def advise(
    scenario: AnyScenario | None = None,
    schedulers: Sequence[str] | str = (),
    *,
    sizes: Sizes = None,
    measured: Mapping[str, Sequence[str | os.PathLike[str]] | str | os.PathLike[str]] | None = None,
    system: str | None = None,
    direction: str | None = None,
    value: str | None = None,
    certainty: str | float | None = None,
    congestion: str | None = None,
    budget: str | float | None = None,
    seed: int = 1,
    jobs: int | None = None,
    progress: AnyProgress = True,
) -> Advice:
    """Say what to use on paths: plain TCP, or Multipath TCP with which scheduler, as `ropewalk advise` does.

    `measured` has a path's files, one or several, of any tool that the command reads; without a scenario
    these are all paths there are, and without either it is `wifi-lte`. `system` is what you can run, by the
    names of `--for`; without it, Linux's own scheduler is named where it is as fast, else one of Ropewalk's
    engine. `certainty` is the share of plausible variants of the paths in which Multipath TCP must be at most
    5 % slower (0.8, or "80 %"). Defaults are the command's.

    >>> import ropewalk
    >>> advice = ropewalk.advise("small-buffers", ["minrtt"], budget="0.02 s", progress=False)
    >>> advice.recommendation.startswith("Use ")
    True
    """
    if scenario is None and not measured:
        scenario = "wifi-lte"
    used = None if scenario is None else as_scenario(scenario)
    measurements = [(str(name), files("measured", of)) for name, of in (measured or {}).items()]
    names = texts("schedulers", schedulers)
    settings = asked(
        "advise",
        schedulers=",".join(names) if names else None,
        sizes=sizes,
        direction=direction,
        system=system,
        value=value,
        certainty=certainty,
        congestion=congestion,
        budget=budget,
        seed=seed,
    )
    usual = (used is None or used._usual) and sizes is None
    native, jobs = None if used is None else used._native, whole_or_none("jobs", jobs)
    with bar(progress, "advise") as told:
        text = _native.advise(native, usual, settings, measurements, jobs, told)
    return Advice(json.loads(text))


class Reproduction(dict[str, Any]):
    """What `ropewalk-papers reproduce run NAME --json` prints: published and measured, and a verdict per
    claim."""


def papers() -> dict[str, dict[str, Any]]:
    """Give the papers whose experiments are here: title and figures.

    >>> "table2" in papers()["cfs-2019"]["figures"]
    True
    """
    return {name: {"title": title, "figures": figures} for name, title, figures in _papers_native().papers()}


def _papers_native() -> ModuleType:
    """Give the native module, where it has the papers' experiments."""
    if not hasattr(_native, "papers"):
        raise NotImplementedError("the papers' experiments need Linux")
    return _native


def reproduce(
    paper: str,
    figure: str | None = None,
    *,
    runs: int | None = None,
    seed: int = 1,
    jobs: int | None = None,
    state: str | os.PathLike[str] | None = None,
    progress: AnyProgress = True,
) -> Reproduction:
    """Repeat a paper's experiments in the simulator, as `ropewalk-papers reproduce run` does.

    `figure` is one of its figures only; `runs` of each cell instead of the paper's number. With `state`, a
    file, finished runs are kept and an interrupted call goes on.
    """
    with bar(progress, "reproduce") as told:
        text = _papers_native().reproduce(
            paper,
            figure,
            whole_or_none("runs", runs),
            whole("seed", seed),
            whole_or_none("jobs", jobs),
            None if state is None else os.fspath(state),
            _build(),
            told,
        )
    return Reproduction(json.loads(text)) if text.startswith("{") else Reproduction(papers=json.loads(text))


def _build() -> str:
    """Give a digest of the native module."""
    return _native.build(_native.__file__)


def schedulers() -> dict[str, str]:
    """Give the built-in schedulers: name and rule.

    >>> "minrtt" in schedulers()
    True
    """
    return dict(_native.algorithms()[0])


def congestion_controls() -> dict[str, str]:
    """Give the congestion controls: name and rule.

    >>> "cubic" in congestion_controls()
    True
    """
    return dict(_native.algorithms()[1])
