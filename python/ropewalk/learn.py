"""Learning: a Gymnasium environment whose actions are a scheduler's decisions, and a native vector of them.

`gymnasium.make("ropewalk/Scheduling-v0")` is one environment, `gymnasium.make_vec("ropewalk/Scheduling-v0",
num_envs=64)` a vector whose simulations step in threads of Rust with the interpreter released.

An episode is one run of a scenario. At each moment at which new data could be sent the data's sender is
asked: action `i` sends one segment (`burst` of them) on path `i`, the last action waits. A path without room
counts as a wait; `info["action_mask"]` says which have room. An observation is what a scheduler sees;
`features()` names each number with its unit and bound.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

try:
    import gymnasium
    import numpy as np
    from gymnasium.utils import EzPickle
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
    from numpy.typing import NDArray
except ImportError as error:
    raise ImportError("ropewalk.learn needs Gymnasium and NumPy: pip install 'ropewalk[learn]'") from error

from ropewalk import _native
from ropewalk._api import AnyScenario
from ropewalk._arguments import listed, whole, whole_or_none
from ropewalk._scenario import as_scenario

#: Seeds of neighbouring environments of a vector lie this far apart.
SEED_STEP = 1_000_003

_Observation = NDArray[np.float32]


class _Batch:
    """Simulations, and the arrays that their steps fill."""

    def __init__(
        self,
        scenarios: Sequence[AnyScenario],
        count: int,
        threads: int | None,
        congestion: str,
        reward: str,
        costs: Mapping[str, float],
        burst: int,
        mechanisms: str,
        baselines: Sequence[str],
        same_step: bool,
    ) -> None:
        natives = [as_scenario(scenario)._native for scenario in scenarios]
        baselines = listed("baselines", baselines)
        names = natives[0].path_names
        unknown = [name for name in costs if name not in names]
        if unknown:
            raise ValueError(f"there is no path `{unknown[0]}`; allowed: {', '.join(names)}")
        self.native = _native.Environments(
            natives,
            count,
            whole_or_none("threads", threads),
            congestion,
            reward,
            [float(costs.get(name, 0.0)) for name in names],
            whole("burst", burst),
            mechanisms,
            baselines,
            same_step,
        )
        self.features = self.native.features()
        actions = len(names) + 1
        self.observations: _Observation = np.zeros((count, len(self.features)), np.float32)
        self.rewards: NDArray[np.float64] = np.zeros(count, np.float64)
        self.terminated: NDArray[np.uint8] = np.zeros(count, np.uint8)
        self.truncated: NDArray[np.uint8] = np.zeros(count, np.uint8)
        self.masks: NDArray[np.uint8] = np.zeros((count, actions), np.uint8)
        self.advice: NDArray[np.int64] = np.zeros((count, max(len(baselines), 1)), np.int64)
        self.actions: NDArray[np.int64] = np.zeros(count, np.int64)
        self.finals: _Observation = np.zeros_like(self.observations)
        self.native.bind(
            self.observations,
            self.rewards,
            self.terminated,
            self.truncated,
            self.masks,
            self.advice,
            self.actions,
            self.finals,
        )
        high = np.array([bound for _, _, bound in self.features], np.float32)
        self.observation_space = gymnasium.spaces.Box(np.zeros_like(high), high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(actions)


def _family(scenario: AnyScenario | None, scenarios: Sequence[AnyScenario] | None) -> Sequence[AnyScenario]:
    if scenarios is not None:
        return scenarios
    return ["wifi-lte" if scenario is None else scenario]


class SchedulingEnv(gymnasium.Env[_Observation, np.int64], EzPickle):
    """One environment: `gymnasium.make("ropewalk/Scheduling-v0", scenario=..., reward=...)`.

    `scenario`, or `scenarios`, a family from which each episode takes one by its seed.

    `reward` is `completion` (minus the seconds since the last decision; an episode's sum is minus its
    completion time), `goodput` (Mbit delivered since), `frame_delay` (at the end, minus the sum of the
    frames' delays in seconds), or `cost` (as completion, minus what bytes cost: `costs` has seconds per 10^6
    bytes by path). `burst`: segments per decision. `mechanisms`: whose opportunistic retransmission and
    penalisation run (`off`, `paper`, `linux`). `baselines`: built-in schedulers whose decisions
    `info["baseline_actions"]` has.

    The same seed gives the same bytes; episode `k` after `reset(seed=s)` has seed `s + k`. A copy or a pickle
    is made from the arguments: it is as before the first episode.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        scenario: AnyScenario | None = None,
        *,
        scenarios: Sequence[AnyScenario] | None = None,
        reward: str = "completion",
        costs: Mapping[str, float] | None = None,
        congestion: str = "cubic",
        burst: int = 1,
        mechanisms: str = "paper",
        baselines: Sequence[str] = (),
        render_mode: str | None = None,
    ) -> None:
        EzPickle.__init__(
            self,
            scenario,
            scenarios=scenarios,
            reward=reward,
            costs=costs,
            congestion=congestion,
            burst=burst,
            mechanisms=mechanisms,
            baselines=baselines,
            render_mode=render_mode,
        )
        self.render_mode = render_mode
        self._batch = _Batch(
            _family(scenario, scenarios),
            1,
            1,
            congestion,
            reward,
            costs or {},
            burst,
            mechanisms,
            baselines,
            False,
        )
        self._step = self._batch.native.step_one
        self._row = self._batch.observations[0]
        self._mask = self._batch.masks[0]
        self._advice = self._batch.advice[0]
        self.observation_space = self._batch.observation_space
        self.action_space = self._batch.action_space
        self._baselines = bool(baselines)
        self._done = True

    def features(self) -> list[tuple[str, str, float]]:
        """Give name, unit and upper bound of each number of an observation; the lower bound is 0."""
        return self._batch.features

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Observation, dict[str, Any]]:
        """Begin an episode; with `seed` its seed, else the one after the last."""
        seed = whole_or_none("seed", seed)
        super().reset(seed=seed)
        self._batch.native.reset([seed], [0])
        self._done = False
        return self._row.copy(), self._info()

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"action_mask": self._mask.copy()}
        if self._baselines:
            info["baseline_actions"] = self._advice.copy()
        return info

    def step(self, action: np.int64) -> tuple[_Observation, float, bool, bool, dict[str, Any]]:
        """Decide, and go on to the next decision; at the end `info["episode_result"]` has what the run
        gave."""
        if self._done:
            raise RuntimeError("the episode is over: call reset()")
        reward, terminated, truncated = self._step(int(action))
        info: dict[str, Any] = {"action_mask": self._mask.copy()}
        if self._baselines:
            info["baseline_actions"] = self._advice.copy()
        if terminated or truncated:
            self._done = True
            info["episode_result"] = self._batch.native.ended(0)
        return self._row.copy(), reward, terminated, truncated, info


