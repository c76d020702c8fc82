"""For spark-submit, which takes files: `spark-submit run.py run pipeline.toml` is `sawlog run pipeline.toml`."""

from __future__ import annotations

import sys

from sawlog.cli import main

sys.exit(main())
