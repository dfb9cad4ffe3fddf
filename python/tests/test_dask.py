"""A Dask cluster of two processes, of which one is killed in the middle of a sweep: nothing is lost."""

import os
import signal

import pytest

distributed = pytest.importorskip("distributed")

import ropewalk  # noqa: E402

VARY = {"path.lte.rtt": ["40 ms", "80 ms", "160 ms"], "path.wifi.loss": ["0 %", "1 %", "2 %"]}


@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_loses_nothing(tmp_path) -> None:
    scenario = ropewalk.Scenario("wifi-lte").replace(ropewalk.Workload.flow("256 KiB"))
    arguments = {"vary": VARY, "schedulers": ["minrtt", "ecf"], "runs": 20}
    here = ropewalk.sweep(scenario, **arguments)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with (
        distributed.LocalCluster(**options, local_directory=str(tmp_path)) as cluster,
        distributed.Client(cluster) as client,
    ):
        # When the first task is back, one of the two dies.
        workers = list(client.run(os.getpid).values())
        assert len(set(workers)) == 2
        killed = []

        def kill(done: int) -> None:
            if done > 0 and not killed:
                killed.append(workers[0])
                os.kill(workers[0], signal.SIGKILL)

        there = ropewalk.sweep(scenario, **arguments, client=client, task=10, progress=kill)
        assert killed
    assert there.runs.to_arrow().to_pylist() == here.runs.to_arrow().to_pylist()
