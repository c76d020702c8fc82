"""The page of `sawlog map` in a real browser: it loads without errors and requests, and does what it says."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sawlog
from sawlog.cli import main

pytestmark = pytest.mark.interop

WIDTHS = (1280, 800, 390)
PLACES = "#damages a"
SHOTS = Path(__file__).parents[2] / ".cache" / "screenshots"
SHOP = Path(__file__).parents[2] / "examples/data/shop"
HOSTILE = "</script><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra `interop`")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program is not None, (
        "Chromium is needed to look at pages: no chromium on PATH (Debian: apt install chromium)"
    )
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Maps of a damaged log, of a log with times and hostile keys, and of a directory."""
    place = tmp_path_factory.mktemp("maps")
    dice = np.random.default_rng(1)
    records = [dice.bytes(int(size)) for size in dice.choice([20, 60, 300, 5000], 3000)]
    log = place / "000005.log"
    sawlog.write(pa.table({"record": pa.array(records, pa.binary())}), log, format="leveldb_log")
    data = bytearray(log.read_bytes())
    for offset in (100_000, 1_200_000, 2_000_000):
        data[offset] ^= 0x10
    log.write_bytes(data[:-100])
    count = 30_000
    times = np.cumsum(dice.exponential(20, count))
    times[20_000:] -= 60_000
    times[25_000:] += 900_000
    trades = pa.table(
        {
            "time": pa.array((times * 1e3).astype("i8") + 1_714_987_800_000_000).cast(pa.timestamp("us", "UTC")),
            "symbol": dice.choice(["AAPL", "MSFT", HOSTILE], count, p=[0.6, 0.3, 0.1]),
            "price": np.round(dice.normal(100, 5, count), 2),
        }
    )
    sawlog.write(trades, place / "trades.bin", format="deephaven_log")
    pages_by_name = {}
    directory = place / "directory"
    directory.mkdir()
    for number in (3, 4):
        shutil.copy(log, directory / f"00000{number}.log")
    (directory / "000001.ldb").write_bytes(b"not read")
    for name, path, arguments in (
        ("damaged", log, ()),
        ("times", place / "trades.bin", ("--option", "timestamp_columns=time=us")),
        ("directory", directory, ("--format", "leveldb_log")),
        ("database", SHOP, ()),
    ):
        pages_by_name[name] = place / f"{name}.html"
        assert main(["map", str(path), "--output", str(pages_by_name[name]), *arguments]) == (
            0 if name in ("times", "database") else 1
        )
    return pages_by_name


@pytest.fixture
def load(browser: Any, pages: dict[str, Path]) -> Iterator[Any]:
    """Opens a page, and sees to it that nothing goes wrong and nothing is asked for."""
    opened, wrong = [], []

    def go(name: str, width: int = 1280, scheme: str = "light") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("request", lambda request: request.url.startswith("file:") or wrong.append(request.url))
        page.goto(pages[name].as_uri())
        opened.append(page)
        return page

    yield go
    for page in opened:
        page.close()
    assert wrong == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["damaged", "times", "directory", "database"])
def test_pages_load_and_fit(load: Any, name: str, scheme: str, width: int) -> None:
    page = load(name, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    if width == min(WIDTHS):
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        wide = "[...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth)"
        assert page.evaluate(f"{wide}.map((box) => box.textContent.slice(0, 80))") == []
    if width == 1280:
        for table in ("columns", "damages", "file-table"):
            scrolled = "(id) => { const box = document.getElementById(id); return box.scrollWidth - box.clientWidth; }"
            assert page.evaluate(scrolled, table) <= 0, table
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 22, 27)"}[scheme]
    assert page.title() != "owned"
    colours = page.evaluate(
        "(() => { const c = document.getElementById('view'); const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; const s = new Set(); for (let i = 0; i < d.length; i += 4)"
        " s.add([d[i], d[i+1], d[i+2]].join()); return s.size; })()"
    )
    assert colours > 1
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"map-{name}-{scheme}-{width}.png", full_page=True)


