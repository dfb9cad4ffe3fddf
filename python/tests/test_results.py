"""Runs, comparisons, bounds, advice, papers: against the command, and as every data library reads them."""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import ropewalk

PATHS = [
    ropewalk.Path("wifi", rate="50 Mbit/s", rtt="20 ms +-5 ms", loss="0.5 %"),
    ropewalk.Path("lte", rate_bps=20e6, rtt_s=0.06, queue="400 packets"),
]


def command(*arguments: str) -> str:
    line = [sys.executable, "-m", "ropewalk", *arguments]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def test_a_run_is_the_same_again_and_has_every_metric() -> None:
    one = ropewalk.simulate("wifi-lte", "ecf(beta=0.5)", size="256 KiB", seed=7)
    again = ropewalk.simulate("wifi-lte", "ecf(beta=0.5)", size=256 << 10, seed=7)
    assert one.outcome == "complete" and one.objective_s == again.objective_s
    assert list(one.runs) == list(again.runs)
    row = next(iter(one.runs))
    assert row["fct_s"] == one.objective_s and row["delivered_bytes"] == 256 << 10 and row["seed"] == 7
    assert row["path_wifi_sent_bytes"] + row["path_lte_sent_bytes"] >= 256 << 10
    assert row["bound_s"] <= row["fct_s"]
    least = ropewalk.bound("wifi-lte", size="256 KiB")
    assert least is not None and least.capacity_s <= one.objective_s
    alone = ropewalk.simulate("wifi-lte", "tcp:lte", size="256 KiB")
    assert alone.runs["path_wifi_sent_bytes"] == [0.0] and alone.scheduler == "tcp lte"


def test_every_data_library_takes_a_table() -> None:
    duckdb = pytest.importorskip("duckdb")
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    run = ropewalk.simulate("equal-paths", size="64 KiB", segments=True, decisions=True, samples_every=0.01)
    segments = run.segments
    assert segments is not None and len(segments) >= 45
    table = pyarrow.table(segments)
    assert table.num_rows == len(segments) and table.schema.field("sent_s").metadata[b"unit"] == b"s"
    assert json.loads(table.schema.metadata[b"ropewalk.units"])["offset_bytes"] == "B"
    assert polars.DataFrame(segments)["length_bytes"].sum() >= 64 << 10
    frame = segments.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(segments)
    if hasattr(pandas.DataFrame, "from_arrow"):
        assert pandas.DataFrame.from_arrow(segments).equals(frame)
    assert duckdb.execute("select count(*) from segments").fetchone() == (len(segments),)
    assert run.decisions is not None and "has the least srtt" in " ".join(run.decisions["reason"])
    assert run.samples is not None and min(run.samples["cwnd_segments"]) >= 1


def test_a_comparison_is_the_commands() -> None:
    result = ropewalk.compare("small-buffers", ["minrtt", "blest"], sizes=["256 KiB"], runs=5, jobs=1)
    printed = json.loads(
        command(
            "compare",
            "--scenario",
            "small-buffers",
            "--schedulers",
            "minrtt,blest",
            "--size",
            "256 KiB",
            "--runs",
            "5",
            "--json",
        )
    )
    assert result.verdict == printed["verdict"]
    assert result.rankings == printed["rankings"]
    assert len(result.runs) == 5 * 5
    assert "minrtt" in result._repr_html_()
    assert ropewalk.compare(
        "small-buffers", ["minrtt", "blest"], sizes=["256 KiB"], runs=5, jobs=2
    ).rankings == (result.rankings)


def test_paths_of_ones_own_are_the_commands() -> None:
    run = ropewalk.simulate(ropewalk.Scenario(PATHS, ropewalk.Workload.flow("64 KiB")), "minrtt", seed=3)
    text = ["wifi: 50 Mbit/s, 20 ms +-5 ms, 0.5 %", "lte: 20 Mbit/s, 60 ms, queue 400 packets"]
    same = ropewalk.simulate(ropewalk.Scenario(text, ropewalk.Workload.flow(64 << 10)), "minrtt", seed=3)
    assert run.objective_s == same.objective_s
    scenario = ropewalk.Scenario(PATHS, ropewalk.Workload.cbr(3000, "2 Mbit/s", "1 s"), direction="upload")
    assert len(ropewalk.simulate(scenario).message_delays_s) in (83, 84)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ropewalk.simulate("wifi-lte", "minrt"), "unknown scheduler `minrt`; known: minrtt"),
        (lambda: ropewalk.Scenario("wifi-lt"), "there is no scenario `wifi-lt`"),
        (lambda: ropewalk.Scenario([ropewalk.Path("a", rate="5 furlongs", rtt="1 ms")]), "furlongs"),
        (lambda: ropewalk.compare("wifi-lte", ["minrtt"], budget=0), "`budget` is out of range"),
        (lambda: ropewalk.simulate("wifi-lte", "tcp:dsl"), "there is no path `dsl`; allowed: wifi, lte"),
        (lambda: ropewalk.reproduce("cfs-2020"), "there is no paper `cfs-2020`"),
    ],
)
def test_errors_have_the_commands_text(call, text: str) -> None:
    with pytest.raises(ropewalk.InputError, match=text.replace("(", "\\(")):
        call()


