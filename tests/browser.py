"""Headless Chromium for tests, which records every error and every request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from isfl.cli.facts import browser_path
from isfl.report.page import write_report

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Seen:
    """Errors and requests of a page."""

    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def chromium() -> str:
    """Return the path of the browser; skip the test without one."""
    found = browser_path()
    if found is None:
        pytest.skip("needs a browser: apt-get install chromium")
    return found


@contextmanager
def started() -> Iterator[Any]:
    """Start a browser."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install '.[dev]'")
    with api.sync_playwright() as control:
        browser = control.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def report_at(paths: list[Path], out: Path) -> str:
    """Write the report of these directories; return its address."""
    write_report(paths, out)
    return out.as_uri()


@contextmanager
def opened(browser: Any, address: str, width: int = 1280, dark: bool = False) -> Iterator[tuple[Any, Seen]]:
    """Open a page and record its errors and requests."""
    seen = Seen()
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
    page.set_default_timeout(10_000)
    page.on("console", lambda message: seen.complaints.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("dialog", lambda dialog: seen.complaints.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: seen.requests.append(request.url))
    try:
        page.goto(address)
        page.wait_for_selector("#run .tiles")
        yield page, seen
    finally:
        page.close()


CONTRAST = """
() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    const box = node.getBoundingClientRect();
    if (!own || !box.width || ["SCRIPT", "STYLE", "OPTION", "NOSCRIPT"].includes(node.tagName)) continue;
    const style = getComputedStyle(node), svg = node.namespaceURI.endsWith("svg");
    const a = light(parse(svg ? style.fill : style.color));
    const b = light(ground(svg ? node.closest("div, span") : node));
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.textContent.trim().slice(0, 40)]);
  }
  return found;
}
"""
"""Contrast of every piece of text with its background, by the formula of WCAG 2."""
