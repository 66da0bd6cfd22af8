"""The page's size and speed: DeiT-Tiny lowered to XNNPACK, and 20 000 ops in modules.

python bench/page.py            # needs Debian's chromium; one process, two minutes

Sizes are of the file; seconds are CPU time of this process. In the browser: the time from opening
every module to the first frame, and over 60 frames each of zooming in from all of the graph,
zooming out and panning: the CPU time of all of the browser's processes a frame, which what else
runs on the machine hardly changes; what the page's script spends on one and how long frames lie
apart, at the median and at the 95th percentile. These are upper bounds where the load that is
printed is more than the cores.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/workbench"), str(ROOT / "examples/models")]

import torch  # noqa: E402
from _report import cpu_name  # noqa: E402
from browser import Browser  # noqa: E402
from pages import layers  # noqa: E402

import deit  # noqa: E402
import stepwell  # noqa: E402
from stepwell.inspection.viewer import tell, to_html  # noqa: E402

OPEN = """(async () => {
  const frame = () => new Promise(requestAnimationFrame), started = performance.now();
  location.hash = '#tab=graph&open=*&level=' + (%d);
  const canvas = [...document.querySelectorAll('#graph canvas')].at(-1);
  delete canvas.dataset.drawn;
  while (canvas.dataset.drawn === undefined) await frame();
  window.press = (key) => canvas.dispatchEvent(
    new KeyboardEvent('keydown', { key, shiftKey: key.length > 1, bubbles: true }));
  press('0'); await frame(); await frame();
  return performance.now() - started;
})()"""
FRAMES = """(async () => {
  const frame = () => new Promise(requestAnimationFrame), apart = [], spent = [];
  const canvas = [...document.querySelectorAll('#graph canvas')].at(-1);
  let before = await frame();
  for (let n = 0; n < %d; n++) {
    press('%s');
    const now = await frame();
    spent.push(Number(canvas.dataset.spent)); apart.push(now - before);
    before = now;
  }
  const at = (list, part) => list.sort((a, b) => a - b)[Math.floor(part * (list.length - 1))];
  return [at(spent, 0.5), at(spent, 0.95), at(apart, 0.5), at(apart, 0.95)];
})()"""
COUNT = 60


def main() -> None:
    """Write both pages and measure them."""
    print(f"{cpu_name()}, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        module, inputs = deit.deit_tiny()
        program = stepwell.from_exported_program(torch.export.export(module, inputs))
        rows = (
            ("DeiT-Tiny, every step", lambda: tell(program, "xnnpack", title="DeiT-Tiny")),
            ("20 000 ops", lambda: layers(20_000)),
        )
        with Browser(folder, 1440, 900) as browser:
            for name, story in rows:
                start = time.process_time()
                told = story()
                middle = time.process_time()
                page = folder / "page.html"
                page.write_text(to_html(told))
                end = time.process_time()
                size = page.stat().st_size / 1e6
                print(f"{name}: {size:.2f} MB; told in {middle - start:.2f} s, ", end="")
                print(f"written in {end - middle:.2f} s of CPU")
                browser.open(page, "#tab=graph")
                opened = browser.ask(OPEN % (len(told.levels) - 1))
                print(f"  all modules open after {opened:.0f} ms")
                for act, key in (("zoom in", "+"), ("pan", "ArrowDown"), ("zoom out", "-")):
                    before = browser.cpu_seconds()
                    spent, spent95, apart, apart95 = browser.ask(FRAMES % (COUNT, key))
                    cpu = (browser.cpu_seconds() - before) / COUNT * 1e3
                    print(f"  {act}: CPU {cpu:.1f} ms a frame of all of the browser;", end=" ")
                    print(f"script {spent:.1f} ms, 95 % {spent95:.1f};", end=" ")
                    print(f"frames {apart:.1f} ms apart, 95 % {apart95:.1f}")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at the end")


if __name__ == "__main__":
    main()
