"""The package's exceptions. Their texts are the command's own."""


class RopewalkError(Exception):
    """Something failed while it ran."""


class InputError(RopewalkError, ValueError):
    """Input that can't be used: the text shows the place and what is allowed."""


class SchedulerError(RopewalkError):
    """A scheduler in Python raised; `__cause__` is what it raised, with its traceback.

    `run` is the run's number from 0, `seed` its seed, `time_s` the moment in seconds from the workload's
    start.
    """

    def __init__(self, message: str, run: int = 0, seed: int = 0, time_s: float = 0.0) -> None:
        super().__init__(message)
        self.run = run
        self.seed = seed
        self.time_s = time_s
