"""What scripts have at hand: scalars of numpy and pandas, paths of pathlib, one thing where several may
stand."""

import copy
import datetime
import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest
import ropewalk
from ropewalk import _native
from ropewalk._arguments import files, listed, quantity, whole

PING = "".join(f"64 bytes from 192.0.2.1: icmp_seq={n} ttl=55 time=60.{n % 10} ms\n" for n in range(1, 41))


def scalars() -> list[Any]:
    numpy = pytest.importorskip("numpy")
    found = [numpy.int64(3), numpy.uint8(3), numpy.float32(3.0), numpy.array(3), 3, 3.0]
    try:
        import pandas
    except ImportError:
        return found
    return [*found, pandas.Series([3, 4])[0], pandas.DataFrame({"runs": [3.0]})["runs"].iloc[0]]


def test_scalars_of_any_library_are_numbers() -> None:
    for three in scalars():
        assert whole("runs", three) == 3
        assert quantity("size", three, "B") == "3 B"
        assert quantity("limit", three, "s") == "3000000000 ns"
        path = ropewalk.Path("a", rate_bps=three, loss=0.5, mtu=three)
        assert path.keys["rate"] == "3 bit/s" and type(path.keys["mtu"]) in (int, float)
    assert quantity("limit", datetime.timedelta(milliseconds=20), "s") == "20000000 ns"
    numpy = pytest.importorskip("numpy")
    assert quantity("limit", numpy.timedelta64(20, "ms"), "s") == "20000000 ns"
    run = ropewalk.simulate("equal-paths", size=numpy.int64(65536), seed=numpy.int64(7))
    assert run.runs["delivered_bytes"] == [65536]
    sizes = numpy.array([32768, 65536])
    result = ropewalk.compare("equal-paths", "minrtt", sizes=sizes, runs=numpy.int64(5), progress=False)
    assert len(result.rankings) == 2
    swept = ropewalk.sweep(
        "small-buffers",
        {"scheduler.ecf.beta": numpy.array([0.25, 0.5])},
        "ecf",
        runs=numpy.int32(2),
        progress=False,
    )
    assert len(swept.runs) >= 4


def test_errors_name_the_argument() -> None:
    for wrong, argument in [
        (lambda: ropewalk.simulate(size=[1, 2]), "size"),  # type: ignore[arg-type]
        (lambda: ropewalk.simulate(seed="one"), "seed"),  # type: ignore[arg-type]
        (lambda: ropewalk.compare(runs=2.5), "runs"),  # type: ignore[arg-type]
        (lambda: ropewalk.compare(limit=float("nan")), "limit"),
        (lambda: ropewalk.compare(schedulers=[3]), "schedulers"),  # type: ignore[list-item]
        (lambda: ropewalk.advise(measured={"lte": 3}), "measured"),  # type: ignore[dict-item]
        (lambda: ropewalk.compare(congestion=3), "congestion"),  # type: ignore[arg-type]
        (lambda: ropewalk.compare(value=5), "value"),  # type: ignore[arg-type]
        (lambda: ropewalk.advise(system=6.18), "system"),  # type: ignore[arg-type]
        (lambda: ropewalk.advise(schedulers=[3]), "schedulers"),  # type: ignore[list-item]
        (lambda: ropewalk.advise(certainty=[0.5]), "certainty"),  # type: ignore[arg-type]
        (lambda: ropewalk.simulate(size=1.5), "size"),  # type: ignore[arg-type]
    ]:
        with pytest.raises((TypeError, ValueError), match=f"`{argument}`"):
            wrong()


def test_one_file_may_stand_where_a_list_may(tmp_path: Path) -> None:
    file = tmp_path / "ping.txt"
    file.write_text(PING)
    paths = ["dsl: 16/1 Mbit/s, 30 ms", "lte: 20/5 Mbit/s, 60 ms"]
    for given in (file, str(file), [file], (str(file),)):
        advice = ropewalk.advise(
            paths, "minrtt", sizes="64 KiB", measured={"lte": given}, budget=0.01, progress=False
        )
        assert advice["read"][0]["files"] == [str(file)]
    assert (
        listed("schedulers", "ecf") == ["ecf"]
        and listed("sizes", None) == []
        and listed("sizes", (1, 2)) == [1, 2]
    )
    assert files("measured", file) == [str(file)]
    trace = tmp_path / "link.down"
    trace.write_text("1\n2\n3\n")
    traced = ropewalk.Scenario([ropewalk.Path("a", trace=trace, rtt="20 ms"), paths[0]])
    assert traced.path_names == ["a", "dsl"]


def test_environments_can_be_pickled_and_copied() -> None:
    pytest.importorskip("gymnasium")
    from ropewalk.learn import SchedulingEnv, SchedulingVectorEnv

    env = SchedulingEnv("equal-paths", baselines="minrtt")
    first, info = env.reset(seed=3)
    for other in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        again, told = other.reset(seed=3)
        assert (again == first).all() and (told["baseline_actions"] == info["baseline_actions"]).all()
        assert other.step(0)[2] is False
    vector = SchedulingVectorEnv(2, "equal-paths", same_step=True)
    copied = pickle.loads(pickle.dumps(vector))
    assert (copied.reset(seed=5)[0] == vector.reset(seed=5)[0]).all() and copied.num_envs == 2


@pytest.mark.parametrize("command", ["compare", "advise"])
def test_settings_and_defaults_are_the_commands(command: str) -> None:
    parameters = inspect.signature(getattr(ropewalk, command)).parameters
    for name, _, default in _native.settings(command):
        # None and nothing stand for the command's default.
        assert not parameters[name].default or str(parameters[name].default) == default, name


def test_one_run_has_the_defaults_of_explain() -> None:
    parameters = inspect.signature(ropewalk.simulate).parameters
    defaults = {name: default for name, _, default in _native.settings("explain")}
    assert parameters["scheduler"].default == defaults["schedulers"]
    assert str(parameters["seed"].default) == defaults["seed"]
