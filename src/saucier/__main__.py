"""`python -m saucier`: the command line."""

import sys

from saucier.cli import main

sys.exit(main())
