"""Sweeps: the table, the command's file, executors."""

import json
import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
import ropewalk

VARY = {"path.lte.rtt": ["40 ms", "160 ms"], "path.wifi.loss": ["0 %", "2 %"]}
SCENARIO = ropewalk.Scenario("wifi-lte").replace(ropewalk.Workload.flow("64 KiB"))


def rows(result) -> list:
    return result.runs.to_arrow().to_pylist()


def test_the_table_is_tidy() -> None:
    result = ropewalk.sweep(SCENARIO, VARY, ["minrtt", "tcp:wifi"], runs=3)
    assert len(result.runs) == 2 * 2 * 2 * 3
    for name in (
        "path_lte_rtt_s",
        "path_wifi_loss",
        "scenario",
        "seed",
        "fct_s",
        "goodput_bps",
        "retransmits",
        "ofo_max_bytes",
        "path_wifi_lost_packets",
    ):
        assert name in result.runs.column_names and name.isidentifier()
    assert set(result.runs["path_lte_rtt_s"]) == {0.04, 0.16}
    assert set(result.runs["seed"]) == {1, 2, 3}
    assert result.runs.units["goodput_bps"] == "bit/s"
    assert json.loads(result.runs.metadata["ropewalk.units"])["path_lte_rtt_s"] == "s"
    assert "path.lte.rtt" in result.runs.metadata["ropewalk.sweep"]
    assert {standing["scheduler"] for standing in result.standings} == {"minrtt", "tcp wifi"}


def test_a_folder_an_executor_and_the_command_give_the_same_table(tmp_path) -> None:
    text = (
        'scenario = "small-buffers"\nschedulers = ["minrtt", "linux"]\nruns = 2\n'
        '[[vary]]\nparameter = "workload.size"\nvalues = ["32 KiB", "64 KiB"]\n'
    )
    file = tmp_path / "sizes.toml"
    file.write_text(text)
    line = [
        sys.executable,
        "-m",
        "ropewalk",
        "sweep",
        str(file),
        "--out",
        str(tmp_path / "command"),
        "--json",
    ]
    subprocess.run(line, check=True, capture_output=True)
    here = ropewalk.sweep(file=file)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("forkserver")) as processes:
        elsewhere = ropewalk.sweep(file=file, executor=processes, task=3)
    with ThreadPoolExecutor(2) as pool:
        pooled = ropewalk.sweep(file=file, executor=pool, task=3)
        stored = ropewalk.sweep(file=file, executor=pool, task=2, out=tmp_path / "stored")
    assert rows(here) == rows(pooled) == rows(stored) == rows(elsewhere)
    files = [(tmp_path / folder / "runs.csv").read_bytes() for folder in ("command", "stored")]
    assert files[0] == files[1]
    assert here.runs.meanings == stored.runs.meanings and here.runs.units == stored.runs.units
    assert stored.runs.metadata["ropewalk.scenario"].startswith('name = "small-buffers"')
    kinds = [field.type for field in stored.runs.to_arrow().schema]
    assert kinds == [field.type for field in here.runs.to_arrow().schema]
    # What is there already isn't made again.
    heard = []
    ropewalk.sweep(file=file, out=tmp_path / "stored", progress=heard.append)
    assert heard == []


def test_a_scheduler_in_python_is_swept() -> None:
    class Own(ropewalk.Scheduler):
        def select(self, view):
            return view.fastest_available() if view.sendable() else None

    result = ropewalk.sweep(SCENARIO, {"workload.size": ["32 KiB"]}, [Own, "minrtt"], runs=2)
    by_name = {standing["scheduler"]: standing["mean_s"] for standing in result.standings}
    assert by_name["own"] == by_name["minrtt"]


def test_a_value_that_is_not_allowed_is_named() -> None:
    with pytest.raises(ropewalk.InputError, match="parsecs"):
        ropewalk.sweep("wifi-lte", {"path.lte.rtt": ["20 parsecs"]}, ["minrtt"])
