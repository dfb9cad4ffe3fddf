"""`python -m ropewalk` is the `ropewalk` command."""

import sys

from ropewalk._command import main

sys.exit(main())
