"""What functions are given, made into what the native module takes: scalars of numpy and pandas, files, lists
of one."""

from __future__ import annotations

import datetime
import math
import numbers
import os
from collections.abc import Iterable
from typing import Any

from ropewalk import _native


def plain(name: str, value: Any) -> Any:
    """Give a scalar of numpy, pandas or Python as Python's own, and a file as its name; else the value
    itself."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"`{name}` is {number}: a number is expected")
        return number
    # A boolean of numpy, or an array of no dimension.
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return plain(name, value.item())
    return value


def whole(name: str, value: Any) -> int:
    """Give a whole number; a float is one if it has no fraction, as in a column of a data frame."""
    found = plain(name, value)
    if isinstance(found, float) and found.is_integer():
        return int(found)
    if isinstance(found, bool) or not isinstance(found, int):
        raise TypeError(f"`{name}`: expected a whole number, found {value!r}")
    return found


def whole_or_none(name: str, value: Any) -> int | None:
    """Give a whole number, or None."""
    return None if value is None else whole(name, value)


def text(name: str, value: Any) -> str:
    """Give a text."""
    if not isinstance(value, str):
        raise TypeError(f"`{name}`: expected a text, found {value!r}")
    return value


def quantity(name: str, value: Any, unit: str) -> str:
    """Give a quantity as text: a number is in `unit` (`s`, `B`, `bit/s`, `%`); a time may be a timedelta."""
    if type(value).__name__ == "timedelta64":
        value = value.astype("timedelta64[us]").item()
    if unit == "s" and isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    found = plain(name, value)
    if isinstance(found, str):
        return found
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError(f"`{name}`: expected a text with its unit or a number in {unit}, found {value!r}")
    if unit == "s":
        return f"{round(found * 1e9)} ns"
    if unit == "%":
        return f"{found * 100:.12g} %"
    if unit == "B" and found != round(found):
        raise ValueError(f"`{name}`: part of a byte can't be, found {value!r}")
    return f"{round(found)} {unit}"


def quantity_or_none(name: str, value: Any, unit: str) -> str | None:
    """Give a quantity as text, or None."""
    return None if value is None else quantity(name, value, unit)


def listed(name: str, value: Any) -> list[Any]:
    """Give what was given as a list: one thing where several may stand is a list of it."""
    if value is None:
        return []
    if isinstance(value, str | bytes | os.PathLike) or callable(value) or not isinstance(value, Iterable):
        return [value]
    if getattr(value, "shape", None) == ():
        return [plain(name, value)]
    return list(value)


def texts(name: str, value: Any) -> list[str]:
    """Give texts as a list; one stands for a list of it."""
    return [text(name, one) for one in listed(name, value)]


def asked(command: str, **given: Any) -> list[tuple[str, list[str]]]:
    """Give settings of `compare` or `advise` as texts, by what the native module says of each; None is its
    default."""
    found = []
    units = {name: unit for name, unit, _ in _native.settings(command)}
    for name, value in given.items():
        unit = units[name]
        many = listed(name, value) if unit == "B" else [] if value is None else [value]
        if unit == "whole":
            found.append((name, [str(whole(name, one)) for one in many]))
        else:
            found.append(
                (name, [text(name, one) if unit == "text" else quantity(name, one, unit) for one in many])
            )
    return found


def files(name: str, value: Any) -> list[str]:
    """Give files as their names."""
    found = listed(name, value)
    for one in found:
        if not isinstance(one, str | os.PathLike):
            raise TypeError(f"`{name}`: expected a file's name or path, found {one!r}")
    return [os.fspath(one) for one in found]
