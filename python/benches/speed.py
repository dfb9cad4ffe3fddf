"""Speed of the Python package: what a scheduler in Python costs, and decisions a second of the environments.

    python python/benches/speed.py

The do-nothing environment steps in the same run: what it takes is Gymnasium's part, and this machine's.
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


def best(measure, times: int = 5) -> tuple[float, float]:
    """The best and the median of several measurements."""
    values = sorted(measure() for _ in range(times))
    return values[-1], statistics.median(values)


def cost_of_python() -> None:
    scenario = ropewalk.Scenario("wifi-lte").replace(ropewalk.Workload.flow("16 MiB"))
    ropewalk.simulate(scenario, Constant)
    calls = Constant.calls

    def seconds(scheduler) -> float:
        began = time.perf_counter()
        ropewalk.simulate(scenario, scheduler)
        return time.perf_counter() - began

    costs = []
    for _ in range(7):
        own, built_in = seconds(Fastest), seconds("minrtt")
        costs.append((own - built_in) / calls * 1e6)
    print(f"scheduler in Python: {min(costs):.2f} us a decision on top (median {statistics.median(costs):.2f}), {calls} decisions")


def single(env, seconds: float = 1.5) -> float:
    env.reset(seed=1)
    steps, began = 0, time.perf_counter()
    action = np.int64(0)
    while (now := time.perf_counter()) - began < seconds:
        for _ in range(500):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        steps += 500
    return steps / (now - began)


def vector(envs: int, threads: int, seconds: float = 1.5) -> float:
    env = learn.SchedulingVectorEnv(envs, "wifi-lte", threads=threads)
    env.reset(seed=1)
    actions = np.zeros(envs, np.int64)
    actions[::2] = 1
    steps, began = 0, time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        for _ in range(50):
            env.step(actions)
        steps += 50
    return steps * envs / (now - began)


def main() -> None:
    cost_of_python()
    env = gymnasium.make("ropewalk/Scheduling-v0", scenario="wifi-lte")
    high, middle = best(lambda: single(env))
    print(f"single environment: {high:,.0f} decisions a second (median {middle:,.0f})")
    plain = learn.SchedulingEnv("wifi-lte")
    high, middle = best(lambda: single(plain))
    print(f"  without Gymnasium's wrappers: {high:,.0f} (median {middle:,.0f})")
    nothing = Nothing(len(plain.features()))
    high, middle = best(lambda: single(nothing))
    print(f"  an environment that does nothing: {high:,.0f} (median {middle:,.0f})")
    for envs, threads in ((64, 1), (64, 2), (256, 2)):
        high, middle = best(lambda envs=envs, threads=threads: vector(envs, threads))
        print(f"vector of {envs}, {threads} threads: {high:,.0f} decisions a second (median {middle:,.0f})")


if __name__ == "__main__":
    main()
