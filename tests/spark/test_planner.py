"""What the planner answers to the jar, without a JVM: columns, tasks for every core, and functions that read them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.serializers import CPickleSerializer, UTF8Deserializer, read_int, write_with_length

import sawlog
from sawlog.spark import planner


def ask(verb: str, **question: object) -> io.BytesIO:
    asked, answer = io.BytesIO(), io.BytesIO()
    for text in (verb, json.dumps(question)):
        write_with_length(text.encode(), asked)
    asked.seek(0)
    planner._answer(asked, answer)
    answer.seek(0)
    return answer


@pytest.mark.parametrize(("wanted", "filters"), [(["record"], []), ([], []), ([], [("_offset", "<", "70000")])])
def test_a_question_and_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: list[str], filters: list[tuple[str, str, str]]
) -> None:
    records = [b"%0100d" % number for number in range(2000)]
    path = tmp_path / "000003.log"
    sawlog.write(pa.table({"record": pa.array(records, pa.binary())}), path, format="leveldb_log")
    monkeypatch.setattr(planner, "WORTH_A_TASK", 50_000)
    options = {"path": str(path), "provenance": "true"}
    described = json.loads(UTF8Deserializer().loads(ask("describe", options=options)))
    assert described["bytes"] == path.stat().st_size
    full = json.loads(described["schema"])
    chosen = {**full, "fields": [field for field in full["fields"] if field["name"] in wanted]}
    pushed = [
        {"name": "LessThan", "negated": False, "column": column, "values": [{"int": value}]}
        for column, _, value in filters
    ]
    answer = ask(
        "plan",
        options=options,
        full=json.dumps(full),
        wanted=json.dumps(chosen),
        filters=pushed,
        parallelism=3,
    )
    function, _ = CPickleSerializer().loads(answer.read(read_int(answer)))
    partitions = [answer.read(read_int(answer)) for _ in range(read_int(answer))]
    assert len(partitions) == (1 if filters else 3)
    batches = [batch for one in partitions for batch in function(iter([pa.record_batch({"partition": [one]})]))]
    if wanted:
        assert [value for batch in batches for value in batch.column(0).to_pylist()] == records
    else:
        expected = sawlog.read(path, filters=[(column, op, int(value)) for column, op, value in filters])
        assert sum(value for batch in batches for value in batch.column(0).to_pylist()) == expected.num_rows


def test_a_connection_that_is_closed_ends_the_process_without_a_word() -> None:
    told = io.BytesIO()
    with pytest.raises(SystemExit) as ended:
        planner.main(io.BufferedReader(io.BytesIO()), told)
    assert ended.value.code, "PySpark's daemon would call again"
    assert not told.getvalue()
