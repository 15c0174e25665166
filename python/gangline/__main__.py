"""`python -m gangline` is the command `gangline`."""

import sys

from gangline.cli.app import main

sys.exit(main())
