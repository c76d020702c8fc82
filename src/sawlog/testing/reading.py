"""Laws 1 and 2: however a dataset is cut, asked and read, it says the same."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sawlog.dataset.dataset import Dataset
from sawlog.errors import FINDING_ERRORS, SawlogError
from sawlog.format.contract import Fragment
from sawlog.format.damage import Account, Findings
from sawlog.testing.mutations import EFFORT, make_random
from sawlog.testing.outcome import Place, Rows, list_places, open_subject, read_rows, render_rows
from sawlog.testing.sample import Subject

TASK_BYTES = (1, 40, 300, 2049, 40_000)
"""Sizes that samples are cut into fragments of."""


def _read_fragment(fragment: Fragment) -> tuple[list[pa.RecordBatch], Findings]:
    findings = Findings("skip", drained=True)
    return list(fragment.to_batches(findings)), findings


def _sum_findings(dataset: Dataset, readings: list[tuple[list[pa.RecordBatch], Findings]]) -> dict[str, Any]:
    """Return the findings of all fragments together."""
    account, tails = Account(), []
    notes: dict[str, int] = {}
    for _, findings in readings:
        account.add(findings.account)
        if findings.tail is not None and findings.tail.status != "clean":
            tails.append(findings.tail)
        for name, count in findings.notes.items():
            notes[name] = notes.get(name, 0) + count
    return {
        "rows": render_rows(
            pa.Table.from_batches([batch for batches, _ in readings for batch in batches], dataset.schema)
        ),
        # As reports have them: a walk may learn late what was wrong with what comes before.
        "damages": sorted(place for _, findings in readings for place in list_places(findings.damages)),
        "account": account,
        "tails": tails,
        "rows reported": sum(findings.rows for _, findings in readings),
        "notes": notes,
    }


def _compare_parts(expectations: dict[str, Any], parts: dict[str, Any], title: str) -> Iterator[str]:
    for aspect, expected in expectations.items():
        value = parts[aspect]
        if value == expected:
            continue
        if aspect == "rows":
            yield f"{title}: expected {len(expected)} rows, found {len(value)} {_describe_change(expected, value)}"
        else:
            yield f"{title}: {aspect}: expected {expected}, found {value}"


def _describe_change(expected: Rows, rows: Rows) -> str:
    row_index = next(
        (n for n, (expected_row, row) in enumerate(zip(expected, rows, strict=False)) if expected_row != row), None
    )
    if row_index is None:
        return "rows"
    return f"rows; row {row_index} is {rows[row_index][:200]} rather than {expected[row_index][:200]}"


def check_fragments(subject: Subject) -> Iterator[str]:
    """Yield complaints where fragments of any size, pickled on their way, deliver not what one fragment delivers."""
    dataset = open_subject(subject, on_damage="skip")
    expectations = _sum_findings(dataset, [_read_fragment(fragment) for fragment in dataset.fragments(None)])
    for size in TASK_BYTES if subject.is_intact else TASK_BYTES[::2]:
        fragments = pickle.loads(pickle.dumps(dataset.fragments(size)))  # noqa: S301 - our own, just made
        yield from _compare_parts(
            expectations,
            _sum_findings(dataset, [_read_fragment(fragment) for fragment in fragments]),
            f"tasks of {size} bytes",
        )
    packed = [_read_fragment(fragment) for task in dataset.tasks(TASK_BYTES[1]) for fragment in task]
    yield from _compare_parts(expectations, _sum_findings(dataset, packed), "packed into tasks")


def check_threads(subject: Subject) -> Iterator[str]:
    """Yield complaints where fragments that two threads read deliver not what one thread gets."""
    dataset = open_subject(subject, on_damage="skip")
    fragments = dataset.fragments(300)
    separate = _sum_findings(dataset, [_read_fragment(fragment) for fragment in fragments])
    with ThreadPoolExecutor(2) as pool:
        together = _sum_findings(dataset, list(pool.map(_read_fragment, fragments)))
        yield from _compare_parts(separate, together, "two threads, fragments of their own")
        for readings in pool.map(lambda _: [_read_fragment(fragment) for fragment in fragments], range(2)):
            yield from _compare_parts(separate, _sum_findings(dataset, readings), "two threads, the same fragments")


def check_counts(subject: Subject) -> Iterator[str]:
    """Yield complaints where `count_rows`, `head`, the reader or the Arrow C stream disagree with the whole table."""
    dataset = open_subject(subject, on_damage="skip")
    table = dataset.to_table()
    rows = render_rows(table)
    if rows != render_rows(read_rows(dataset)[0]):
        yield "to_table() and the fragments differ"
    if dataset.count_rows() != len(rows):
        yield f"count_rows() is {dataset.count_rows()}, of {len(rows)} rows"
    for count in sorted({0, 1, len(rows) // 2, len(rows), len(rows) + 5}):
        if render_rows(dataset.head(count)) != rows[:count]:
            yield f"head({count}) differs from the first rows"
    if not any("\0" in name for name in dataset.schema.names):  # which it refuses
        stream = pa.RecordBatchReader.from_stream(dataset)
        if stream.schema != dataset.schema or render_rows(stream.read_all()) != rows:
            yield "the Arrow C stream differs"
    if not table.schema.equals(dataset.schema, check_metadata=True):
        yield f"the table's schema is {table.schema}, the dataset's {dataset.schema}"
    for view in dataset.format.views:
        try:
            view_dataset = open_subject(subject, on_damage="skip", view=view)
            read = view_dataset.to_table().num_rows
        except SawlogError:
            continue
        if view_dataset.count_rows() != read:
            yield f"view {view}: count_rows() is {view_dataset.count_rows()}, of {read} rows"
        view_dataset.info()


def check_columns(subject: Subject) -> Iterator[str]:
    """Yield complaints where some columns are not those of the whole table, or do not say where rows come from."""
    table, ledgers = read_rows(open_subject(subject, on_damage="skip"))
    names = table.schema.names
    for columns in [[name] for name in names] + [list(reversed(names)), [], ["_offset", *names[:1]]]:
        with_provenance, fewer = read_rows(open_subject(subject, on_damage="skip", columns=columns))
        if not subject.sample.ordered and _collect_places(fewer) < _collect_places(ledgers):
            continue  # columns in files of their own: damage of one is none of another
        table_columns = [name for name in columns if name in names]
        if with_provenance.num_rows != table.num_rows and columns:
            yield f"columns={columns}: {with_provenance.num_rows} of {table.num_rows} rows"
        elif (
            render_rows(with_provenance.select(table_columns)) != render_rows(table.select(table_columns))
            and table_columns
        ):
            yield f"columns={columns}: other values"
    with_provenance = open_subject(subject, on_damage="skip", provenance=True).to_table()
    if render_rows(with_provenance.select(names)) != render_rows(table):
        yield "provenance changes the rows"
    sizes = {file.path: file.size for file in open_subject(subject, on_damage="skip").files}
    origins = list(
        zip(with_provenance.column("_file").to_pylist(), with_provenance.column("_offset").to_pylist(), strict=True)
    )
    if not subject.sample.ordered:
        return
    for file, offset in origins:
        if file not in sizes or not 0 <= offset < sizes[file]:
            yield f"a row comes from byte {offset} of {file}; files: {sizes}"
            break
    files = list(sizes)
    places = [(files.index(file), offset) for file, offset in origins if file in sizes]
    if places != sorted(places):
        yield "offsets of rows go back"


_MAX_PAIRED_COLUMNS = 5
"""Columns of which all pairs are asked for."""
_DRAWN_SETS = 6
"""Sets of columns that are drawn where there are more."""


def check_projection(subject: Subject) -> Iterator[str]:
    """Yield complaints where a read of some columns delivers other rows, or finds another damage, than one of all.

    Where columns are in files of their own, damage of one is none of another: then no more is found, and no row of the
    whole is lost.
    """
    for policy in ("fail", "skip"):
        expectation = _ColumnRead(subject, policy)
        for columns in _choose_subsets(subject, expectation.table.schema.names):
            yield from expectation.compare(_ColumnRead(subject, policy, columns), columns)


class _ColumnRead:
    """The rows and findings of a read of some columns, of all by default, under a policy."""

    def __init__(self, subject: Subject, policy: Any, columns: Sequence[str] | None = None) -> None:
        dataset = open_subject(subject, on_damage=policy, columns=columns)
        self.policy, self.ordered = policy, subject.sample.ordered
        self.findings: list[Place] = []
        self.rows = 0
        batches: list[pa.RecordBatch] = []
        for fragment in dataset.fragments(None):
            findings = Findings(policy, drained=True)
            try:
                batches += fragment.to_batches(findings)
            except FINDING_ERRORS as error:
                self.findings += list_places([error.damage])
                break
            finally:
                self.rows += findings.rows
                self.findings += list_places(findings.damages)
        self.table = pa.Table.from_batches(batches, dataset.schema)

    def compare(self, part: _ColumnRead, columns: Sequence[str]) -> Iterator[str]:
        """Yield differences between a read of some columns and this one of all."""
        title = f"{self.policy}, columns={list(columns)}"
        if not self.ordered and set(part.findings) < set(self.findings):
            if part.rows < self.rows:
                yield f"{title}: {part.rows} of {self.rows} rows, though less is damaged"
            return
        if part.findings != self.findings:
            yield f"{title}: finds {part.findings[:3]}, with all columns {self.findings[:3]}"
        elif part.rows != self.rows:
            yield f"{title}: {part.rows} of {self.rows} rows"
        elif columns and render_rows(part.table) != render_rows(self.table.select(columns)):
            yield f"{title}: other values"


def _choose_subsets(subject: Subject, names: Sequence[str]) -> list[list[str]]:
    """Return sets of columns: none, each by itself, and pairs, all of them if they are few."""
    pairs = [list(pair) for pair in itertools.combinations(names, 2)]
    dice = make_random(subject.sample.name, "columns")
    if len(names) > _MAX_PAIRED_COLUMNS:
        pairs = [sorted(dice.sample(list(names), dice.randint(2, len(names) - 1))) for _ in range(_DRAWN_SETS)]
    sets = [[], *([name] for name in names), *pairs]
    if EFFORT < 1 or not subject.is_intact:  # a third; none of them is always among them
        sets = [[], *sets[1 + dice.randrange(3) :: 3]]
    return sets


def _collect_places(ledgers: list[Findings]) -> set[object]:
    return {place for findings in ledgers for place in list_places(findings.damages)}


def check_filters(subject: Subject) -> Iterator[str]:
    """Yield complaints where filters leave other rows than meet them; of a changed file, a third of them is tried."""
    provenance = "_offset" not in open_subject(subject).schema.names
    table = open_subject(subject, on_damage="skip", provenance=provenance).to_table()
    all_filters = [*subject.sample.filters, *_derive_filters(table)]
    if EFFORT < 1 or (not subject.is_intact and subject.mutation is not None):
        label = subject.sample.name if subject.mutation is None else subject.mutation.label
        all_filters = all_filters[make_random(label).randrange(3) :: 3]
    for filters in all_filters:
        dataset = open_subject(subject, on_damage="skip", provenance=provenance, filters=filters)
        expected = render_rows(_filter_rows(table, filters))
        rows = render_rows(dataset.to_table())
        if rows != expected:
            text = _describe_change(expected, rows)
            yield f"filters={filters}: expected {len(expected)} rows, found {len(rows)} {text}"
        if not subject.is_intact and filters is not all_filters[-1]:
            continue  # these two ask the same fragments for the same rows
        if dataset.count_rows() != len(expected):
            yield f"filters={filters}: count_rows() is {dataset.count_rows()}, of {len(expected)} rows"
        if render_rows(dataset.head(1)) != expected[:1]:
            yield f"filters={filters}: head(1) differs"


def _derive_filters(table: pa.Table) -> Iterator[list[tuple[str, str, Any]]]:
    last: list[tuple[str, str, Any]] = []
    for field in table.schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            continue
        column = table.column(field.name).cast(kind).drop_null()
        if not len(column):
            continue
        value = column[len(column) // 2]
        first = value if pa.types.is_temporal(kind) else value.as_py()
        ordered = not (pa.types.is_boolean(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))
        for op in ("=", "!=", "<", "<=", ">", ">=") if ordered else ("=", "!="):
            yield [(field.name, op, first)]
        if not pa.types.is_temporal(kind):
            yield [(field.name, "in", [first])]
            yield [(field.name, "not in", [first])]
        last = [*last[-1:], (field.name, "=", first)]
        yield last


_COMPARED: dict[str, Any] = {
    "=": pc.equal,
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "in": lambda column, values: pc.is_in(column, value_set=_add_zeros(values)),
    "not in": lambda column, values: pc.and_(
        pc.invert(pc.is_in(column, value_set=_add_zeros(values))), pc.is_valid(column)
    ),
}


def _add_zeros(values: pa.Array) -> pa.Array:
    """Return values as `=` has them: Arrow's `is_in` takes 0.0 and -0.0 for two."""
    zeros = pa.types.is_floating(values.type) and 0.0 in values.to_pylist()
    return pa.concat_arrays([values, pa.array([0.0, -0.0], values.type)]) if zeros else values


def _filter_rows(table: pa.Table, filters: Any) -> pa.Table:
    """Return the rows that meet all filters, as Arrow's functions say."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(field.type.value_type))
    for column, op, value in filters:
        kind = table.schema.field(column).type
        typed = pa.array(value, kind) if op.endswith("in") else pa.scalar(value, kind)
        table = table.filter(_COMPARED[op](table.column(column), typed))
    return table
