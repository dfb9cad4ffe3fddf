"""A Multipath TCP laboratory.

Every published packet scheduler runs over the paths that you describe, in a deterministic simulation of the
real protocol.

>>> import ropewalk
>>> scenario = ropewalk.Scenario(
...     [
...         ropewalk.Path("wifi", rate="50 Mbit/s", rtt="20 ms"),
...         ropewalk.Path("lte", rate="20 Mbit/s", rtt="60 ms"),
...     ],
...     workload=ropewalk.Workload.flow("256 KiB"),
... )
>>> run = ropewalk.simulate(scenario, "minrtt", seed=1)
>>> run.outcome
'complete'
>>> 0.05 < run.objective_s < 0.5
True
"""

from ropewalk._api import (
    Advice,
    Bound,
    Comparison,
    Reproduction,
    Run,
    advise,
    bound,
    compare,
    congestion_controls,
    papers,
    reproduce,
    schedulers,
    simulate,
)
from ropewalk._errors import InputError, RopewalkError, SchedulerError
from ropewalk._native import __version__
from ropewalk._scenario import Path, Scenario, Workload, scenarios
from ropewalk._sweep import SweepResult, sweep
from ropewalk._table import Table
from ropewalk.scheduler import (
    Chunk,
    Decision,
    Duplicate,
    Queue,
    Scheduler,
    Send,
    SendAt,
    Subflow,
    View,
    Wait,
    Withdraw,
)

__all__ = [
    "Advice",
    "Bound",
    "Chunk",
    "Comparison",
    "Decision",
    "Duplicate",
    "InputError",
    "Path",
    "Queue",
    "Reproduction",
    "RopewalkError",
    "Run",
    "Scenario",
    "Scheduler",
    "SchedulerError",
    "Send",
    "SendAt",
    "Subflow",
    "SweepResult",
    "Table",
    "View",
    "Wait",
    "Withdraw",
    "Workload",
    "__version__",
    "advise",
    "bound",
    "compare",
    "congestion_controls",
    "papers",
    "reproduce",
    "scenarios",
    "schedulers",
    "simulate",
    "sweep",
]


def _register() -> None:
    """Register the environment where Gymnasium is installed."""
    try:
        from gymnasium.envs.registration import register, registry
    except ImportError:
        return
    if "ropewalk/Scheduling-v0" not in registry:
        register(
            id="ropewalk/Scheduling-v0",
            entry_point="ropewalk.learn:SchedulingEnv",
            vector_entry_point="ropewalk.learn:SchedulingVectorEnv",
        )


def __getattr__(name: str) -> object:
    """Import `ropewalk.learn` and `ropewalk.testing` when they are first used."""
    if name in ("learn", "testing"):
        import importlib

        return importlib.import_module(f"ropewalk.{name}")
    raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")


_register()
