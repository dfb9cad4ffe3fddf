"""Writes statistics.json: what scipy and numpy say of some samples. Run in this folder with scipy installed."""

import json
import math

import numpy as np
import scipy
from scipy import stats

random = np.random.default_rng(20261121)
SAMPLES = {
    "ten": random.lognormal(-1.0, 0.3, 10),
    "thirty": random.lognormal(0.5, 0.1, 30),
    "skewed": random.exponential(2.0, 50),
    "ties": np.round(random.normal(5.0, 1.0, 25)),
    "two": np.array([1.0, 3.0]),
}
PAIRS = {
    "clear": 30,
    "close": 30,
    "few": 5,
}


def interval(values, statistic):
    """Percentile bootstrap interval of a statistic."""
    found = stats.bootstrap(
        (values,), statistic, n_resamples=200_000, batch=10_000, method="percentile", random_state=1
    ).confidence_interval
    return [found.low, found.high]


def samples():
    """What is known of each sample."""
    for name, values in SAMPLES.items():
        yield {
            "name": name,
            "values": values.tolist(),
            "mean": np.mean(values),
            "sd": np.std(values, ddof=1),
            "percentiles": {str(p): np.percentile(values, p) for p in (5, 25, 50, 75, 95, 99)},
            "mean_interval": interval(values, np.mean),
            "median_interval": interval(values, np.median),
        }


def pairs():
    """What is known of the ratio of paired samples."""
    for (name, n), factor in zip(PAIRS.items(), (0.9, 0.99, 0.8), strict=True):
        b = random.lognormal(0.0, 0.4, n)
        a = b * factor * random.lognormal(0.0, 0.08, n)
        logs = np.log(a / b)
        test = stats.ttest_rel(np.log(a), np.log(b))
        yield {
            "name": name,
            "a": a.tolist(),
            "b": b.tolist(),
            "ratio": math.exp(np.mean(logs)),
            "interval": [math.exp(end) for end in interval(logs, np.mean)],
            "t_p": test.pvalue,
            "sd": np.std(logs, ddof=1),
        }


def distributions():
    """Student's t distribution."""
    for degrees in (1, 2, 4, 9, 29, 99, 1999):
        for t in (-30.0, -4.0, -1.96, -0.5, 0.0, 0.1, 1.0, 2.5, 12.0):
            yield {"degrees": degrees, "t": t, "cdf": stats.t.cdf(t, degrees)}


document = {
    "scipy": scipy.__version__,
    "numpy": np.__version__,
    "samples": list(samples()),
    "pairs": list(pairs()),
    "t": list(distributions()),
    "t_quantiles": [{"degrees": d, "p": p, "t": stats.t.ppf(p, d)} for d in (1, 4, 29, 999) for p in (0.8, 0.975, 0.995)],
    "normal_quantiles": [{"p": p, "x": stats.norm.ppf(p)} for p in (0.001, 0.025, 0.5, 0.8, 0.975, 0.999)],
}
with open("statistics.json", "w", encoding="utf-8") as file:
    json.dump(document, file, indent=1)
    file.write("\n")
