"""The page of a report in a real browser: all of it there, all of it reacting, nothing of the user's run."""

import csv
import io
import json
import time
from itertools import pairwise

import numpy as np
import pytest
from headless import with_browser
from reported import HOSTILE, document

from curate.manifest.text import unguarded
from curate.sheets.app.assemble import page_pieces

SECTIONS = ["overview", "funnel", "images", "distributions", "files", "map", "ranks", "measured"]
SHOWN = "Array.from(document.querySelectorAll('.gallery .tile'), (t) => t.row.key)"
TICKED = "document.querySelector('#tray strong').textContent"


@pytest.fixture(scope="module")
def facts():
    return document()


@pytest.fixture(scope="module")
def opened(browser, facts, tmp_path_factory):
    """The browser with the page open, once for all tests that only look; with a view that has no network."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(page_pieces(facts))
    browser.size(1440, 1000)
    browser.ask("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    browser.open(path)
    browser.until("document.querySelectorAll('.gallery .tile').length")
    yield browser
    assert browser.problems() == ([], [])
    browser.ask(
        "Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1
    )


@pytest.fixture
def fresh(opened):
    """The page as it was when it was opened: nothing ticked, nothing requested, no dialog."""
    opened.run("document.querySelectorAll('dialog[open]').forEach((d) => d.close()); document.activeElement.blur(); 0")
    opened.run("window.scrollTo({ top: 0, behavior: 'instant' })")
    for name in ("search", "klass", "decision", "min", "max", "sort"):
        field(opened, name, "")
    pressed(opened, "[data-gallery=all]")
    opened.run("document.getElementById('untick').click()")
    told(opened, "150 images")
    opened.until(f"{SHOWN}.length >= 60")
    return opened


def field(browser, name, value):
    event = "input" if name == "search" else "change"
    browser.run(
        f"(f => {{ f.value = {json.dumps(value)}; f.dispatchEvent(new Event('{event}')); }})"
        f"(document.querySelector('[data-field={name}]'))"
    )


def pressed(browser, selector):
    browser.run(f"document.querySelector({json.dumps(selector)}).click(); 0")


def told(browser, words):
    browser.until(f"document.querySelector('.total').textContent === {json.dumps(words)}")


def look_at(browser, section, charts=1):
    """Bring a section into view, again while the page above it still grows, until so many of its charts are drawn."""
    seen = f"document.getElementById('{section}').scrollIntoView({{ behavior: 'instant' }})"
    browser.until(f"({seen}, document.querySelectorAll('#{section} .chart canvas').length >= {charts})")


def saved(browser):
    name = browser.downloads / "keys.csv"
    name.unlink(missing_ok=True)
    pressed(browser, "#save")
    for _ in range(100):
        if name.exists() and name.stat().st_size:
            break
        time.sleep(0.05)
    return name.read_bytes()


@with_browser
def test_every_section_is_there_and_named_in_the_navigation(opened):
    assert opened.run("Array.from(document.querySelectorAll('main > section'), (s) => s.id)") == SECTIONS
    assert opened.run("Array.from(document.querySelectorAll('nav a'), (a) => a.hash.slice(1))") == SECTIONS
    for section in SECTIONS:
        assert opened.run(f"document.getElementById('{section}').textContent.length") > 20
    for section in ("files", "distributions", "map", "ranks"):
        look_at(opened, section)
    assert opened.problems() == ([], [])


@with_browser
def test_sections_without_facts_are_left_out(opened, tmp_path):
    facts = document(20)
    facts |= {"funnel": [], "distributions": [], "galleries": [], "map": None, "measured": None}
    facts["ranks"] = {"columns": [], "rho": [], "n": 0}
    (tmp_path / "bare.html").write_text("".join(page_pieces(facts)), "utf-8")
    target = opened.ask("Page.getFrameTree")["frameTree"]["frame"]["url"]
    opened.open(tmp_path / "bare.html")
    opened.until("document.querySelectorAll('.gallery .tile').length === 20")
    assert opened.run("Array.from(document.querySelectorAll('nav a'), (a) => a.hash.slice(1))") == [
        "overview",
        "images",
        "files",
    ]
    assert opened.problems() == ([], [])
    opened.ask("Page.navigate", url=target)
    opened.until("document.readyState === 'complete' && document.querySelectorAll('.gallery .tile').length")


@with_browser
def test_search_class_decision_and_range_change_the_gallery(fresh, facts):
    rows = facts["rows"]
    told(fresh, "150 images")
    field(fresh, "search", "00013")
    told(fresh, "1 image, filtered")
    assert fresh.run(SHOWN) == ["photos/00013.jpg"]
    field(fresh, "search", "")
    chosen = rows["u:label"][int(np.argmax(rows["unc_losspred"]))]
    field(fresh, "klass", chosen)
    keys = [key for key, label in zip(rows["key"], rows["u:label"], strict=True) if label == chosen]
    told(fresh, f"{len(keys)} images, filtered")
    assert fresh.run(SHOWN) == keys
    field(fresh, "decision", "drop")
    field(fresh, "min", "0.9")
    keys = [
        key
        for key, label, unsure in zip(rows["key"], rows["u:label"], rows["unc_losspred"], strict=True)
        if label == chosen and unsure >= 0.9
    ]
    told(fresh, f"{len(keys)} image{'s' * (len(keys) != 1)}, filtered")
    assert fresh.run(SHOWN) == keys


@with_browser
def test_rows_are_sorted_both_ways_and_those_without_a_value_come_last(fresh, facts):
    kappa = np.array([np.nan if value is None else value for value in facts["rows"]["kappa"]])
    order = np.argsort(kappa, kind="stable")  # NaN last
    field(fresh, "sort", "kappa")
    fresh.until(f"{SHOWN}[0] === {json.dumps(facts['rows']['key'][order[0]])}")
    assert fresh.run(SHOWN)[:60] == [facts["rows"]["key"][at] for at in order[:60]]
    pressed(fresh, "[aria-label='Highest first']")
    highest = [at for at in order[::-1] if not np.isnan(kappa[at])]
    fresh.until(f"{SHOWN}[0] === {json.dumps(facts['rows']['key'][highest[0]])}")
    assert fresh.run(SHOWN)[:60] == [facts["rows"]["key"][at] for at in highest[:60]]
    pressed(fresh, "[aria-label='Highest first']")


@with_browser
def test_groups_show_which_row_was_kept(fresh):
    pressed(fresh, "[data-gallery=duplicates]")
    told(fresh, "5 images")
    assert fresh.run("Array.from(document.querySelectorAll('.gallery h3 bdi'), (h) => h.textContent)") == [
        "group <1>",
        "group 2",
    ]
    marked = "Array.from(document.querySelectorAll('.chosen-one'), (t) => t.row.key)"
    assert fresh.run(marked) == ["photos/00021.jpg", "photos/00030.jpg"]


@with_browser
def test_hostile_keys_are_shown_as_text_and_exported_exactly(fresh):
    keys = fresh.run("Array.from(document.querySelectorAll('.gallery .tile .key'), (k) => k.title)")[: len(HOSTILE)]
    assert keys == HOSTILE
    for at in range(len(HOSTILE)):
        fresh.run(f"document.querySelectorAll('.gallery .tile input')[{at}].click()")
    assert fresh.run(TICKED) == f"{len(HOSTILE)} ticked"
    rows = list(csv.reader(io.StringIO(saved(fresh).decode(), newline="")))
    assert [unguarded(row[0]) for row in rows] == ["key", *HOSTILE]
    assert not any(row[0].startswith(("=", "+", "-", "@", "\t", "\r")) for row in rows)
    assert fresh.run("window.broken === undefined")


@with_browser
def test_shift_ticks_a_range_and_ticks_outlive_the_gallery(fresh):
    fresh.run("document.querySelectorAll('.gallery .tile input')[20].click()")
    shift = "new MouseEvent('click', {shiftKey: true, bubbles: true})"
    fresh.run(f"document.querySelectorAll('.gallery .tile input')[25].dispatchEvent({shift})")
    assert fresh.run(TICKED) == "6 ticked"
    pressed(fresh, "[data-gallery=duplicates]")
    told(fresh, "5 images")
    assert fresh.run("Array.from(document.querySelectorAll('.gallery .ticked'), (t) => t.row.key)") == [
        f"photos/{at:05d}.jpg" for at in (20, 21, 22)
    ]
    assert saved(fresh).decode().split() == ["key", *(f"photos/{at:05d}.jpg" for at in range(20, 26))]


@with_browser
def test_an_image_that_is_gone_is_a_placeholder(fresh):
    absent = "Array.from(document.querySelectorAll('.gallery .absent'), (a) => a.closest('.tile').row.at)"
    assert [at for at in fresh.run(absent) if at < 60] == [at for at in range(60) if at % 11 == 10]
    assert fresh.run("Array.from(document.querySelectorAll('.gallery img')).every((i) => i.alt.length > 3)")
    assert "images are gone" in fresh.run("document.getElementById('overview').textContent")


@with_browser
def test_the_dialog_goes_on_by_keys_and_gives_the_focus_back(fresh):
    fresh.run("document.querySelectorAll('.gallery .look')[12].focus()")
    fresh.press("ArrowRight")
    assert fresh.run("document.activeElement.closest('.tile').row.at") == 13
    fresh.run("document.activeElement.click()")
    place = "Number(document.getElementById('detail').dataset.number)"
    assert fresh.run(place) == 130
    text = fresh.run("document.getElementById('detail').textContent")
    assert "photos/00013.jpg" in text
    assert "/data/photos/00013.jpg" in text
    fresh.press("ArrowRight")
    assert fresh.run(place) == 140
    fresh.press("x")
    fresh.press("ArrowLeft")
    fresh.press("ArrowLeft")
    assert fresh.run(place) == 120
    assert fresh.run(TICKED) == "1 ticked"
    fresh.run("document.getElementById('detail').close()")
    fresh.until("document.activeElement.closest('.tile')?.row.at === 12")
    fresh.press("x")
    assert fresh.run(TICKED) == "2 ticked"
    fresh.press("?")
    assert fresh.run("document.getElementById('help').open")


@with_browser
def test_a_hostile_row_in_full_is_text(fresh):
    for at in range(len(HOSTILE)):
        fresh.run(f"document.querySelectorAll('.gallery .look')[{at}].click()")
        assert fresh.run("document.querySelector('#detail dd bdi').textContent") == HOSTILE[at]
        fresh.run("document.getElementById('detail').close()")
    assert fresh.run("window.broken === undefined")


MAP = "echarts.getInstanceByDom(document.querySelector('#map .chart'))"


@with_browser
def test_a_lasso_on_the_map_ticks_exactly_what_is_inside(fresh, facts):
    look_at(fresh, "map")
    fresh.run("document.querySelector('#map .map').scrollIntoView({ behavior: 'instant', block: 'center' })")
    pressed(fresh, "#map [data-value=polygon]")
    x, y = fresh.run("(({ left, top }) => [left, top])(document.querySelector('#map .chart').getBoundingClientRect())")
    corners = [(200, 100), (700, 60), (760, 420), (300, 480), (200, 100)]
    steps = [np.linspace(a, b, 12) for a, b in pairwise(corners)]
    fresh.drag([(x + px, y + py) for px, py in np.concatenate(steps).tolist()])
    fresh.until("!!document.querySelector('.lassoed .strong')")
    pressed(fresh, ".lassoed .strong")
    points = fresh.run(
        f"Array.from({MAP}.getOption().series[0].data, (d) => [d.at, ...{MAP}.convertToPixel('grid', d.value)])"
    )
    inside = [facts["rows"]["key"][at] for at, px, py in sorted(points) if within((px, py), corners)]
    assert 20 < len(inside) < 140
    assert [row[0] for row in csv.reader(io.StringIO(saved(fresh).decode(), newline=""))] == ["key", *inside]
    pressed(fresh, "#map [data-value=pan]")
    pressed(fresh, ".lassoed button:last-child")
    told(fresh, f"{len(inside)} images")


def within(point, corners):
    """Whether a convex polygon, given in one direction, holds a point: it is on the same side of every edge."""
    sides = []
    for (ax, ay), (bx, by) in pairwise(corners):
        sides.append((bx - ax) * (point[1] - ay) - (by - ay) * (point[0] - ax) > 0)
    return len(set(sides)) == 1


@with_browser
def test_the_map_answers_hovering_and_colours(fresh, facts):
    look_at(fresh, "map")
    fresh.run("document.querySelector('#map .map').scrollIntoView({ behavior: 'instant', block: 'center' })")
    pressed(fresh, "#map [data-value=class]")
    fresh.until("document.querySelectorAll('#map .legend li').length === 8")
    name = fresh.run("(b => { b.click(); return b.textContent })(document.querySelector('#map .legend button'))")
    told(fresh, f"{facts['rows']['u:label'].count(name)} images, filtered")
    bright = f"{MAP}.getOption().series[0].data.filter((d) => d.itemStyle.opacity === 1).length"
    fresh.until(f"{bright} === {facts['rows']['u:label'].count(name)}")
    pressed(fresh, "#map .legend button")
    fresh.until(f"{bright} === {facts['rows']['n']}")
    pressed(fresh, "#map [data-value=uncertainty]")
    fresh.until("!!document.querySelector('#map .legend .ramp')")
    x, y = fresh.run("(({ left, top }) => [left, top])(document.querySelector('#map .chart').getBoundingClientRect())")
    at, px, py = fresh.run(
        f"((d) => [d.at, ...{MAP}.convertToPixel('grid', d.value)])({MAP}.getOption().series[0].data.at(-1))"
    )
    fresh.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x + px + 40, y=y + py)
    fresh.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x + px, y=y + py)
    fresh.until("!document.querySelector('#map .card').hidden")
    assert fresh.run("document.querySelector('#map .card .key').textContent") == facts["rows"]["key"][at]
    assert fresh.run("document.querySelector('#map .card').textContent.includes('less certain than 0 %')")


@with_browser
def test_a_bar_of_a_score_and_a_class_lead_to_their_images(fresh, facts):
    look_at(fresh, "distributions")
    hist = facts["distributions"][0]["hist"]
    chart = "echarts.getInstanceByDom(document.querySelector('#distributions .chart'))"
    fresh.run(f"{chart}.trigger('click', {{ value: {json.dumps(hist['edges'][3:5])} }}); 0")
    told(fresh, f"{hist['counts'][3]} images, filtered")
    pressed(fresh, ".filters > button")
    fresh.run(
        "Array.from(document.querySelectorAll('#files .bars button')).find((b) => b.textContent === 'cat').click()"
    )
    told(fresh, f"{facts['rows']['u:label'].count('cat')} images, filtered")


@with_browser
def test_both_themes_and_three_sizes_fit_without_sideways_scrolling(fresh):
    for width, height in ((390, 844), (820, 1100), (1440, 1000)):
        for dark in (False, True):
            fresh.size(width, height, dark=dark)
            fresh.until(f"innerWidth === {width} && document.documentElement.scrollWidth <= {width}")
            colour = fresh.run("getComputedStyle(document.body).backgroundColor")
            assert (sum(int(part) for part in colour[4:-1].split(",")) < 200) == dark
    fresh.size(1440, 1000)
    pressed(fresh, "#theme")
    assert fresh.run("document.documentElement.dataset.theme") == "dark"
    pressed(fresh, "#theme")
    assert fresh.run("document.documentElement.dataset.theme") == "light"


@with_browser
def test_the_policy_lets_nothing_else_run_or_leave(fresh):
    first = "Array.from(document.querySelectorAll('.gallery img')).slice(0, 8)"
    fresh.until(f"{first}.every((i) => i.complete && i.naturalWidth > 0)")
    for attack in (
        "document.body.insertAdjacentHTML('beforeend', `<img src='http://127.0.0.1:9/x'>`)",
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.broken = 1'}))",
        "fetch('http://127.0.0.1:9/x').catch(() => 0)",
        "document.body.insertAdjacentHTML('beforeend', `<p style='color: red'>`)",
    ):
        fresh.events.clear()
        fresh.run(f"{attack}; 0")
        for _ in range(40):
            seen, _ = fresh.problems()
            if seen:
                break
            time.sleep(0.05)
        assert any("Content Security Policy" in json.dumps(event) for event in seen), attack
    assert fresh.run("window.broken === undefined")
    fresh.events.clear()
