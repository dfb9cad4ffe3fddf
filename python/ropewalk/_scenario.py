"""Paths, workloads and scenarios."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

from ropewalk import _native
from ropewalk._arguments import plain, quantity, quantity_or_none, whole

#: Units that a number's name may end in, and how the value is written.
_UNITS = {"bps": "bit/s", "s": "s", "bytes": "B", "packets": "packets"}


def _quantity(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _quantity(name, inner) for key, inner in value.items()}
    if (
        isinstance(value, str | bytes)
        or not isinstance(value, Iterable)
        or getattr(value, "shape", None) == ()
    ):
        return _timed(plain(name, value))
    return [_quantity(name, inner) for inner in value]


def _timed(value: Any) -> Any:
    return quantity("time", value, "s") if isinstance(value, datetime.timedelta) else value


def _keys(given: dict[str, Any]) -> dict[str, Any]:
    """Give the scenario's keys: `rtt_s=0.02` becomes `rtt = "20000000 ns"`."""
    keys: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        head, _, tail = name.rpartition("_")
        found = _quantity(name, value)
        number = isinstance(found, int | float) and not isinstance(found, bool)
        if head and tail in _UNITS and number:
            keys[head.replace("_", "-")] = quantity(name, found, _UNITS[tail])
        elif name in ("loss", "duplicate") and number:
            keys[name] = f"{float(found) * 100:.10g} %"
        else:
            keys[name.replace("_", "-")] = found
    return keys


class Path:
    """One path: an interface of the client, with a link in each direction.

    Quantities are texts with their unit, or numbers with the unit in the argument's name. Every key of a
    scenario file's `[[path]]` is allowed, `-` written as `_`: `rate`, `rtt`, `delay`, `loss`, `queue`,
    `trace`, `up`, `down`, `mtu`, `backup`, `preset`, `changes`, `price`, and so on. A loss as a number is a
    probability.

    >>> Path("wifi", rate="50 Mbit/s", rtt="20 ms +-5 ms", loss="0.5 %")
    Path('wifi', loss='0.5 %', rate='50 Mbit/s', rtt='20 ms +-5 ms')
    >>> Path("lte", rate_bps=20e6, rtt_s=0.06)
    Path('lte', rate='20000000 bit/s', rtt='60000000 ns')
    >>> Path.parse("lte: 20 Mbit/s, 60 ms").keys["rtt"]
    '60 ms'
    """

    def __init__(self, name: str, **keys: Any) -> None:
        self.name = name
        #: The keys of the scenario file.
        self.keys: dict[str, Any] = {"name": name, **_keys(keys)}

    @classmethod
    def parse(cls, text: str) -> Path:
        """Read a path as the command's `--path` has it: `"wifi: 50 Mbit/s, 20 ms +-5 ms, 0.5 %"`."""
        keys = json.loads(_native.path_table(text))
        path = cls(keys["name"])
        path.keys = keys
        return path

    def __repr__(self) -> str:
        rest = "".join(f", {key}={value!r}" for key, value in sorted(self.keys.items()) if key != "name")
        return f"Path({self.name!r}{rest})"


class Workload:
    """What is transferred; made by one of the class methods.

    >>> Workload.flow("1 MiB")
    Workload({'kind': 'flow', 'size': '1 MiB'})
    """

    def __init__(self, kind: str, **keys: Any) -> None:
        #: The keys of the scenario file's `[workload]`.
        self.keys: dict[str, Any] = {"kind": kind, **_keys(keys)}

    @classmethod
    def flow(cls, size: str | int) -> Workload:
        """One flow; a number is in bytes. Judged by its completion time (s)."""
        return cls("flow", size=quantity("size", size, "B"))

    @classmethod
    def flows(cls, count: int, size: str | int) -> Workload:
        """Several flows at once, each on a connection of its own. Judged by the mean completion time (s)."""
        return cls("flows", count=whole("count", count), size=quantity("size", size, "B"))

    @classmethod
    def web(cls, objects: Sequence[str | int], connections: int = 6) -> Workload:
        """A page of objects over some connections. Judged by the page's completion time (s)."""
        return cls(
            "web",
            objects=[quantity("objects", size, "B") for size in objects],
            connections=whole("connections", connections),
        )

    @classmethod
    def cbr(
        cls,
        frame: str | int,
        rate: str | float,
        duration: str | float,
        deadline: str | float | None = None,
        key_frame: str | int | None = None,
        key_every: int = 100,
    ) -> Workload:
        """Frames at a constant rate (bit/s) for a time (s). Judged by the mean delay of frames (s).

        With a `key_frame` every `key_every`th frame, the first too, has so many bytes; the rate is without
        them.

        With a `deadline` (s after a frame's making) schedulers see the frames and until when they are of use.
        """
        keys = None
        if key_frame is not None:
            keys = {"frame": quantity("key_frame", key_frame, "B"), "every": whole("key_every", key_every)}
        return cls(
            "cbr",
            frame=quantity("frame", frame, "B"),
            rate=quantity("rate", rate, "bit/s"),
            duration=quantity("duration", duration, "s"),
            deadline=quantity_or_none("deadline", deadline, "s"),
            key_frames=keys,
        )

    @classmethod
    def bulk(cls, duration: str | float) -> Workload:
        """As much as possible for a time (s). Judged by seconds per 10^6 bytes."""
        return cls("bulk", duration=quantity("duration", duration, "s"))

    @classmethod
    def request_response(
        cls,
        response: str | int,
        count: int,
        think: str | float | None = None,
        request: str | int | None = None,
    ) -> Workload:
        """Exchanges one after another on one connection. Judged by the mean time of an exchange (s)."""
        return cls(
            "request-response",
            response=quantity("response", response, "B"),
            count=whole("count", count),
            think=quantity_or_none("think", think, "s"),
            request=quantity_or_none("request", request, "B"),
        )

    def __repr__(self) -> str:
        return f"Workload({self.keys!r})"