class SchedulingVectorEnv(VectorEnv[_Observation, NDArray[np.int64], NDArray[Any]], EzPickle):
    """Many environments, stepped by `threads` threads of Rust: `gymnasium.make_vec("ropewalk/Scheduling-v0",
    num_envs=64)`.

    Arguments are `SchedulingEnv`'s. After the end of an episode the next step begins another, whatever its
    action (`AutoresetMode.NEXT_STEP`, in `metadata`); with `same_step=True` the same step does, and
    `info["final_obs"]` has the last observation. Environment `i` has seeds from `seed + 1000003 i` on.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 1,
        scenario: AnyScenario | None = None,
        *,
        scenarios: Sequence[AnyScenario] | None = None,
        reward: str = "completion",
        costs: Mapping[str, float] | None = None,
        congestion: str = "cubic",
        burst: int = 1,
        mechanisms: str = "paper",
        baselines: Sequence[str] = (),
        threads: int | None = None,
        same_step: bool = False,
        render_mode: str | None = None,
    ) -> None:
        VectorEnv.__init__(self)
        EzPickle.__init__(
            self,
            num_envs,
            scenario,
            scenarios=scenarios,
            reward=reward,
            costs=costs,
            congestion=congestion,
            burst=burst,
            mechanisms=mechanisms,
            baselines=baselines,
            threads=threads,
            same_step=same_step,
            render_mode=render_mode,
        )
        num_envs = whole("num_envs", num_envs)
        self.render_mode = render_mode
        mode = AutoresetMode.SAME_STEP if same_step else AutoresetMode.NEXT_STEP
        self.metadata = {**type(self).metadata, "autoreset_mode": mode}
        self.num_envs = num_envs
        self._same_step = same_step
        self._batch = _Batch(
            _family(scenario, scenarios),
            num_envs,
            threads,
            congestion,
            reward,
            costs or {},
            burst,
            mechanisms,
            baselines,
            same_step,
        )
        self._baselines = bool(baselines)
        self._everyone = np.ones(num_envs, np.bool_)
        self.single_observation_space = self._batch.observation_space
        self.single_action_space = self._batch.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def features(self) -> list[tuple[str, str, float]]:
        """Give name, unit and upper bound of each number of an observation; the lower bound is 0."""
        return self._batch.features

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Observation, dict[str, Any]]:
        """Begin an episode in each; a list gives each its seed. `options={"reset_mask": [...]}` resets some
        only."""
        if seed is not None and not isinstance(seed, Iterable):
            seed = whole("seed", seed)
        super().reset(seed=seed if isinstance(seed, int) else None)
        if seed is None or isinstance(seed, int):
            seeds = [None if seed is None else seed + SEED_STEP * i for i in range(self.num_envs)]
        else:
            seeds = [None if one is None else int(one) for one in seed]
        if seed is None and self._batch.native.ended(0)["episodes"] == 0:
            # Without any seed neighbours still differ.
            start = int(self.np_random.integers(0, 2**32))
            seeds = [start + SEED_STEP * i for i in range(self.num_envs)]
        mask = (options or {}).get("reset_mask", self._everyone)
        self._batch.native.reset(seeds, [int(i) for i in np.flatnonzero(mask)])
        return self._batch.observations.copy(), self._info()

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"action_mask": self._batch.masks.copy(), "_action_mask": self._everyone}
        if self._baselines:
            info["baseline_actions"] = self._batch.advice.copy()
            info["_baseline_actions"] = self._everyone
        return info

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[_Observation, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Decide in each, and go on to each one's next decision."""
        batch = self._batch
        batch.actions[:] = actions
        batch.native.step()
        info = self._info()
        terminated, truncated = batch.terminated.astype(np.bool_), batch.truncated.astype(np.bool_)
        over = terminated | truncated
        if over.any():
            results: NDArray[Any] = np.full(self.num_envs, None, dtype=object)
            finals: NDArray[Any] = np.full(self.num_envs, None, dtype=object)
            for index in np.flatnonzero(over):
                results[index] = batch.native.ended(int(index))
                finals[index] = batch.finals[index].copy()
            info["episode_result"], info["_episode_result"] = results, over
            if self._same_step:
                info["final_obs"], info["_final_obs"] = finals, over
        return batch.observations.copy(), batch.rewards.copy(), terminated, truncated, info


