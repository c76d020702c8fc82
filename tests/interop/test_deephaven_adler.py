"""Digests of Deephaven logs against the class that Deephaven itself uses, java.util.zip.Adler32."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog

pytestmark = pytest.mark.interop

PROGRAM = """
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.zip.Adler32;

public class Check {
    static int digest(byte[] data, int start, int length) {
        Adler32 adler = new Adler32();
        adler.update(data, start, length);
        return (int) adler.getValue();
    }

    public static void main(String[] arguments) throws Exception {
        byte[] data = Files.readAllBytes(Path.of(arguments[0]));
        ByteBuffer log = ByteBuffer.wrap(data);
        int header = 12 + log.getInt(8);
        if (log.getInt(0) != -619011621 || log.getInt(header - 4) != digest(data, 0, header - 4)) {
            throw new IllegalStateException("header");
        }
        int entries = 0;
        for (int at = header; at < data.length; entries++) {
            int size = log.getInt(at);
            if (log.getInt(at + size) != digest(data, at, size)) {
                throw new IllegalStateException("entry at " + at);
            }
            at += 4 + size;
        }
        System.out.println(entries);
    }
}
"""


def test_java_agrees_on_every_digest(tmp_path: Path) -> None:
    java = shutil.which("java")
    assert java, "the interop tests need Java"
    count = 2000
    table = pa.table(
        {"N": range(count), "S": ["x" * (i % 300) for i in range(count)], "D": [i / 7 for i in range(count)]}
    )
    log = tmp_path / "log.bin"
    sawlog.write(table, log, format="deephaven_log")
    (tmp_path / "Check.java").write_text(PROGRAM)
    done = subprocess.run(
        [java, str(tmp_path / "Check.java"), str(log)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == count
