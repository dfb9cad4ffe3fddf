"""Plots with matplotlib. Each takes `ax`, the axes to draw on, and returns them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk._api import Comparison, Run
    from ropewalk._sweep import SweepResult


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'ropewalk[plot]'") from error
    return matplotlib.pyplot.subplots()[1]


def _grouped(schedulers: Sequence[str], values: Sequence[float | None]) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for name, value in zip(schedulers, values, strict=True):
        found = groups.setdefault(name, [])
        if value is not None:
            found.append(value)
    kept = {name: sorted(found) for name, found in groups.items() if found}
    return dict(sorted(kept.items(), key=lambda item: sum(item[1]) / len(item[1])))


def _ticks(column: str, values: Sequence[Any]) -> list[str]:
    """Give values of a column as text, in the unit that its name ends in."""
    if not all(isinstance(value, float) for value in values):
        return [str(value) for value in values]
    if column.endswith("_s"):
        return [f"{value * 1e3:.4g} ms" if value < 1 else f"{value:.4g} s" for value in values]
    if column.endswith("_bytes"):
        units = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
        parts = [next(((size, unit) for size, unit in units if value >= size), (1, "B")) for value in values]
        return [f"{value / size:.4g} {unit}" for value, (size, unit) in zip(values, parts, strict=True)]
    if column.endswith("_bps"):
        return [f"{value / 1e6:.4g} Mbit/s" for value in values]
    return [f"{value:.4g}" for value in values]


def _cdf(groups: dict[str, list[float]], ax: Any, label: str) -> Any:
    ax = _axes(ax)
    for name, values in groups.items():
        shares = [(index + 1) / len(values) for index in range(len(values))]
        ax.step([values[0], *values], [0.0, *shares], where="post", label=name)
    ax.set(xlabel=label, ylabel="share of runs", ylim=(0, 1))
    ax.legend(fontsize="small")
    return ax


def _box(groups: dict[str, list[float]], ax: Any, label: str) -> Any:
    ax = _axes(ax)
    places = range(len(groups))
    ax.boxplot(list(groups.values()), positions=list(places), orientation="horizontal", whis=(5, 95))
    ax.set_yticks(list(places), list(groups))
    ax.invert_yaxis()
    ax.set_xlabel(label)
    return ax


class ComparisonPlot:
    """Plots of a comparison; `workload` is a ranking's number from 0."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def _runs(self, workload: int) -> tuple[dict[str, list[float]], str]:
        ranking = self._comparison.rankings[workload]
        runs = self._comparison.runs
        rows = zip(runs["workload"], runs["scheduler"], runs["objective_s"], strict=True)
        kept = [(who, value) for title, who, value in rows if title == ranking["workload"]]
        return _grouped(*zip(*kept, strict=True)), f"{ranking['measure']} ({ranking['unit']})"

    def _titled(self, ax: Any, workload: int) -> Any:
        ax.set_title(self._comparison.rankings[workload]["workload"])
        return ax

    def cdf(self, workload: int = 0, ax: Any = None) -> Any:
        """Draw each scheduler's distribution over the runs."""
        groups, label = self._runs(workload)
        return self._titled(_cdf(groups, ax, label), workload)

    def box(self, workload: int = 0, ax: Any = None) -> Any:
        """Draw boxes: quartiles, and whiskers from 5 % to 95 %."""
        groups, label = self._runs(workload)
        return self._titled(_box(groups, ax, label), workload)

    def ranking(self, workload: int = 0, ax: Any = None) -> Any:
        """Draw the means with their 95 % intervals, the fastest at the top."""
        ax = _axes(ax)
        ranking = self._comparison.rankings[workload]
        rows = ranking["rows"]
        for place, row in enumerate(rows):
            interval = row["fct_mean_interval_s"]
            if interval:
                ax.plot(interval, [place, place], color="0.6", linewidth=3)
            ax.plot([row["fct_mean_s"]], [place], "o", color="C0")
        ax.set_yticks(range(len(rows)), [row["scheduler"] for row in rows])
        ax.invert_yaxis()
        ax.set(xlabel=f"{ranking['measure']} ({ranking['unit']})", title=ranking["workload"])
        return ax

    def heatmap(self, ax: Any = None) -> Any:
        """Draw each scheduler's mean over the fastest's, by workload."""
        ax = _axes(ax)
        rankings = self._comparison.rankings
        means = [{row["scheduler"]: row["fct_mean_s"] for row in ranking["rows"]} for ranking in rankings]
        names = [row["scheduler"] for row in rankings[0]["rows"]]
        cells = [[of.get(name, float("nan")) / min(of.values()) for of in means] for name in names]
        image = ax.imshow(cells, aspect="auto", cmap="viridis_r")
        ax.set_xticks(
            range(len(rankings)), [ranking["workload"] for ranking in rankings], rotation=20, ha="right"
        )
        ax.set_yticks(range(len(names)), names)
        ax.figure.colorbar(image, ax=ax, label="mean over the least mean")
        return ax

    def rope(self, scheduler: str | None = None, seed: int = 1, ax: Any = None) -> Any:
        """Draw a run's segments in time, by path; of the fastest if `scheduler` isn't given."""
        from ropewalk._api import simulate

        ranking = self._comparison.rankings[0]
        name = scheduler or ranking["rows"][0]["scheduler"]
        name = f"tcp:{name.removeprefix('tcp ')}" if name.startswith("tcp ") else name
        run = simulate(self._comparison.scenario, name, size=ranking["size_bytes"], seed=seed, segments=True)
        return run.plot.rope(ax=ax)