def test_other_threads_run_while_it_simulates() -> None:
    ticks = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.002):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.monotonic()
    # One simulation can be over after a few ticks.
    while time.monotonic() < begin + 0.2:
        ropewalk.simulate("wifi-lte", size="64 MiB")
    stop.set()
    thread.join()
    # A hundred ticks would fit. Between two simulations there is hardly time for one.
    assert len(ticks) > 10


@pytest.mark.parametrize("call", ["compare('wifi-lte', runs=100000)", "advise(budget='10000 s')"])
def test_an_interrupt_is_a_keyboard_interrupt(call: str) -> None:
    program = (
        # A job in the background of a shell ignores the signal, and so would Python.
        "import ropewalk, signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('began', flush=True)\n"
        f"try:\n ropewalk.{call}\n"
        "except KeyboardInterrupt:\n print('heard'); sys.exit(0)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "began\n"
    time.sleep(0.5)
    os.kill(child.pid, signal.SIGINT)
    try:
        assert child.communicate(timeout=30)[0] == "heard\n" and child.returncode == 0
    finally:
        child.kill()


def test_advice_and_papers() -> None:
    advice = ropewalk.advise("small-buffers", ["minrtt"], budget="0.02 s", jobs=1)
    assert advice.recommendation.startswith("Use ") and advice["variants"] > 0
    with pytest.raises(ropewalk.InputError, match="unknown scheduler `minrt`"):
        ropewalk.advise("small-buffers", ["minrt"])
    with pytest.raises(ropewalk.InputError, match="`system` can't be `linus`"):
        ropewalk.advise("small-buffers", system="linus")
    with pytest.raises(ropewalk.InputError, match="50 % to less than 100 % are allowed"):
        ropewalk.advise("small-buffers", certainty=0.2)


def test_advice_is_the_commands() -> None:
    """Also where all paths are measured, and none is stated."""
    measured = Path(__file__).parents[2] / "crates" / "lab" / "tests" / "measured"
    files = {name: [str(measured / "ping.txt"), str(measured / "iperf3.json")] for name in ("dsl", "lte")}
    common = ["--schedulers", "minrtt", "--budget", "20 ms", "--json"]
    for arguments, options in (
        ({"scenario": "small-buffers"}, ["--scenario", "small-buffers"]),
        (
            {"measured": files, "direction": "upload", "sizes": "64 KiB"},
            [
                *(f"--measured={name}={','.join(of)}" for name, of in files.items()),
                *("--direction", "upload", "--size", "64 KiB"),
            ],
        ),
    ):
        advice = ropewalk.advise(schedulers=["minrtt"], budget=0.02, **arguments)
        assert advice == json.loads(command("advise", *common, *options))


def test_a_paper_again() -> None:
    found = ropewalk.reproduce("cfs-2019", figure="table2", runs=1)
    assert "cfs-2019" in json.dumps(found)


def test_the_command_says_its_version() -> None:
    assert command("--version").strip() == f"ropewalk {ropewalk.__version__}"
    done = subprocess.run(
        [sys.executable, "-m", "ropewalk", "compare", "--size", "9 pounds"], capture_output=True
    )
    assert done.returncode == 2


def test_what_is_not_installed_is_named(monkeypatch) -> None:
    for missing in ("matplotlib", "matplotlib.pyplot", "gymnasium", "pyarrow"):
        monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "ropewalk.learn", raising=False)
    run = ropewalk.simulate("wifi-lte", size="1 KiB", segments=True)
    with pytest.raises(ImportError, match=r"pip install 'ropewalk\[plot\]'"):
        run.plot.rope()
    with pytest.raises(ImportError, match=r"pip install 'ropewalk\[learn\]'"):
        importlib.import_module("ropewalk.learn")
    with pytest.raises(ImportError, match="pip install pyarrow"):
        run.runs.to_arrow()
