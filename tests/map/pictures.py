"""Charts of a path, for tests of formats."""

from __future__ import annotations

from typing import Any

import sawlog
from sawlog.format.charts import Picture
from sawlog.map import survey


def pictures(path: object, **options: Any) -> dict[str, Picture]:
    return {picture.title: picture for picture in survey(sawlog.open(path, on_damage="skip", **options)).pictures}


def widths(picture: Picture) -> dict[str, dict[str, int]]:
    return {lane: {box.series: int(box.end - box.start) for box in boxes} for lane, boxes in picture.lanes.items()}