class Scenario:
    """Two ends, the paths between them, and what goes over them.

    `Scenario("wifi-lte")` is built in (`ropewalk.scenarios()` lists them), `Scenario("mine.toml")` a file,
    and `Scenario([Path(...), Path(...)])` your own. Further keys are those of a scenario file, `-` written as
    `_`: `direction`, `limit`, `ends`, `background`, `bottleneck`.

    >>> Scenario("wifi-lte").path_names
    ['wifi', 'lte']
    >>> Scenario([Path.parse("dsl: 16 Mbit/s, 30 parsecs")])
    Traceback (most recent call last):
    ...
    ropewalk._errors.InputError: error: ...
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[Path | str] = "wifi-lte",
        workload: Workload | None = None,
        *,
        name: str | None = None,
        **keys: Any,
    ) -> None:
        changes = _keys(keys)
        if workload is not None:
            changes["workload"] = workload.keys
        if name is not None:
            changes["name"] = name
        self._usual = False
        if isinstance(paths, str | os.PathLike):
            native = _native.load(os.fspath(paths))
            if changes:
                document = json.loads(native.document()) | changes
                native = _native.parse(json.dumps(document), native.name, native.folder)
        else:
            listed = [Path.parse(path) if isinstance(path, str) else path for path in paths]
            document = {"path": [path.keys for path in listed], **changes}
            document.setdefault("name", "paths")
            # Without a workload the usual ones are meant, as with the command's `--path`.
            self._usual = workload is None
            document.setdefault("workload", {"kind": "flow", "size": "1 MiB"})
            native = _native.parse(json.dumps(document), "paths", "")
        self._native = native

    @classmethod
    def from_toml(cls, text: str, folder: str | os.PathLike[str] = "") -> Scenario:
        """Read a scenario file's text; traces are found from `folder`."""
        scenario = cls.__new__(cls)
        scenario._usual = False
        scenario._native = _native.parse(text, "scenario", os.fspath(folder))
        return scenario

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    @property
    def summary(self) -> str:
        """One line about it."""
        return self._native.summary

    @property
    def toml(self) -> str:
        """The scenario file's text."""
        return self._native.toml

    @property
    def path_names(self) -> list[str]:
        """Names of its paths."""
        return self._native.path_names

    def replace(self, workload: Workload | None = None, **keys: Any) -> Scenario:
        """Give a copy with other values at the top of the file.

        >>> Scenario("wifi-lte").replace(Workload.flow("64 KiB")).toml.count("64 KiB")
        2
        """
        changes = _keys(keys)
        if workload is not None:
            changes["workload"] = workload.keys
        document = json.loads(self._native.document()) | changes
        copy = Scenario.__new__(Scenario)
        copy._usual = self._usual and workload is None
        copy._native = _native.parse(json.dumps(document), self.name, self._native.folder)
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.toml, self._native.folder, self.name, self._usual)

    def __repr__(self) -> str:
        return f"Scenario({self.name!r}, paths={self.path_names})"


def _again(text: str, folder: str, name: str, usual: bool) -> Scenario:
    scenario = Scenario.__new__(Scenario)
    scenario._usual = usual
    scenario._native = _native.parse(text, name, folder)
    return scenario


def as_scenario(given: Scenario | str | os.PathLike[str] | Sequence[Path | str]) -> Scenario:
    """Give a scenario for what the functions take as one."""
    return given if isinstance(given, Scenario) else Scenario(given)


def scenarios() -> dict[str, str]:
    """Give the built-in scenarios: name and summary.

    >>> "wifi-lte" in scenarios()
    True
    """
    return dict(_native.scenarios())
