"""Learn a scheduler with stable-baselines3 and compare it honestly with the built-in ones.

    pip install 'ropewalk[learn]' stable-baselines3
    python examples/learning/train.py --steps 200000 --file policy.json
    ropewalk compare --schedulers 'policy:policy.json,ecf,blest' --size '256 KiB'

It is trained on one family of scenarios and judged on other seeds of that family, and on families that it never saw. What is
compared are pairs with the same scenario and seed; the interval is a bootstrap of the mean of the logarithms of their ratios.
"""

from __future__ import annotations

import argparse
import math
import random

import numpy as np
import ropewalk
from ropewalk import Path, Scenario, Workload, learn
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv


class Simulations(VecEnv):
    """The native vector as stable-baselines3 has it: scaled observations, and the last one of an episode in `infos`."""

    def __init__(self, envs: learn.SchedulingVectorEnv) -> None:
        import gymnasium

        self.envs = envs
        width = len(envs.features())
        super().__init__(envs.num_envs, gymnasium.spaces.Box(0, 1, (width,), np.float32), envs.single_action_space)
        self.actions = np.zeros(envs.num_envs, np.int64)

    def reset(self):
        return learn.scaled(self.envs.reset(seed=self._start)[0], self.envs.features())

    _start = 1

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        observations, rewards, terminated, truncated, info = self.envs.step(self.actions)
        infos = [{} for _ in range(self.num_envs)]
        for index in np.flatnonzero(terminated | truncated):
            infos[index] = {
                "terminal_observation": learn.scaled(info["final_obs"][index], self.envs.features()),
                "TimeLimit.truncated": bool(truncated[index]),
                "episode": {"r": info["episode_result"][index]["reward"], "l": info["episode_result"][index]["decisions"]},
            }
        scaled = learn.scaled(observations, self.envs.features())
        return scaled, np.float32(rewards * 10), terminated | truncated, infos

    def close(self):
        pass

    def get_attr(self, attr_name, indices=None):
        return [None] * self.num_envs

    def set_attr(self, attr_name, value, indices=None):
        raise NotImplementedError

    def env_method(self, method_name, *args, indices=None, **kwargs):
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * self.num_envs


def family(count: int, seed: int, slow_rtt: tuple[float, float], buffer: str, loss: str) -> list[Scenario]:
    """Two paths, the second slower by a random amount; small buffers make the choice matter."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        rates = [draw.uniform(5e6, 20e6) for _ in range(2)]
        paths = [
            Path("fast", rate_bps=rates[0], rtt_s=draw.uniform(0.010, 0.030), loss=loss),
            Path("slow", rate_bps=rates[1], rtt_s=draw.uniform(*slow_rtt), queue="300 packets"),
        ]
        ends = {"send-buffer": buffer, "receive-buffer": buffer, "autotune": False}
        found.append(Scenario(paths, Workload.flow("256 KiB"), name="drawn", ends=ends))
    return found


def interval(logs: list[float]) -> tuple[float, float, float]:
    """The geometric mean of ratios, and its 95 % bootstrap interval."""
    draw = np.random.default_rng(1)
    values = np.array(logs)
    means = [values[draw.integers(0, len(values), len(values))].mean() for _ in range(2000)]
    low, high = np.percentile(means, [2.5, 97.5])
    return math.exp(values.mean()), math.exp(low), math.exp(high)


def times(scheduler: str, scenarios: list[Scenario], seeds: list[int]) -> list[float]:
    """Completion times, each scenario with each seed; a run that isn't complete counts as its limit of 60 s."""
    runs = (ropewalk.simulate(scenario, scheduler, seed=seed) for scenario in scenarios for seed in seeds)
    return [run.objective_s or 60.0 for run in runs]


def main() -> None:
    """Train, export, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--envs", type=int, default=32)
    parser.add_argument("--tests", type=int, default=10, help="scenarios of each family that it is judged on")
    parser.add_argument("--file", default="policy.json")
    options = parser.parse_args()
    training = family(100, 1, (0.080, 0.150), "128 KiB", "1 %")
    envs = learn.SchedulingVectorEnv(options.envs, scenarios=training, same_step=True)
    model = PPO("MlpPolicy", Simulations(envs), n_steps=256, batch_size=1024, gamma=1.0, gae_lambda=0.95, seed=1, device="cpu")
    model.learn(options.steps)
    learn.export(learn.layers_of(model), envs.features(), options.file)

    seeds = [1001, 1002, 1003]
    families = {
        "the same family, other scenarios and seeds": family(options.tests, 2, (0.080, 0.150), "128 KiB", "1 %"),
        "without losses": family(options.tests, 3, (0.080, 0.150), "128 KiB", "0 %"),
        "buffers of 64 KiB": family(options.tests, 4, (0.080, 0.150), "64 KiB", "1 %"),
        "slow paths of 30 to 60 ms": family(options.tests, 5, (0.030, 0.060), "128 KiB", "1 %"),
    }
    built_in = [name for name in ropewalk.schedulers() if name != "single"]
    for title, scenarios in families.items():
        own = times(f"policy:{options.file}", scenarios, seeds)
        others = {name: times(name, scenarios, seeds) for name in built_in}
        best = min(others, key=lambda name: sum(map(math.log, others[name])))
        print(f"{title} ({len(own)} pairs); the best built-in one, chosen with hindsight, is {best}")
        for name in dict.fromkeys(["ecf", "blest", best]):
            ratio, low, high = interval([math.log(a / b) for a, b in zip(own, others[name], strict=True)])
            print(f"  learned over {name}: {ratio:.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
