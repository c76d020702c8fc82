"""File names of logs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sawlog.deephaven.log.names import LogName, format_name, order_key, parse_name


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "DbInternal.PersistentQueryStateLog.System.PersistentQueryController_vm1.2023-03-21.bin.2023-03-21.151353.472+0000",
            ("DbInternal", "PersistentQueryStateLog", "PersistentQueryController_vm1", "2023-03-21"),
        ),
        (
            "ExNamespace.ExTableName.System.hostname.2018-10-01.bin.2018-10-01.180353.011-0400",
            ("ExNamespace", "ExTableName", "hostname", "2018-10-01"),
        ),
        (
            "DbInternal.PersistentQueryStateLog.PersistentQueryController_vm1.bin.2018-05-25.120000.000-0600",
            ("DbInternal", "PersistentQueryStateLog", "PersistentQueryController_vm1", "2018-05-25"),
        ),
        ("Ns.T.System.host.bin.2018-05-25.120000.000-0600", ("Ns", "T", "host", "2018-05-25")),
        ("Ns.T.User.a.b.c.2018-05-25.bin.2018-05-25.120000.000-0600", ("Ns", "T", "a.b.c", "2018-05-25")),
        ("Ns.T.bin", ("Ns", "T", "", "")),
        ("part-00000.bin", ("", "", "", "")),
        ("anything", ("", "", "", "")),
    ],
)
def test_names_of_files_say_partitions_in_both_styles(name, parts):
    assert parse_name(name).partition == parts


def test_times_sort_by_instant_and_not_by_text():
    names = [
        "Ns.T.System.h.2018-10-28.bin.2018-10-28.013000.000-0400",
        "Ns.T.System.h.2018-10-28.bin.2018-10-28.010000.000-0500",
        "Ns.T.System.h.2018-10-28.bin.2018-10-28.015900.000-0400",
    ]
    ordered = sorted(names, key=lambda name: order_key(parse_name(name), name))
    assert ordered == [names[0], names[2], names[1]]
    assert parse_name(names[0]).start_time == datetime(2018, 10, 28, 5, 30, tzinfo=UTC)
    assert parse_name(names[0]).start_time.utcoffset() == timedelta(hours=-4)
    assert parse_name("Ns.T.System.h.2018-10-28.bin.2018-99-28.010000.000-0500").start_time is None


def test_names_are_written_as_they_are_read():
    name = LogName("Ns", "T", "User", "host", "2024-01-02", datetime(2024, 1, 2, 3, 4, 5, 678000, UTC))
    assert format_name(name) == "Ns.T.User.host.2024-01-02.bin.2024-01-02.030405.678+0000"
    assert parse_name(format_name(name)) == name
    for bad in (
        LogName("N.s", "T", "User", "h", "d", name.start_time),
        LogName("Ns", "T", "User", "h/x", "d", name.start_time),
    ):
        with pytest.raises(ValueError, match="cannot be told apart"):
            format_name(bad)
