"""Environments: Gymnasium's checks, the same bytes for the same seed, and built-in schedulers through the
interface."""

import pytest

gymnasium = pytest.importorskip("gymnasium")
np = pytest.importorskip("numpy")

import ropewalk  # noqa: E402
from ropewalk import learn  # noqa: E402

SCENARIO = ropewalk.Scenario("small-buffers").replace(ropewalk.Workload.flow("128 KiB"))


def test_gymnasiums_checks_pass() -> None:
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make("ropewalk/Scheduling-v0", scenario=SCENARIO)
    check_env(env.unwrapped, skip_render_check=True)


def episode(env, seed: int, choose) -> tuple[list, float]:
    observation, info = env.reset(seed=seed)
    seen, total, over = [observation.tobytes()], 0.0, False
    while not over:
        observation, reward, terminated, truncated, info = env.step(choose(info))
        seen.append(observation.tobytes())
        assert env.observation_space.contains(observation)
        total, over = total + reward, terminated or truncated
    return seen, total


def test_the_same_seed_gives_the_same_bytes() -> None:
    def chooser():
        rng = np.random.default_rng(3)
        return lambda info: rng.choice(np.flatnonzero(info["action_mask"]))

    env = learn.SchedulingEnv("wifi-lte", burst=2)
    assert episode(env, 5, chooser()) == episode(env, 5, chooser())
    assert episode(env, 5, chooser()) != episode(env, 6, chooser())


def test_a_built_in_scheduler_through_the_interface_is_itself() -> None:
    for name in ("minrtt", "blest", "ecf", "linux"):
        scenario = ropewalk.Scenario("wifi-lte").replace(ropewalk.Workload.flow("256 KiB"))
        own = ropewalk.simulate(scenario, f"{name}", seed=9)
        env = learn.SchedulingEnv(
            scenario, baselines=[name], mechanisms="off" if name == "linux" else "paper"
        )
        _, total = episode(env, 9, lambda info: info["baseline_actions"][0])
        if name in ("minrtt", "blest", "ecf"):
            assert -total == pytest.approx(own.objective_s, abs=1e-9), name
        else:
            assert -total == pytest.approx(own.objective_s, rel=0.5)


def test_a_window_with_hardly_any_room_does_not_stop_an_episode() -> None:
    paths = [ropewalk.Path(name, rate="5 Mbit/s", rtt="50 ms") for name in "ab"]
    ends = {"receive-buffer": "64 KiB", "autotune": False}
    scenario = ropewalk.Scenario(paths, ropewalk.Workload.flow("512 KiB"), ends=ends)
    _, total = episode(
        learn.SchedulingEnv(scenario, baselines=["minrtt"]), 1, lambda info: info["baseline_actions"][0]
    )
    assert -total == pytest.approx(ropewalk.simulate(scenario, "minrtt", seed=1).objective_s, abs=1e-9)


def test_vectors_step_as_single_environments_do() -> None:
    vector = gymnasium.make_vec("ropewalk/Scheduling-v0", num_envs=5, scenario=SCENARIO, threads=3)
    assert vector.metadata["autoreset_mode"] == gymnasium.vector.AutoresetMode.NEXT_STEP
    singles = [learn.SchedulingEnv(SCENARIO) for _ in range(5)]
    rows, _ = vector.reset(seed=4)
    own = [env.reset(seed=4 + learn.SEED_STEP * i)[0] for i, env in enumerate(singles)]
    assert (rows == np.stack(own)).all()
    over = [False] * 5
    ended = 0
    for step in range(400):
        actions = np.array([(step + i) % 3 for i in range(5)])
        rows, rewards, terminated, truncated, info = vector.step(actions)
        assert rows in vector.observation_space
        for i, env in enumerate(singles):
            if over[i]:
                row, reward, over[i] = env.reset()[0], 0.0, False
            else:
                row, reward, one, two, _ = env.step(actions[i])
                over[i] = one or two
            assert (
                (row == rows[i]).all() and reward == rewards[i] and over[i] == (terminated[i] or truncated[i])
            )
            ended += over[i]
            if over[i]:
                assert info["episode_result"][i]["outcome"] == "complete"
    assert ended >= 5


def test_same_step_gives_the_last_observation() -> None:
    vector = learn.SchedulingVectorEnv(2, SCENARIO, same_step=True)
    vector.reset(seed=1)
    for _ in range(500):
        _, _, terminated, _, info = vector.step(np.array([0, 1]))
        if terminated.any():
            index = int(np.flatnonzero(terminated)[0])
            assert info["_final_obs"][index] and info["final_obs"][index].shape == (len(vector.features()),)
            return
    raise AssertionError("no episode ended")


@pytest.mark.parametrize("reward", ["completion", "goodput", "frame_delay", "cost"])
def test_rewards(reward: str) -> None:
    workload = ropewalk.Workload.cbr(3000, "4 Mbit/s", "300 ms") if reward == "frame_delay" else None
    scenario = ropewalk.Scenario("wifi-lte").replace(workload or ropewalk.Workload.flow("64 KiB"))
    env = learn.SchedulingEnv(scenario, reward=reward, costs={"wifi": 1.0, "lte": 2.0}, baselines=["minrtt"])
    _, total = episode(env, 2, lambda info: info["baseline_actions"][0])
    result = env._batch.native.ended(0)
    if reward == "goodput":
        assert total == pytest.approx(64 * 1024 * 8 / 1e6)
    elif reward == "completion":
        assert total == pytest.approx(-result["objective_s"])
    elif reward == "frame_delay":
        assert total == pytest.approx(-result["objective_s"] * 50)
    else:
        assert total < -result["objective_s"]


def test_a_family_takes_each_scenario_and_a_policy_is_evaluated() -> None:
    family = [SCENARIO, SCENARIO.replace(ropewalk.Workload.flow("32 KiB"))]
    env = learn.SchedulingEnv(scenarios=family, baselines=["minrtt"])
    seen = set()
    for seed in range(12):
        episode(env, seed, lambda info: info["baseline_actions"][0])
        seen.add(env._batch.native.ended(0)["scenario"])
    assert seen == {0, 1}
    results = learn.evaluate("minrtt", [SCENARIO], [1, 2, 3])
    assert [result["seed"] for result in results] == [1, 2, 3]
    assert results[0]["objective_s"] == pytest.approx(ropewalk.simulate(SCENARIO, "minrtt").objective_s)
