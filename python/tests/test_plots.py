"""Plots return axes with what they show."""

import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import ropewalk  # noqa: E402


@pytest.fixture(scope="module")
def comparison():
    return ropewalk.compare("small-buffers", ["minrtt"], sizes=["32 KiB", "64 KiB"], runs=5)


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


def test_of_a_comparison(comparison) -> None:
    plot = comparison.plot
    assert len(plot.cdf().lines) == 4
    assert next(text.get_text() for text in plot.box(1).get_yticklabels()) in ("minrtt", "linux", "tcp wifi")
    ranking = plot.ranking()
    assert [text.get_text() for text in ranking.get_yticklabels()] == [
        row["scheduler"] for row in comparison.rankings[0]["rows"]
    ]
    assert plot.heatmap().images[0].get_array().shape == (4, 2)
    assert plot.rope().collections


def test_of_a_run() -> None:
    run = ropewalk.simulate("wifi-lte", size="64 KiB", segments=True)
    axes = run.plot.rope()
    assert sum(len(collection.get_segments()) for collection in axes.collections) >= 40
    # Also the path that carried nothing has a lane.
    assert axes.get_ylim() == (1.5, -0.5)
    with pytest.raises(ValueError, match="segments=True"):
        ropewalk.simulate("wifi-lte", size="1 KiB").plot.rope()


def test_of_a_sweep() -> None:
    vary = {"path.wifi.rtt": ["20 ms", "40 ms"], "workload.size": ["32 KiB", "64 KiB", "96 KiB"]}
    plot = ropewalk.sweep("small-buffers", vary, ["minrtt", "linux"], runs=2).plot
    axes = plot.heatmap("path_wifi_rtt_s", "workload_size_bytes", "minrtt", versus="linux")
    assert axes.images[0].get_array().shape == (3, 2)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["32 KiB", "64 KiB", "96 KiB"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["20 ms", "40 ms"]
    assert len(plot.cdf().lines) == 2 and len(plot.ranking().patches) == 2 and plot.box("goodput_bps").lines
