"""What a pipeline's file may say, and how its mistakes are named."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawlog.errors import OptionError
from sawlog.pipeline import Pipeline, load
from sawlog.pipeline.secrets import Secrets, looks_secret
from sawlog.pipeline.session import open_session
from tests.pipeline.support import STREAM

ROOT = Path(__file__).resolve().parents[2]
BATCH = """\
[sources.log]
path = "db"
[sinks.rows]
from = "log"
format = "parquet"
mode = "overwrite"
path = "out"
"""


def parse(tmp_path: Path, text: str, **environment: str) -> Pipeline:
    path = tmp_path / "p.toml"
    path.write_text(text)
    return load(path, environment)


def mistake(tmp_path: Path, text: str, **environment: str) -> str:
    with pytest.raises(OptionError) as caught:
        parse(tmp_path, text, **environment)
    return str(caught.value).replace(str(tmp_path), "")


def test_the_smallest_batch_is_parsed(tmp_path: Path) -> None:
    pipeline = parse(tmp_path, BATCH)
    assert (pipeline.name, pipeline.mode, pipeline.checkpoint, pipeline.trigger) == ("p", "batch", None, None)
    (source,) = pipeline.sources.values()
    assert (source.name, source.format, source.paths) == ("log", "sawlog", (str(tmp_path / "db"),))
    assert (source.stream, source.on_damage, source.is_sawlog) == (False, "fail", True)
    (sink,) = pipeline.sinks
    assert (sink.name, sink.source, sink.path, sink.mode, sink.is_sawlog) == (
        "rows",
        "log",
        str(tmp_path / "out"),
        "overwrite",
        False,
    )


def test_streams_read_streams(tmp_path: Path) -> None:
    pipeline = parse(tmp_path, STREAM)
    assert pipeline.checkpoint == str(tmp_path / "state")
    assert pipeline.sources["log"].stream


def test_streams_into_formats_of_sawlog_need_a_later_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    with pytest.raises(OptionError, match=r"p.toml:8: sinks.rows.format: a stream into leveldb_log needs PySpark 4.2"):
        open_session(parse(tmp_path, STREAM.replace("parquet", "leveldb_log")), {}).__enter__()


def test_urls_are_left_as_they_are_written(tmp_path: Path) -> None:
    text = BATCH.replace('"db"', '"s3a://bucket/db"').replace('"out"', '"hdfs:/out"')
    pipeline = parse(tmp_path, text)
    assert pipeline.sources["log"].paths == ("s3a://bucket/db",)
    assert pipeline.sinks[0].path == "hdfs:/out"


def test_spark_settings_by_full_and_short_names(tmp_path: Path) -> None:
    text = '[spark]\nmaster = "local[2]"\nsql.shuffle.partitions = 4\n"spark.ui.enabled" = false\n' + BATCH
    assert parse(tmp_path, text).spark == {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
    }


def test_options_become_strings(tmp_path: Path) -> None:
    text = BATCH.replace(
        'path = "db"',
        'path = "db"\nview = "writes"\ncolumns = ["key", "value"]\noptions = { verify_checksums = false }',
    )
    text += '[sources.log.storage]\nanon = true\nclient_kwargs.endpoint_url = "http://127.0.0.1:9000"\n'
    assert parse(tmp_path, text).sources["log"].options == {
        "view": "writes",
        "columns": "key,value",
        "verify_checksums": "false",
        "storage_options": '{"anon": true, "client_kwargs": {"endpoint_url": "http://127.0.0.1:9000"}}',
    }


def test_the_example_is_right_and_says_everything(tmp_path: Path) -> None:
    text = files("sawlog.pipeline").joinpath("example.toml").read_text()
    pipeline = parse(tmp_path, text)
    assert pipeline.mode == "stream"
    assert pipeline.quarantine is not None
    pipeline_text = "\n".join(
        line.removeprefix("# ") if "=" in line or line.startswith("# [") else line for line in text.split("\n")
    )
    settings = parse(
        tmp_path,
        pipeline_text.replace('mode = "overwrite"', ""),
        KAFKA_JAAS="j",
        AWS_ACCESS_KEY_ID="a",
        AWS_SECRET_ACCESS_KEY="b",
    )
    assert set(settings.sources) == {"ticks", "instruments"}
    assert [sink.format for sink in settings.sinks] == ["parquet", "parquet", "kafka"]
    assert settings.metrics is not None


def pages() -> list[str]:
    """Those with a pipeline on them."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(page.relative_to(ROOT)) for page in paths if "\n[pipeline]\n" in page.read_text()]