def test_numbers_are_those_of_verify(load: Any, pages: dict[str, Path]) -> None:
    page = load("damaged")
    report = sawlog.verify(pages["damaged"].with_name("000005.log"))
    (file,) = report.files
    rows = page.locator("#damages tbody tr").all_inner_texts()
    assert len(rows) == len(file.damages)
    for text, damage in zip(rows, file.damages, strict=True):
        assert f"{damage.offset:,}" in text
        assert damage.kind in text
        assert damage.detail in text
    assert f"Rows {report.rows:,}" in page.inner_text("#head")
    page.locator("#layout-table summary").click()
    cells = page.locator("#layout-table tbody tr").all()
    sums = [sum(int(row.locator("td").nth(i).inner_text().replace(",", "")) for row in cells) for i in range(2, 7)]
    account = file.account
    assert sums == [account.record, account.header, account.padding, account.tail, account.damage]


def view(page: Any) -> tuple[int, int]:
    return tuple(page.evaluate("[state.from, state.to]"))


def eventually(page: Any, condition: str) -> None:
    """Waits; the page allows no `eval`, by which Playwright would."""
    for _ in range(100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(condition)


def test_keys_wheel_and_buttons_zoom(load: Any) -> None:
    page = load("times")
    view_before = view(page)
    page.focus("#view")
    page.keyboard.press("+")
    assert view(page)[1] - view(page)[0] == pytest.approx((view_before[1] - view_before[0]) / 2)
    page.keyboard.press("ArrowRight")
    assert view(page)[0] > view_before[0]
    for _ in range(14):
        page.keyboard.press("+")
    page.keyboard.press("n")
    page.keyboard.press("n")
    assert view(page)[1] - view(page)[0] < 500
    assert "Row at byte" in page.inner_text("#place")
    page.keyboard.press("Home")
    assert view(page) == view_before
    page.hover("#view")
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, 300)
    eventually(page, f"scrollY > {before}")
    assert view(page) == view_before, "the wheel scrolls the page"
    page.hover("#view")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    eventually(page, "state.to - state.from < state.file.size")
    page.click("text=Whole file")
    assert view(page) == view_before


def test_damage_leads_to_its_bytes(load: Any, pages: dict[str, Path]) -> None:
    page = load("damaged")
    damages = sawlog.verify(pages["damaged"].with_name("000005.log")).files[0].damages
    number, damage = next((i, damage) for i, damage in enumerate(damages) if damage.kind == "checksum_mismatch")
    page.click(f"{PLACES} >> nth={number}")
    assert f"Damage at byte {damage.offset:,}" in page.inner_text("#place")
    assert damage.detail in page.inner_text("#hex")
    start, end = view(page)
    assert start <= damage.offset < end
    fields = page.locator("#parts tbody tr").all_inner_texts()
    assert fields[0].startswith("checksum")
    assert "expected 0x" in fields[0]
    assert page.locator("#hex b.lost").count() > 16
    page.focus("#view")
    page.keyboard.press("d")
    assert f"Damage at byte {damage.offset:,}" not in page.inner_text("#place")


def test_every_place_has_an_address(load: Any, pages: dict[str, Path]) -> None:
    page = load("directory")
    page.click(f"{PLACES} >> nth=1")
    address = page.evaluate("location.href")
    place = page.inner_text("#place")
    assert "#000003.log@" in address
    page.click(f"{PLACES} >> nth=-1")
    assert page.evaluate("state.file.path").endswith("000004.log")
    page.go_back()
    eventually(page, "state.file.path.endsWith('000003.log')")
    assert page.inner_text("#place") == place
    page.goto(address.replace("000003", "000004"))
    eventually(page, "state.file.path.endsWith('000004.log')")
    for wrong in ("#nobody@1", "#99999999999999", "#%E0%A4%A@1", "#<b>@1", "#000003.log@-1"):
        page.goto(pages["directory"].as_uri() + wrong)
        assert page.evaluate("state.from") == 0


