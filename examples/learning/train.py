"""Learn a scheduler for two paths on drawn networks: imitate a rule, then improve its output layer by an evolution strategy.

    pip install 'ropewalk[learn]'
    ropewalk-papers arena --cells drawn --paths 2 --draw 200 --draw-seed 20260301 --runs 2 --schedulers minrtt,cfs --files cells
    python examples/learning/train.py cells policy.json
    ropewalk-papers arena --cells drawn --paths 2 --draw-seed 20261128 --schedulers policy:policy.json,ropewalk,cfs,minrtt

The network scores each path by the same weights, whichever is first, and waiting by what both have in common. Judge it by a
seed that it wasn't trained on. An interrupted run goes on where `policy.json.npz` ends; the same seeds give the same policy.
"""

from __future__ import annotations

import argparse
import math
import pathlib

import numpy as np
import ropewalk
from ropewalk import Scenario, learn

HIDDEN = 32
#: Numbers of an observation that are of the connection; those of either path follow.
CONNECTION, PATH = 7, 20
#: Decisions of a run that are learned from.
SOME = 300


def cell(file: pathlib.Path) -> Scenario:
    """A drawn cell with joins as the arena has them."""
    text = file.read_text(encoding="utf-8")
    head = "[ends]\n" if "[ends]\n" in text else None
    early = "[ends]\nearly-join = true\n"
    return Scenario.from_toml(text.replace(head, early, 1) if head else f"{text}\n{early}")