#: A policy: observations (n, features) and masks (n, actions) to actions (n).
Policy = Callable[[NDArray[Any], NDArray[Any]], NDArray[np.int64]]


def evaluate(
    policy: str | Policy,
    scenarios: Sequence[AnyScenario],
    seeds: Sequence[int],
    *,
    reward: str = "completion",
    congestion: str = "cubic",
    mechanisms: str = "paper",
) -> list[dict[str, Any]]:
    """Run a policy once with each scenario and seed; what each run gave, in order.

    A text names a built-in scheduler, which is asked through the same interface.
    """
    results: list[dict[str, Any]] = []
    for scenario in scenarios:
        env = SchedulingVectorEnv(
            len(seeds),
            scenario,
            reward=reward,
            congestion=congestion,
            mechanisms=mechanisms,
            baselines=(policy,) if isinstance(policy, str) else (),
        )
        observations, info = env.reset(seed=list(seeds))
        found: list[dict[str, Any] | None] = [None] * len(seeds)
        while any(one is None for one in found):
            if isinstance(policy, str):
                actions = info["baseline_actions"][:, 0]
            else:
                actions = policy(observations, info["action_mask"])
            observations, _, _, _, info = env.step(actions)
            if "episode_result" in info:
                for index in np.flatnonzero(info["_episode_result"]):
                    if found[index] is None:
                        found[index] = info["episode_result"][index]
        results.extend(one for one in found if one is not None)
    return results