def test_a_page_begins_with_a_file_that_was_read_and_one_value_has_no_gaps(browser: Any, tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden"
    page = browser.new_page()
    database = golden / "leveldb_database" / "pebble-2.1.7-minlz" / "db"
    assert main(["map", str(database), "--output", str(tmp_path / "database.html")]) == 0
    page.goto((tmp_path / "database.html").as_uri())
    assert page.evaluate("FILES[0].unread == FILES[0].size")
    assert page.evaluate("state.file.unread < state.file.size")
    table = golden / "leveldb_table" / "rocksdb" / "11-zstd.sst"
    assert main(["map", str(table), "--output", str(tmp_path / "table.html")]) == 0
    page.goto((tmp_path / "table.html").as_uri())
    assert "sequence along the file: 0 to 0; 0 steps back" in page.inner_text("#charts")
    page.close()


def test_charts_have_keys_hover_text_and_a_table(load: Any) -> None:
    page = load("times")
    figures = page.locator("figure.picture")
    assert figures.locator("h3").all_inner_texts() == ["Rate along time", "Largest rows"]
    chart = figures.first.locator(".lanes")
    chart.focus()
    page.keyboard.press("ArrowRight")
    first = figures.first.locator(".said").inner_text()
    assert " in " in first
    assert " row" in first
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    assert " bytes in " in figures.first.locator(".said").inner_text()
    titles = page.evaluate("[...document.querySelectorAll('.picture rect')].every((one) => one.firstChild.textContent)")
    assert titles
    largest = figures.nth(1).locator(".lanes")
    largest.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert "Row at byte" in page.inner_text("#place")
    figures.nth(1).locator("summary").click()
    assert figures.nth(1).locator("tbody tr").count() == 12
    bins = page.locator("canvas.chart").first
    bins.focus()
    page.keyboard.press("ArrowRight")
    assert "rows; " in page.inner_text("#told")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert page.inner_text("#brushed").startswith("Selected")
    page.keyboard.press("Escape")
    assert page.inner_text("#brushed") == ""
    bins.hover()
    assert "rows; " in (bins.get_attribute("title") or "")


def test_charts_of_bytes_without_rows_say_so(load: Any, pages: dict[str, Path]) -> None:
    page = load("damaged")
    damages = sawlog.verify(pages["damaged"].with_name("000005.log")).files[0].damages
    longest = max(damages, key=lambda damage: damage.length)
    middle = longest.offset + longest.length // 2
    page.evaluate(f"show({middle}, {middle + 16})")
    assert page.inner_text("#charts").count("no row begins in these bytes") == 2
    assert "∞" not in page.inner_text("body")


def test_bytes_of_a_database_are_named_down_to_keys(load: Any) -> None:
    page = load("database")
    assert "Live and dead bytes by level" in page.inner_text("#drawn")
    page.locator(".picture", has_text="Bytes of files by level").locator("rect").first.click()
    assert page.evaluate("state.file.path").endswith(".log")
    fields = page.locator("#parts tbody tr").all_inner_texts()
    assert [text.split("\t")[0].strip() for text in fields[:8]] == [
        *("checksum", "length", "type", "sequence", "count", "operation", "key length", "key"),
    ]
    assert "user:000000" in fields[7]


def test_brushing_one_chart_selects_in_the_others(load: Any) -> None:
    page = load("times")
    charts = page.locator("canvas.chart")
    assert charts.count() == 4
    assert "1 step back" in page.inner_text("#charts")
    before = page.evaluate("document.getElementById('view').toDataURL()")
    charts.nth(3).scroll_into_view_if_needed()
    box = charts.nth(3).bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 40, steps=4)
    page.mouse.up()
    text = page.inner_text("#brushed")
    assert text.startswith("Selected (2024-05-06")
    assert "rows" in text
    assert page.evaluate("document.getElementById('view').toDataURL()") != before
    page.click("text=Zoom to it")
    assert view(page)[1] < page.evaluate("state.file.size")
    page.click("text=Clear")
    assert page.inner_text("#brushed") == ""


def test_directories_files_and_what_was_not_read(load: Any) -> None:
    page = load("directory")
    assert page.locator("#choice option").count() == 2
    page.select_option("#choice", "1")
    assert page.evaluate("state.file.path").endswith("000004.log")
    assert "000001.ldb" in page.inner_text("#skipped")
    assert page.locator("#file-table a").all_inner_texts() == ["000003.log", "000004.log"]
    page.locator("#file-table a").first.click()
    assert page.evaluate("state.file.path").endswith("000003.log")


def test_content_is_shown_and_hostile_keys_are_escaped(load: Any) -> None:
    page = load("times")
    assert HOSTILE in page.inner_text("#keys-tables")
    assert page.locator("#columns tbody tr").count() == 3
    assert page.locator("#rows tbody tr").count() == 20
    assert page.locator("script").count() == 2


def test_every_picture_has_a_name_and_a_table(load: Any) -> None:
    page = load("times")
    for canvas in page.locator("canvas").all():
        assert len(canvas.get_attribute("aria-label") or "") > 10
    for table in ("#layout-table", "#charts-table"):
        page.locator(f"{table} summary").click()
        assert page.locator(f"{table} tbody tr").count() == 50
    page.emulate_media(media="print")
    assert not page.locator("#tools").is_visible()
