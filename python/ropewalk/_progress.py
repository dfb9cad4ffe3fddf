"""Progress: a tqdm bar where tqdm is installed, or a function that hears of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def bar(
    progress: bool | Callable[[int], object], what: str, total: int | None = None
) -> Iterator[Callable[[int], object] | None]:
    """Give what hears of progress, or None.

    A bar is shown in terminals and notebooks only; what runs in a pipe stays quiet.
    """
    if callable(progress):
        yield progress
        return
    shown: Any = None
    if progress and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        try:
            from tqdm.auto import tqdm

            shown = tqdm(total=total, desc=what, leave=False)
        except ImportError:
            pass
    if shown is None:
        yield None
        return

    def tell(done: int) -> None:
        shown.update(done - shown.n)

    try:
        yield tell
    finally:
        shown.close()
