"""Sweeps: here, on an executor, or on a Dask cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ropewalk import _native
from ropewalk._api import AnyProgress, AnyScenario, _build
from ropewalk._arguments import listed, plain, whole, whole_or_none
from ropewalk._errors import RopewalkError
from ropewalk._progress import bar
from ropewalk._scenario import as_scenario
from ropewalk._table import Table
from ropewalk.scheduler import Given, split

if TYPE_CHECKING:
    from ropewalk._plot import SweepPlot

#: Runs in a task, at most: some seconds of one core.
TASK = 500


class SweepResult:
    """What a sweep gave: `runs`, a wide table with a row per run, and each scheduler's standing."""

    def __init__(self, runs: Callable[[], Table], standings: list[dict[str, Any]]) -> None:
        self._runs = runs
        #: By distance behind the first: `scheduler`, `mean_s`, `behind_first`, `first_at_points`, and so on.
        self.standings = standings

    @cached_property
    def runs(self) -> Table:
        """A row per run: settings, seed, outcome and metrics. Columns: `path_lte_rtt_s`, `fct_s`,
        `goodput_bps`, and so on."""
        return self._runs()

    @property
    def plot(self) -> SweepPlot:
        """Plots with matplotlib: `.plot.heatmap()`, `.cdf()`, `.box()`, `.ranking()`."""
        from ropewalk._plot import SweepPlot

        return SweepPlot(self)

    def __repr__(self) -> str:
        first = self.standings[0]["scheduler"] if self.standings else "none"
        return f"SweepResult({len(self.runs)} runs; closest to the best: {first})"


#: What a task needs to make its runs anywhere: the sweep's text, the scenario's, and schedulers in Python.
_Recipe = tuple[str, str, str, tuple[str, str, str] | None, list[tuple[str, Callable[[], Any]]], str]


def _native_sweep(recipe: _Recipe) -> _native.Sweep:
    text, name, folder, base, own, build = recipe
    scenario = None if base is None else _native.parse(base[0], base[2], base[1])
    return _native.Sweep(text, name, folder, scenario, own, build)


def make_runs(recipe: _Recipe, numbers: list[int]) -> bytes:
    """Make runs in a worker, on one thread; called by executors and clusters."""
    if recipe[5] != _build():
        raise RopewalkError("the worker has another build of ropewalk: its results could differ")
    return _native_sweep(recipe).make(numbers, 1)