class Network:
    """Scores of two paths and of waiting: `tanh` of a layer that sees the path's own side first."""

    def __init__(self, features: list[tuple[str, str, float]], draw: np.random.Generator) -> None:
        self.features = features
        width = len(features)
        self.mean, self.std = np.zeros(width), np.ones(width)
        self.w, self.b = draw.normal(0, width**-0.5, (HIDDEN, width)), np.zeros(HIDDEN)
        # Of the path, of waiting, and waiting's bias.
        self.out = np.concatenate([draw.normal(0, 0.1, 2 * HIDDEN), [0.0]])
        middle = (CONNECTION + width) // 2
        self.swap = np.r_[0:CONNECTION, middle:width, CONNECTION:middle]

    def inputs(self, observations: np.ndarray) -> np.ndarray:
        return (np.log1p(observations.astype(float)) - self.mean) / self.std

    def hidden(self, x: np.ndarray) -> np.ndarray:
        return np.tanh(np.stack([x, x[:, self.swap]], 1) @ self.w.T + self.b)

    def scores(self, h: np.ndarray) -> np.ndarray:
        path, wait, bias = self.out[:HIDDEN], self.out[HIDDEN:-1], self.out[-1]
        return np.concatenate([h @ path, (h.sum(1) @ wait + bias)[:, None]], 1)

    def act(self, observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
        return np.where(masks > 0, self.scores(self.hidden(self.inputs(observations))), -np.inf).argmax(1)

    def fit(self, observations: np.ndarray, masks: np.ndarray, actions: np.ndarray, draw: np.random.Generator) -> float:
        """Cross-entropy by Adam; gives the share of decisions that agree."""
        logs = np.log1p(observations.astype(float))
        # Both sides have one scale.
        both = np.concatenate([logs, logs[:, self.swap]])
        self.mean, self.std = both.mean(0), both.std(0) + 1e-6
        x = self.inputs(observations)
        names = ["w", "b", "out"]
        moments = {name: [np.zeros_like(getattr(self, name)) for _ in range(2)] for name in names}
        step = 0
        for epoch in range(20):
            order = draw.permutation(len(x))
            for start in range(0, len(order), 512):
                at = order[start : start + 512]
                h = self.hidden(x[at])
                scores = np.where(masks[at] > 0, self.scores(h), -1e9)
                p = np.exp(scores - scores.max(1, keepdims=True))
                p /= p.sum(1, keepdims=True)
                p[np.arange(len(at)), actions[at]] -= 1
                p /= len(at)
                path, wait = self.out[:HIDDEN], self.out[HIDDEN:-1]
                back = (p[:, :2, None] * path + p[:, 2, None, None] * wait) * (1 - h**2)
                sides = np.stack([x[at], x[at][:, self.swap]], 1)
                gradients = {
                    "w": np.einsum("nsh,nsf->hf", back, sides),
                    "b": back.sum((0, 1)),
                    "out": np.concatenate(
                        [np.einsum("ns,nsh->h", p[:, :2], h), np.einsum("n,nsh->h", p[:, 2], h), [p[:, 2].sum()]]
                    ),
                }
                step += 1
                rate = 3e-3 * (1 - epoch / 20) * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
                for name, gradient in gradients.items():
                    first, second = moments[name]
                    first += 0.1 * (gradient - first)
                    second += 0.001 * (gradient**2 - second)
                    setattr(self, name, getattr(self, name) - rate * first / (np.sqrt(second) + 1e-8))
        return float((self.act(observations, masks) == actions).mean())

    def export(self, out: np.ndarray, file: str) -> None:
        """As `policy:FILE` reads it: the scaling is part of the first layer."""
        bounds = np.log1p([bound for _, _, bound in self.features])
        path, wait, bias = out[:HIDDEN], out[HIDDEN:-1], out[-1]
        # On the file's side an input is divided by its bound.
        one, other = (w * bounds for w in (self.w / self.std, np.zeros_like(self.w)))
        other[:, self.swap] = self.w / self.std
        other *= bounds
        shifts = self.b - (self.w / self.std) @ self.mean
        zero = np.zeros(HIDDEN)
        last = np.array([np.r_[path, zero], np.r_[zero, path], np.r_[wait, wait]])
        layers = [(np.r_[one, other], np.r_[shifts, shifts], "tanh"), (last, np.array([0, 0, bias]), "none")]
        learn.export(layers, self.features, file)


#: Arrays of a network that the evolution strategy leaves as they are.
SAVED = ["w", "b", "mean", "std"]
#: Who leads: rules, and one path alone, where it is there.
TEACHERS = ["ropewalk", "minrtt", "blest", "path 1", "path 2"]

Lessons = list[tuple[np.ndarray, np.ndarray, int]]


def advice(observations: np.ndarray, masks: np.ndarray, rules: np.ndarray) -> np.ndarray:
    """What each teacher says to each observation; what has no room is waited for."""
    there = observations[:, [CONNECTION, CONNECTION + PATH]] > 0
    alone = np.where(there, [0, 1], [1, 0])
    said = np.concatenate([rules, alone], 1)
    return np.where(np.take_along_axis(masks, said, 1) > 0, said, 2)


def lead(one: Scenario, seed: int, network: Network | None, teachers: list[int]) -> list[tuple[float, Lessons]]:
    """For each teacher a run that it leads, or the network: the objective, and what the teacher says to some decisions."""
    count = len(teachers)
    env = learn.SchedulingVectorEnv(count, one, baselines=TEACHERS[:-2], threads=1)
    observations, info = env.reset(seed=[seed] * count)
    found: list[float | None] = [None] * count
    lessons: list[Lessons] = [[] for _ in teachers]
    step, stride = 0, 1
    while None in found:
        masks = info["action_mask"]
        said = advice(observations, masks, info["baseline_actions"])[np.arange(count), teachers]
        if step % stride == 0:
            for i, kept in enumerate(lessons):
                if found[i] is None:
                    kept.append((observations[i], masks[i], int(said[i])))
            if len(max(lessons, key=len)) > 2 * SOME:
                lessons, stride = [kept[::2] for kept in lessons], 2 * stride
        step += 1
        actions = said if network is None else network.act(observations, masks)
        observations, _, _, _, info = env.step(actions)
        for i in np.flatnonzero(info.get("_episode_result", [])):
            if found[i] is None:
                found[i] = info["episode_result"][i]["objective_s"] or 60.0
    return list(zip(found, lessons, strict=True))


def imitate(cells: list[Scenario], draw: np.random.Generator) -> Network:
    """In each cell the teacher that is fastest there: what it says where it leads, then where what was learned leads."""
    best: list[int] = []
    kept: Lessons = []
    for one in cells:
        runs = lead(one, 1, None, list(range(len(TEACHERS))))
        best.append(min(range(len(runs)), key=lambda i: runs[i][0]))
        kept += runs[best[-1]][1]
    print("fastest:", {name: best.count(t) for t, name in enumerate(TEACHERS)}, flush=True)
    network = Network(learn.SchedulingEnv(cells[0]).features(), draw)
    for turn in range(3):
        if turn > 0:
            for one, teacher in zip(cells, best, strict=True):
                kept += lead(one, 1 + turn, network, [teacher])[0][1]
        agree = network.fit(*(np.array(column) for column in zip(*kept, strict=True)), draw)
        print(f"imitation {turn}: {len(kept)} decisions, {agree:.1%} agree", flush=True)
    return network


def logs(file: str, cells: list[Scenario], seed: int) -> np.ndarray:
    """Logarithms of the objective; a run that isn't complete counts as the limit of 60 s."""
    return np.log([ropewalk.simulate(one, file, seed=seed).objective_s or 60.0 for one in cells])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cells", type=pathlib.Path, help="folder of drawn cells")
    parser.add_argument("file")
    parser.add_argument("--generations", type=int, default=60, help="of the evolution strategy")
    options = parser.parse_args()
    files = sorted(options.cells.glob("*.toml"), key=lambda file: int(file.stem.rsplit("-", 1)[1]))
    # Competing traffic takes most of the time of its runs.
    cells = [cell(file) for file in files if "[[background]]" not in file.read_text(encoding="utf-8")]
    # The last fifth chooses the generation that is kept.
    held, cells = cells[-len(cells) // 5 :], cells[: -len(cells) // 5]
    saved, trial = pathlib.Path(f"{options.file}.npz"), f"{options.file}.trial"
    network = Network(learn.SchedulingEnv(cells[0]).features(), np.random.default_rng(1))
    if saved.exists():
        state = dict(np.load(saved))
        for name in SAVED:
            setattr(network, name, state.pop(name))
        # Its layer of that time sets the size of steps.
        network.out = state["start"]
    else:
        network = imitate(cells, np.random.default_rng(1))
        state = {"start": network.out, "out": network.out, "best": network.out, "score": np.inf, "turn": 0}
    rope = logs("ropewalk", held, 7)
    pairs, sigma, rate, some = 10, 0.2, 0.3, 12
    step = sigma * max(float(np.abs(network.out).mean()), 1e-3)
    for turn in range(int(state["turn"]), options.generations + 1):
        if turn % 10 == 0:
            network.export(state["out"], trial)
            score = float((logs(f"policy:{trial}", held, 7) - rope).mean())
            print(f"generation {turn}: {math.exp(score):.3f} of ropewalk", flush=True)
            if score < state["score"]:
                state.update(best=state["out"], score=score)
        if turn == options.generations:
            break
        draw = np.random.default_rng([2, turn])
        chosen = [cells[i] for i in draw.permutation(len(cells))[:some]]
        gradient = np.zeros_like(state["out"])
        for _ in range(pairs):
            noise = draw.normal(0, 1, len(gradient))
            found = []
            for sign in (1, -1):
                network.export(state["out"] + sign * step * noise, trial)
                found.append(logs(f"policy:{trial}", chosen, 1000 + turn))
            # One run that hangs must not decide.
            gradient += np.clip(found[0] - found[1], -0.3, 0.3).mean() * noise
        size = np.linalg.norm(gradient) / math.sqrt(len(gradient))
        state.update(out=state["out"] - rate * step * gradient / max(size, 1e-9), turn=turn + 1)
        np.savez(saved, **{name: getattr(network, name) for name in SAVED}, **state)
    network.export(state["best"], options.file)


if __name__ == "__main__":
    main()
