"""How soon the page of a report is there: first paint, and when all of it answers, from disk in headless Chromium.

    curate report scores.parquet -o report.html
    python benchmarks/report_page.py report.html [MORE.html ...] [--times 5]

Times are by the browser's clock since the address was opened; pages are opened in turn, each time again.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "curate" / "sheets"))

from headless import Browser  # of the tests

TIMES = """JSON.stringify([
  performance.getEntriesByName("first-contentful-paint")[0].startTime,
  performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd])"""


def main() -> None:
    """Open the pages, and print the least, the median and the most of each time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(Path(folder), Path(folder))
        browser.size(1440, 1000)
        seen: dict[Path, list[list[float]]] = {page: [] for page in options.pages}
        for _ in range(options.times):
            for page, times in seen.items():
                browser.open(page.resolve())
                browser.until("document.querySelectorAll('.gallery .tile').length > 0")
                browser.until("performance.getEntriesByName('first-contentful-paint').length > 0")
                times.append(json.loads(browser.run(TIMES)))
        browser.process.terminate()
        browser.process.wait(20)
    for page, times in seen.items():
        painted, complete = (sorted(column) for column in zip(*times, strict=True))
        print(f"{page.name}: {page.stat().st_size / 1e6:.1f} MB, {len(times)} times")
        for name, values in (("painted", painted), ("whole", complete)):
            print(f"  {name} after {values[0]:.0f} to {values[-1]:.0f} ms, median {values[len(values) // 2]:.0f}")


if __name__ == "__main__":
    main()