def sweep(
    scenario: AnyScenario = "wifi-lte",
    vary: Mapping[str, Sequence[Any] | Mapping[str, Any]] | None = None,
    schedulers: Sequence[Given] | Given | None = None,
    *,
    file: str | os.PathLike[str] | None = None,
    runs: int = 30,
    seed: int = 1,
    congestion: Sequence[str] | str | None = None,
    points: int | None = None,
    design_seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    client: Any = None,
    task: int = TASK,
    progress: AnyProgress = True,
) -> SweepResult:
    """Vary a scenario's parameters over a grid, or with `points` over a Latin hypercube.

    `vary` maps parameters (`path.lte.rtt`, `workload.size`, `scheduler.ecf.beta`) to lists of values, or to
    the keys of a sweep file's `[[vary]]`: `{"from": "20 ms", "to": "320 ms", "steps": 5, "scale": "log"}`.
    `file` is a sweep file instead. Each scheduler makes `runs` seeded runs at each point. With `out`, a
    folder, results are CSV there as the command writes them, and an interrupted call goes on; without, they
    are in memory.

    `executor` is any `concurrent.futures.Executor`, `client` a `dask.distributed.Client`: tasks of at most
    `task` runs go there, and the table is the same, byte for byte.

    >>> import ropewalk
    >>> result = ropewalk.sweep(
    ...     "small-buffers", {"workload.size": ["32 KiB", "64 KiB"]}, ["minrtt", "linux"],
    ...     runs=2, progress=False,
    ... )
    >>> len(result.runs), result.runs["workload_size_bytes"][0]
    (8, 32768.0)
    """
    names, own = (None, []) if schedulers is None else split(schedulers)
    recipe = _recipe(scenario, vary, names, own, file, runs, seed, congestion, points, design_seed)
    native = _native_sweep(recipe)
    session = None if out is None else native.open(os.fspath(out))
    try:
        pending = list(range(native.total)) if session is None else session.pending()
        pieces: list[bytes] = []
        keep = pieces.append if session is None else session.keep
        done = native.total - len(pending)
        with bar(progress, "sweep", native.total) as told:
            # Here, pieces are large enough that threads are busy, and small enough that little is lost by an
            # interruption.
            local = executor is None and client is None
            size = max(1, len(pending) // 50, 200) if local else max(1, task)
            tasks = [pending[at : at + size] for at in range(0, len(pending), size)]
            for piece, count in _pieces(native, recipe, tasks, jobs, executor, client):
                keep(piece)
                done += count
                if told is not None:
                    told(done)
        if session is None:
            table, standings = native.table(pieces)
            return SweepResult(lambda: Table(table), json.loads(standings))
        finished = session.finish()
        if finished is None:
            raise RopewalkError("some runs are missing: call it again to go on")
        folder = os.fspath(out or "")
        return SweepResult(lambda: Table(_native.sweep_table(folder)), json.loads(finished))
    finally:
        if session is not None:
            session.close()


def _recipe(
    scenario: AnyScenario,
    vary: Mapping[str, Any] | None,
    names: list[str] | None,
    own: list[tuple[str, Callable[[], Any]]],
    file: str | os.PathLike[str] | None,
    runs: int,
    seed: int,
    congestion: Sequence[str] | str | None,
    points: int | None,
    design_seed: int | None,
) -> _Recipe:
    if file is not None:
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
        return text, os.fspath(file), os.path.dirname(os.fspath(file)), None, own, _build()
    used = as_scenario(scenario)
    document: dict[str, Any] = {
        "scenario": used.name,
        "runs": whole("runs", runs),
        "seed": whole("seed", seed),
    }
    if names is not None:
        document["schedulers"] = names
    if congestion is not None:
        document["congestion"] = listed("congestion", congestion)
    if points is not None:
        document |= {"design": "latin-hypercube", "points": whole("points", points)}
    if design_seed is not None:
        document["design-seed"] = whole("design_seed", design_seed)
    axes = []
    for parameter, values in (vary or {}).items():
        axis = dict(values) if isinstance(values, Mapping) else {"values": listed(parameter, values)}
        axis = {
            key: [plain(parameter, one) for one in of]
            if isinstance(of, list | tuple)
            else plain(parameter, of)
            for key, of in axis.items()
        }
        axes.append({"parameter": parameter, **axis})
    if axes:
        document["vary"] = axes
    base = (used.toml, used._native.folder, used.name)
    return json.dumps(document), "sweep", "", base, own, _build()


def _pieces(
    native: _native.Sweep,
    recipe: _Recipe,
    tasks: list[list[int]],
    jobs: int | None,
    executor: Executor | None,
    client: Any,
) -> Iterator[tuple[bytes, int]]:
    if client is not None:
        yield from _on_dask(recipe, tasks, client)
    elif executor is not None:
        futures = {executor.submit(make_runs, recipe, numbers): len(numbers) for numbers in tasks}
        try:
            for future in as_completed(futures):
                yield future.result(), futures[future]
        finally:
            for future in futures:
                future.cancel()
    else:
        for numbers in tasks:
            yield native.make(numbers, whole_or_none("jobs", jobs)), len(numbers)


def _on_dask(recipe: _Recipe, tasks: list[list[int]], client: Any) -> Iterator[tuple[bytes, int]]:
    """Run tasks on a cluster. A task whose worker dies runs again elsewhere (`allowed-failures`, and then by
    us).

    The recipe goes with each task: data scattered to workers is lost with them, and tasks that need it wait
    for ever.
    """
    from dask.distributed import as_completed as completed

    left = {}
    for numbers in tasks:
        future = client.submit(make_runs, recipe, numbers, pure=False, retries=3)
        left[future.key] = (future, numbers)
    arriving = completed([future for future, _ in left.values()])
    for future in arriving:
        _, numbers = left.pop(future.key)
        if future.status == "lost" or future.status == "cancelled":
            again = client.submit(make_runs, recipe, numbers, pure=False, retries=3)
            left[again.key] = (again, numbers)
            arriving.add(again)
            continue
        yield future.result(), len(numbers)
        future.release()