def test_there_are_pages_with_pipelines() -> None:
    assert "docs/pipelines.md" in pages()


@pytest.mark.parametrize("page", pages())
def test_pipelines_in_the_documents_are_right(tmp_path: Path, page: str) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    pipelines = [block for block in blocks if "[pipeline]" in block]
    assert pipelines
    for block in pipelines:
        assert parse(tmp_path, block).sinks


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('path = "db"', 'paht = "db"', "/p.toml:2: sources.log.paht: unknown key; did you mean 'path'?"),
        ('path = "db"', "path = 1", "/p.toml:2: sources.log.path: expected a string; found a number"),
        ('path = "db"', "", "/p.toml:1: sources.log: key 'path' is missing"),
        ('path = "db"', 'path = "db"\nstream = "yes"', "/p.toml:3: sources.log.stream: expected true or false"),
        ('path = "db"', 'path = "db"\nstream = true', "/p.toml:3: sources.log.stream: the pipeline is a batch"),
        ('path = "db"', 'path = "db"\non_damage = "ignore"', "/p.toml:3: sources.log.on_damage: expected one of fail,"),
        ('path = "db"', 'path = "db"\non_damage = "quarantine"', "on_damage: the file has no [quarantine]"),
        ('path = "db"', 'path = "db"\npaths = ["a"]', "/p.toml:3: sources.log.paths: give path or paths"),
        ('path = "db"', 'path = "db"\nformat = "parquet"\nview = "rows"', "view: parquet is read by Spark"),
        ('path = "db"', 'path = "db"\noptions = { mode = "FAILFAST" }\non_damage = "skip"', ".options: on_damage has"),
        ('path = "db"', 'path = "db"\noptions = { a = [[1]] }', "options.a: expected strings or numbers"),
        ('path = "db"', 'path = "db"\nwatermark = { column = "t" }', "/p.toml:3: sources.log.watermark: key 'delay'"),
        ("[sources.log]", "[sources.a-b]", "/p.toml:1: sources.a-b: expected a name of letters"),
        ("[sources.log]", "[[sources]]", "sources: expected a table; found a list"),
        ("[sources.log]", "[source.log]", "/p.toml:1: source: unknown key; did you mean 'sources'?"),
        ("[sources.log]", "x = 1\n[sources.log]", "/p.toml:1: x: unknown key; known keys: pipeline, spark,"),
        (
            'from = "log"',
            'from = "lag"',
            "/p.toml:4: sinks.rows.from: no source or step is called 'lag'; there are log",
        ),
        ('format = "parquet"', "", "/p.toml:3: sinks.rows: key 'format' is missing"),
        ('format = "parquet"', 'format = "sawlog"', "/p.toml:5: sinks.rows.format: expected the name of a format"),
        ('mode = "overwrite"', "", "/p.toml:3: sinks.rows: key 'mode' is missing; expected one of append, overwrite"),
        ('mode = "overwrite"', 'mode = "truncate"', "expected one of append, overwrite; found 'truncate'"),
        ('mode = "overwrite"', 'output_mode = "append"', "sinks.rows.output_mode: batches have mode"),
        ('path = "out"', "", "/p.toml:3: sinks.rows: key 'path' is missing; expected a directory"),
        ('path = "out"', 'path = "out"\ntable = "t"', "/p.toml:8: sinks.rows.table: give a path or a table, not both"),
        ('path = "out"', 'path = "out"\nstorage = { a = 1 }', "storage: only sawlog's formats have it"),
        ('path = "out"', 'path = "out"\n[steps.log]\nsql = "select 1"', "/p.toml:8: steps.log: a source has this name"),
        (
            'path = "out"',
            'path = "out"\n[metrics]\nport = 70000',
            "/p.toml:9: metrics.port: expected the number of a port",
        ),
        ('path = "out"', 'path = "out"\n[pipeline]\ntrigger = "1 second"', "pipeline.trigger: only streams have one"),
        ('path = "out"', 'path = "out"\n[pipeline]\nmode = "stream"', "pipeline: key 'checkpoint' is missing"),
        ('path = "out"', "path = out", "no TOML: "),
        ('path = "db"', 'path = ""', "/p.toml:2: sources.log.path: expected a string that is not empty"),
        ('path = "db"', "path = 2024-05-06", "/p.toml:2: sources.log.path: expected a string; found a date or time"),
        ('path = "db"', 'paths = ["a", 1]', "/p.toml:2: sources.log.paths: expected a list of strings; found a number"),
        (
            'path = "db"',
            'path = "db"\ncolumns = "a"',
            "sources.log.columns: expected a list of strings; found a string",
        ),
        ('path = "db"', 'path = "db"\noptions = 1', "/p.toml:3: sources.log.options: expected a table; found a number"),
        ('path = "db"', 'path = "db"\nwatermark = "t"', "/p.toml:3: sources.log.watermark: expected a table; found"),
        (
            'path = "db"',
            'path = "db"\nwatermark = { colum = "t", delay = "1 s" }',
            "/p.toml:3: sources.log.watermark.colum: unknown key; did you mean 'column'?",
        ),
        ('path = "db"', 'path = "db"\nx = "other"', "/p.toml:3: sources.log.x: unknown key; known keys: path,"),
        ('path = "out"', 'path = "out"\n[steps]\na = 1', "/p.toml:9: steps.a: expected a table; found a number"),
        (
            'path = "out"',
            'path = "out"\n[steps.a]\nsq = "b"',
            "/p.toml:9: steps.a.sq: unknown key; did you mean 'sql'?",
        ),
        ('path = "out"', 'path = "out"\n[steps.a]', "/p.toml:8: steps.a: key 'sql' is missing; expected a string"),
        ('path = "out"', 'path = "out"\npartition_by = [""]', "/p.toml:8: sinks.rows.partition_by: expected a list"),
        (
            'path = "out"',
            'path = "out"\n[metrics]',
            "/p.toml:8: metrics: key 'port' is missing; expected the number of",
        ),
        ('path = "out"', 'path = "out"\n[metrics]\nport = true', "expected the number of a port; found a truth value"),
        (
            'path = "out"',
            'path = "out"\n[quarantine]\nformat = "parquet"\npath = "q"\nfrom = "log"',
            "/p.toml:11: quarantine.from: unknown key; did you mean 'format'?",
        ),
        ('path = "out"', 'path = "out"\n[pipeline]\nmode = 1', "pipeline.mode: expected one of batch, stream; found 1"),
        (BATCH, "", "/p.toml: sources: expected at least one source"),
        (BATCH, '[sources.a]\npath = "x"', "/p.toml: sinks: expected at least one sink"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in BATCH
    assert message in mistake(tmp_path, BATCH.replace(before, after))


def test_no_secret_stands_in_a_message(tmp_path: Path) -> None:
    text = BATCH.replace('"overwrite"', '"${env:MODE}"')
    assert mistake(tmp_path, text, MODE="hunter2").endswith("expected one of append, overwrite; found '${env:MODE}'")


def test_sawlog_does_not_load_what_checks_pipelines() -> None:
    script = "import sawlog, sawlog.cli, sys; sawlog.formats(); print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    text = (
        '# [sinks.no]\n\n[steps.a]\nsql = """\nselect 1\n[sinks.x]\nfrm = 1\n"""\n\n[ sinks . "rows" ] # x\nfrm = "a"\n'
    )
    text += '[sources.log]\npath = "db"\n'
    assert mistake(tmp_path, text).startswith("/p.toml:11: sinks.rows.frm: unknown key; did you mean 'from'?")
    inline = 'sources = { log = { path = "a" } }\nsinks.rows.format = "parquet"\nsinks.rows.frm = 1\n'
    assert mistake(tmp_path, inline).startswith("/p.toml:3: sinks.rows.frm: ")


