"""`python -m tfjax` is the `tfjax` command."""

from __future__ import annotations

import sys

from tfjax.cli import main

if __name__ == "__main__":
    sys.exit(main())
