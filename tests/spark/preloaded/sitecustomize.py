"""What a Python imports first that has this folder on its path: here, what Spark's planner needs, before it is forked.

Each question of the planner is answered by a process of its own, which imports PySpark and sawlog. Now the daemon that
forks these processes does so once, as sawlog's own does for those of tasks. Users have no such daemon: the sessions of
`test_jar.py` and of `exactly_once` do without.
"""

from __future__ import annotations

import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    from sawlog.spark.daemon import preload

    preload(sys.argv[1:])
