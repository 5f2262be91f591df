"""A headless Chromium that a test drives, by selenium.

`find` says whether a browser is installed; the tests that need one are skipped without it.
"""

from __future__ import annotations

import base64
import json
import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "ArrowRight": "\ue014", "End": "\ue010"}


def find() -> tuple[str, str] | None:
    """(browser, driver), if both are installed, and selenium."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    is_there = browser and driver and find_spec("selenium")
    return (browser, driver) if is_there else None  # type: ignore[return-value]


class Browser:
    """One window. Use it as a context."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        from selenium import webdriver

        found = find()
        assert found is not None
        options = webdriver.ChromeOptions()
        options.binary_location = found[0]
        for argument in (*ARGUMENTS, f"--window-size={width},{height}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self._driver = webdriver.Chrome(options, webdriver.ChromeService(found[1]))
        self._driver.set_script_timeout(180)
        self.page = Path()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        self._driver.quit()

    def open(self, page: Path | str, place: str = "#/", timeout_s: float = 60.0) -> float:
        """Open a page (a path, or an address) and its view; returns the seconds that took."""
        # A new document: the same file with another `#` would only change the view.
        self._driver.get("about:blank")
        self.console(), self.requests()  # what the browser does by itself
        address = page if isinstance(page, str) else page.resolve().as_uri()
        self.page = Path(page)
        began = time.monotonic()
        self._driver.get(f"{address}{place}")
        self.wait("document.body.dataset.ready !== undefined", timeout_s)
        return time.monotonic() - began

    def go(self, place: str) -> float:
        """Go to a view of the page that is open; returns the milliseconds that the page took."""
        script = """
            const [place, done] = [arguments[0], arguments[1]];
            if (location.hash === place) return done(0);
            const began = performance.now();
            delete document.body.dataset.ready;
            const watch = () => document.body.dataset.ready === undefined
                ? setTimeout(watch, 1)
                : requestAnimationFrame(() => done(performance.now() - began));
            location.hash = place;
            watch();
        """
        return float(self._driver.execute_async_script(script, place))

    def wait(self, condition: str, timeout_s: float = 30.0) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + timeout_s
        while not self.run(f"return Boolean({condition})"):
            if time.monotonic() > end:
                raise AssertionError(f"{condition} stayed false; {self.console()}")
            time.sleep(0.05)

    def run(self, script: str, *values: Any) -> Any:
        """Run a script in the page and return what it returns."""
        return self._driver.execute_script(script, *values)

    def text(self, selector: str = "main") -> str:
        """What a reader sees of an element."""
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def click(self, selector: str, holding: str = "") -> None:
        """Click the first element of a selector, with this in its text, as a mouse would."""
        element = self.run(
            "return [...document.querySelectorAll(arguments[0])]"
            ".find((one) => one.textContent.includes(arguments[1])) || null",
            selector,
            holding,
        )
        assert element is not None, f"no {selector} with {holding!r} in {self.text()}"
        element.click()

    def settle(self) -> None:
        """Wait until the view of the address is shown."""
        self.wait(
            "document.body.dataset.ready === (location.hash || '#/').replace(/[?]token=.*/, '')"
        )

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a list, as a reader would."""
        script = """
            const list = document.querySelector(arguments[0]);
            list.value = arguments[1];
            list.dispatchEvent(new Event("change", { bubbles: true }));
        """
        self.run(script, selector, value)

    def press(self, *keys: str) -> None:
        """Press keys, by the names of `KEYS` or as they are."""
        from selenium.webdriver.common.action_chains import ActionChains

        chain = ActionChains(self._driver)
        for key in keys:
            chain.send_keys(KEYS.get(key, key))
        chain.perform()

    def resize(self, width: int, height: int) -> None:
        """Give the page this size, also below the least size of a window."""
        values = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._devtools("Emulation.setDeviceMetricsOverride", values)

    def media(self, scheme: str) -> None:
        """Let the system prefer `light` or `dark`."""
        values = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self._devtools("Emulation.setEmulatedMedia", values)

    def heap(self) -> int:
        """Bytes of the page's objects after a collection."""
        self._devtools("HeapProfiler.collectGarbage", {})
        return int(self._devtools("Runtime.getHeapUsage", {})["usedSize"])

    def picture(self, path: Path, area: tuple[float, float, float, float] | None = None) -> None:
        """Save what the window shows, or an area of the page: left, top, width and height.

        The name ends with the format: png or webp.
        """
        values: dict[str, Any] = {"format": path.suffix[1:]}
        if area:
            clip = dict(zip(("x", "y", "width", "height"), area, strict=True))
            values |= {"clip": clip | {"scale": 1}, "captureBeyondViewport": True}
        path.write_bytes(base64.b64decode(self._devtools("Page.captureScreenshot", values)["data"]))

    def console(self) -> list[str]:
        """What the console said since the last call."""
        return [str(entry["message"]) for entry in self._driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses asked for since the last call."""
        entries = self._driver.get_log("performance")
        logged = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [one["params"] for one in logged if one["method"] == "Network.requestWillBeSent"]
        return [str(one["request"]["url"]) for one in sent]

    def _devtools(self, command: str, values: dict[str, Any]) -> Any:
        return self._driver.execute_cdp_cmd(command, values)