NAME = st.text("abcdefgh-_", min_size=1, max_size=5)


@given(
    st.lists(
        st.tuples(NAME, st.sampled_from(["1", '"""\na\n"""', "[\n1,\n2\n]", "'x'"])),
        max_size=8,
        unique_by=lambda p: p[0],
    )
)
def test_every_key_has_its_line(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> None:
    from sawlog.pipeline.document import Document

    path = tmp_path_factory.mktemp("lines") / "p.toml"
    lines, expected = ["[ table . inner ]"], {("table",): 1, ("table", "inner"): 1}
    for name, value in pairs:
        lines.append("# comment = 1")
        expected["table", "inner", name] = sum(line.count("\n") + 1 for line in lines) + 1
        lines.append(f"  {name} = {value} # {name} = 2")
    path.write_text("\n".join(lines))
    assert Document.load(str(path), {}).lines == expected


def test_secrets_come_from_the_environment_and_stay_hidden(tmp_path: Path) -> None:
    text = BATCH + '[sources.log.storage]\nsecret = "${env:LOG_SECRET}"\n'
    pipeline = parse(tmp_path, text, LOG_SECRET="hunter2")
    assert pipeline.sources["log"].options["storage_options"] == '{"secret": "hunter2"}'
    assert "hunter2" not in repr(pipeline)
    assert pipeline.document.secrets.redact("no hunter2 here") == "no ${env:LOG_SECRET} here"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('secret = "hunter2"', "/p.toml:9: sources.log.storage.secret: secrets are not written into the file"),
        ('nested = { api_key = "hunter2" }', "sources.log.storage.nested.api_key: secrets are not written"),
        ('url = "https://me:hunter2@host/"', "sources.log.storage.url: secrets are not written"),
        ('secret = "${env:MISSING}"', "/p.toml:9: sources.log.storage.secret: environment variable MISSING is not set"),
        ('secret = "${env:hunter 2}"', "expected the name of an environment variable"),
    ],
)
def test_secrets_written_out_are_refused(tmp_path: Path, line: str, message: str) -> None:
    error_message = mistake(tmp_path, BATCH + f"[sources.log.storage]\n{line}\n")
    assert message in error_message
    assert "hunter2" not in error_message


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("password", True),
        ("kafka.ssl.key.password", True),
        ("kafka.sasl.jaas.config", True),
        ("hadoop.fs.s3a.secret.key", True),
        ("hadoop.fs.s3a.access.key", True),
        ("fs.azure.account.key.store.blob.core.windows.net", True),
        ("secretAccessKey", True),
        ("sas_token", True),
        ("SECRET", True),
        ("hadoop.fs.s3a.aws.credentials.provider", False),
        ("kafka.ssl.truststore.location", False),
        ("key", False),
        ("path", False),
        ("sql.shuffle.partitions", False),
        ("tokenizer", False),
        ("é", False),
    ],
)
def test_keys_that_name_secrets(key: str, secret: bool) -> None:
    assert looks_secret(tuple(key.split(".")), "literal") == secret


def test_names_of_the_user_are_no_secrets(tmp_path: Path) -> None:
    pipeline = parse(tmp_path, BATCH.replace("sources.log", "sources.password").replace('"log"', '"password"'))
    assert list(pipeline.sources) == ["password"]


def test_longer_secrets_are_hidden_first() -> None:
    secrets = Secrets({"A": "abc", "B": "abcdef", "C": "x"})
    assert secrets.resolve("${env:A}${env:B}${env:C}") == "abcabcdefx"
    assert secrets.redact("abcdef abc x") == "${env:B} ${env:A} x"


def test_secrets_are_hidden_in_json_too() -> None:
    secrets = Secrets({"A": 'a"b\\c'})
    assert secrets.redact(json.dumps({"secret": secrets.resolve("${env:A}")})) == '{"secret": "${env:A}"}'


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(OptionError, match=r"p\.toml:2: expected UTF-8; found byte 0xff"):
        load(path)