def scaled(observations: NDArray[Any], features: Sequence[tuple[str, str, float]]) -> _Observation:
    """Give observations between 0 and 1, on a logarithmic scale: `log1p(x) / log1p(bound)`. What networks
    learn from."""
    bounds = np.log1p(np.array([bound for _, _, bound in features], np.float64))
    return np.asarray(np.log1p(observations) / bounds, np.float32)


def export(
    layers: Sequence[tuple[NDArray[Any], NDArray[Any], str]],
    features: Sequence[tuple[str, str, float]],
    file: str,
) -> None:
    """Write a network as a file that runs as the scheduler `policy:FILE`, in every world and from the
    command.

    `layers` are weights (outputs, inputs), bias (outputs) and activation (`tanh`, `relu`, `none`). The
    network takes scaled observations (`scaled`) and scores each path and, last, waiting; the highest score
    among what is possible is the action.
    """
    outputs = len(layers[-1][1])
    document = {
        "format": 1,
        "paths": outputs - 1,
        "log": True,
        "shift": [0.0] * len(features),
        "scale": [math.log1p(bound) for _, _, bound in features],
        "layers": [
            {
                "weights": np.asarray(w, float).tolist(),
                "bias": np.asarray(b, float).tolist(),
                "activation": activation,
            }
            for w, b, activation in layers
        ],
    }
    with open(file, "w", encoding="utf-8") as out:
        json.dump(document, out)


def layers_of(model: Any) -> list[tuple[NDArray[Any], NDArray[Any], str]]:
    """Give the layers of a stable-baselines3 actor (PPO, A2C with `MlpPolicy`) as `export` takes them."""
    layers: list[tuple[NDArray[Any], NDArray[Any], str]] = []
    for module in [*model.policy.mlp_extractor.policy_net, model.policy.action_net]:
        kind = type(module).__name__.lower()
        if kind == "linear":
            weights = module.weight.detach().cpu().numpy()
            layers.append((weights, module.bias.detach().cpu().numpy(), "none"))
        elif kind in ("tanh", "relu"):
            layers[-1] = (*layers[-1][:2], kind)
        else:
            raise ValueError(f"a layer of kind {kind} can't be exported; allowed: Linear, Tanh, ReLU")
    return layers


def network(
    layers: Sequence[tuple[NDArray[Any], NDArray[Any], str]], features: Sequence[tuple[str, str, float]]
) -> Policy:
    """Give the policy that `export` writes, for `evaluate`."""

    def act(observations: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.int64]:
        values = np.log1p(observations.astype(float)) / np.log1p([bound for _, _, bound in features])
        for weights, bias, activation in layers:
            values = values @ np.asarray(weights, float).T + np.asarray(bias, float)
            if activation == "tanh":
                values = np.tanh(values)
            elif activation == "relu":
                values = np.maximum(values, 0)
        return np.asarray(np.argmax(np.where(masks > 0, values, -np.inf), axis=1), np.int64)

    return act
