"""Speed of the Python package: what a scheduler in Python costs, and decisions a second of the environments.

    python python/benches/speed.py

The do-nothing environment steps in the same run: what it takes is Gymnasium's part, and this machine's.
Beside each rate is the one by processor time: what one core does that nobody else uses.
"""

from __future__ import annotations

import statistics
import time

import gymnasium
import numpy as np
import ropewalk
from ropewalk import learn


class Fastest(ropewalk.Scheduler):
    """minrtt's rule."""

    def select(self, view):
        return view.fastest_available() if view.sendable() else None


class Constant(ropewalk.Scheduler):
    """minrtt's rule, counted."""

    calls = 0

    def select(self, view):
        Constant.calls += 1
        return view.fastest_available() if view.sendable() else None


class Nothing(gymnasium.Env):
    """An environment that does nothing, with spaces as the real one's."""

    def __init__(self, features: int) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 1, (features,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.row = np.zeros(features, np.float32)
        self.mask = np.ones(3, np.uint8)

    def reset(self, *, seed=None, options=None):
        return self.row.copy(), {"action_mask": self.mask.copy()}

    def step(self, action):
        return self.row.copy(), 0.0, False, False, {"action_mask": self.mask.copy()}


#: Decisions a second, and decisions a second of processor time.
Speed = tuple[float, float]


def report(name: str, measure, times: int = 5) -> None:
    """Print the best and the median of several measurements."""
    speeds: list[Speed] = [measure() for _ in range(times)]
    rates, by_processor = (sorted(values) for values in zip(*speeds, strict=True))
    middle = statistics.median(rates)
    print(f"{name}: {rates[-1]:,.0f} (median {middle:,.0f}); by processor time {by_processor[-1]:,.0f}")


class Clock:
    """Counts steps until the time is over."""

    def __init__(self, seconds: float = 1.5) -> None:
        self.steps, self.until = 0, time.perf_counter() + seconds
        self.began, self.used = time.perf_counter(), time.process_time()

    def goes_on(self) -> bool:
        return time.perf_counter() < self.until

    def speed(self) -> Speed:
        return self.steps / (time.perf_counter() - self.began), self.steps / (time.process_time() - self.used)


def cost_of_python() -> None:
    scenario = ropewalk.Scenario("wifi-lte").replace(ropewalk.Workload.flow("16 MiB"))
    ropewalk.simulate(scenario, Constant)
    calls = Constant.calls

    def seconds(scheduler, clock) -> float:
        began = clock()
        ropewalk.simulate(scenario, scheduler)
        return clock() - began

    for name, clock in (("", time.perf_counter), (" of processor time", time.process_time)):
        own = [seconds(Fastest, clock) for _ in range(15)]
        built_in = [seconds("minrtt", clock) for _ in range(15)]
        least = (min(own) - min(built_in)) / calls * 1e6
        middle = (statistics.median(own) - statistics.median(built_in)) / calls * 1e6
        print(
            f"scheduler in Python: {least:.2f} us{name} a decision on top "
            f"(of medians {middle:.2f}), {calls} decisions"
        )


def single(env) -> Speed:
    env.reset(seed=1)
    action, clock = np.int64(0), Clock()
    while clock.goes_on():
        for _ in range(500):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        clock.steps += 500
    return clock.speed()


def vector(envs: int, threads: int) -> Speed:
    env = learn.SchedulingVectorEnv(envs, "wifi-lte", threads=threads)
    env.reset(seed=1)
    actions = np.zeros(envs, np.int64)
    actions[::2] = 1
    clock = Clock()
    while clock.goes_on():
        for _ in range(50):
            env.step(actions)
        clock.steps += 50 * envs
    return clock.speed()


def main() -> None:
    cost_of_python()
    print("decisions a second")
    env = gymnasium.make("ropewalk/Scheduling-v0", scenario="wifi-lte")
    report("single environment", lambda: single(env))
    plain = learn.SchedulingEnv("wifi-lte")
    report("  without Gymnasium's wrappers", lambda: single(plain))
    nothing = Nothing(len(plain.features()))
    report("  an environment that does nothing", lambda: single(nothing))
    for envs, threads in ((64, 1), (64, 2), (256, 2)):
        report(
            f"vector of {envs}, threads: {threads}", lambda envs=envs, threads=threads: vector(envs, threads)
        )


if __name__ == "__main__":
    main()
