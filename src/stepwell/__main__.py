"""`python -m stepwell`: the command line."""

import sys

from stepwell.cli import main

sys.exit(main())