class RunPlot:
    """Plots of a run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def rope(self, ax: Any = None) -> Any:
        """Draw each segment from its sending to its arrival, a lane per path; what was repeated in another
        colour."""
        segments = self._run.segments
        if segments is None:
            raise ValueError("the run has no segments: simulate(..., segments=True)")
        ax = _axes(ax)
        colours = {"new": "C0", "retransmitted": "C3", "reinjected": "C1", "duplicated": "C2"}
        lanes = {name: place for place, name in enumerate(self._run.scenario.path_names)}
        for kind, colour in colours.items():
            lines, lost = [], []
            for row in segments:
                if row["transmission"] != kind:
                    continue
                lane = lanes[row["path"]]
                if row["arrived_s"] is None:
                    lost.append((row["sent_s"], lane + 0.4))
                else:
                    lines.append([(row["sent_s"], lane + 0.4), (row["arrived_s"], lane - 0.4)])
            if lines:
                from matplotlib.collections import LineCollection

                ax.add_collection(LineCollection(lines, colors=colour, linewidths=0.5, label=kind))
            if lost:
                ax.plot(*zip(*lost, strict=True), "x", color=colour, markersize=3)
        ax.set_yticks(list(lanes.values()), list(lanes))
        ax.autoscale()
        # Also the paths that carried nothing.
        ax.set_ylim(len(lanes) - 0.5, -0.5)
        ax.set(xlabel="time (s)", title=f"{self._run.scheduler}, seed {self._run.seed}")
        ax.legend(fontsize="small")
        return ax


class SweepPlot:
    """Plots of a sweep; `metric` is a column of its table."""

    def __init__(self, result: SweepResult) -> None:
        self._result = result

    def _groups(self, metric: str) -> dict[str, list[float]]:
        runs = self._result.runs
        return _grouped(runs["scheduler"], runs[metric])

    def cdf(self, metric: str = "objective_s", ax: Any = None) -> Any:
        """Draw each scheduler's distribution over all runs."""
        return _cdf(self._groups(metric), ax, metric)

    def box(self, metric: str = "objective_s", ax: Any = None) -> Any:
        """Draw boxes over all runs."""
        return _box(self._groups(metric), ax, metric)

    def ranking(self, ax: Any = None) -> Any:
        """Draw how far each scheduler is behind the best of each point, as a geometric mean."""
        ax = _axes(ax)
        known = [standing for standing in self._result.standings if standing["behind_first"] is not None]
        ax.barh(range(len(known)), [(standing["behind_first"] - 1) * 100 for standing in known])
        ax.set_yticks(range(len(known)), [standing["scheduler"] for standing in known])
        ax.invert_yaxis()
        ax.set_xlabel("behind the best of each point (%)")
        return ax

    def heatmap(
        self,
        x: str,
        y: str,
        scheduler: str,
        versus: str | None = None,
        metric: str = "objective_s",
        ax: Any = None,
    ) -> Any:
        """Draw a scheduler's mean by two varied columns; with `versus` its ratio to another's."""
        ax = _axes(ax)
        runs = self._result.runs
        sums: dict[tuple[Any, Any, str], list[float]] = {}
        for at_x, at_y, who, value in zip(runs[x], runs[y], runs["scheduler"], runs[metric], strict=True):
            if value is not None:
                sums.setdefault((at_x, at_y, who), []).append(value)
        means = {key: sum(values) / len(values) for key, values in sums.items()}
        xs, ys = sorted({key[0] for key in means}), sorted({key[1] for key in means})

        def cell(at_x: Any, at_y: Any) -> float:
            own = means.get((at_x, at_y, scheduler), float("nan"))
            return own if versus is None else own / means.get((at_x, at_y, versus), float("nan"))

        image = ax.imshow([[cell(at_x, at_y) for at_x in xs] for at_y in ys], aspect="auto", origin="lower")
        ax.set_xticks(range(len(xs)), _ticks(x, xs))
        ax.set_yticks(range(len(ys)), _ticks(y, ys))
        label = metric if versus is None else f"{scheduler} over {versus}"
        ax.set(xlabel=x, ylabel=y, title=scheduler)
        ax.figure.colorbar(image, ax=ax, label=label)
        return ax
