"""The `ropewalk` command, as the console script runs it."""

import sys

from ropewalk import _native


def main() -> int:
    """Run the command line and return its exit code."""
    return _native.main(["ropewalk", *sys.argv[1:]])
