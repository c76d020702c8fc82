"""`python -m sawlog`."""

from __future__ import annotations

import sys

from sawlog.cli import main

sys.exit(main())
