# SPDX-License-Identifier: Apache-2.0
"""A real Chromium without a window, by its driver, over the WebDriver protocol (W3C): nothing is needed but the two
packages chromium and chromium-driver."""
import atexit
import base64
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

from patience import HANG_S

LOADED = """return [document.readyState, performance.getEntriesByType("resource").map(one => [one.name.split("/").pop(), one.initiatorType,
  "status", one.responseStatus, "from", Math.round(one.startTime), "to", Math.round(one.responseEnd), "ms,", one.transferSize, "bytes"])]"""
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def missing():
    """Why there is no browser here, or None."""
    lacking = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"not installed: {', '.join(lacking)} (Debian: chromium chromium-driver)" if lacking else None


shared = None


def anew():
    """One browser for all tests of a process, with a new tab: nothing of the one before is left in it."""
    global shared
    if shared:
        try:
            shared.tab()
            return shared
        except (AssertionError, OSError):  # it has ended with the test before
            shared.close()
    shared = Browser()
    atexit.register(shared.close)
    return shared


class Browser:
    def __init__(self, width=1280, height=900, dark=False):
        self.profile = tempfile.mkdtemp(prefix="cairn-ui-")
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.url = f"http://127.0.0.1:{self.port()}"
        threading.Thread(target=self.driver.stdout.read, daemon=True).start()
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={self.profile}",
                     f"--window-size={width},{height}", "--force-color-profile=srgb", "--no-first-run", "--disable-extensions"]
        if dark:
            arguments.append("--force-dark-mode")
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.session = f"/session/{session['sessionId']}"
        if dark:
            self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def port(self):
        """The system's choice: one that was free a moment ago may be another test's by now."""
        said = ""
        for line in self.driver.stdout:
            said += line
            if found := re.search(r"started successfully on port (\d+)", line):
                return int(found.group(1))
        raise AssertionError(f"chromedriver has ended: {said}")

    def call(self, method, path, body=None):
        request = urllib.request.Request(self.url + path, method=method, headers={"Content-Type": "application/json"},
                                         data=None if method in ("GET", "DELETE") else json.dumps(body or {}).encode())
        try:
            with urllib.request.urlopen(request, timeout=HANG_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as problem:
            said = json.load(problem)["value"]
            raise AssertionError(f"{method} {path}: {said['error']}: {said['message'][:500]}") from None

    def close(self):
        with contextlib.suppress(Exception):
            self.call("DELETE", self.session)
        self.driver.terminate()
        self.driver.wait(HANG_S)
        shutil.rmtree(self.profile, ignore_errors=True)

    def tab(self):
        """A new tab instead of the one that is there."""
        tab = self.call("POST", f"{self.session}/window/new", {"type": "tab"})["handle"]
        self.call("DELETE", f"{self.session}/window")
        self.call("POST", f"{self.session}/window", {"handle": tab})
        self.devtools("Page.bringToFront")
        self.log()

    def open(self, url):
        """To another place of the same page by the page itself: chromedriver answers before the browser has gone there, and on
        a busy machine the next one was lost then."""
        if self.run("return location.href.split('#')[0] === arguments[0].split('#')[0] && location.href !== arguments[0]", url):
            self.run("location.href = arguments[0]", url)
        else:
            self.call("POST", f"{self.session}/url", {"url": url})

    def run(self, script, *arguments):
        """What the script returns; it may be a promise."""
        return self.call("POST", f"{self.session}/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command, **parameters):
        return self.call("POST", f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def until(self, script, *arguments):
        """The first true value of a script, which must come."""
        end = time.monotonic() + HANG_S
        while not (value := self.run(script, *arguments)):
            if time.monotonic() > end:
                raise AssertionError(f"never came: {script} {arguments}\n{self.condition()}")
            time.sleep(0.02)  # step of a poll
        return value

    def condition(self):
        """Where the page stands: how far it is loaded, which files ended with which status (0: they did not come; what is not
        among them has not ended), what the browser said of it, its text."""
        state, files = self.run(LOADED)
        lines = [f"{state} {self.run('return location.href')}", *(" ".join(map(str, file)) for file in files)]
        lines += [f"{entry['level']} {entry['message']}" for entry in self.log()]
        return "\n".join([*lines, self.text()[:3000]])

    def has(self, text):
        return self.until("return document.body.innerText.includes(arguments[0])", text)

    def text(self):
        return self.run("return document.body.innerText")

    def find(self, selector, text=None):
        """The element that fits, and holds the text."""
        return self.until("return [...document.querySelectorAll(arguments[0])].find(e => !arguments[1] || e.textContent.trim().includes(arguments[1]))",
                          selector, text)

    def click(self, selector, text=None):
        """Once more where the element was drawn anew between the look and the click."""
        while True:
            try:
                return self.call("POST", f"{self.session}/element/{self.find(selector, text)[ELEMENT]}/click")
            except AssertionError as problem:
                if "stale element" not in str(problem):
                    raise

    def type(self, selector, text):
        self.call("POST", f"{self.session}/element/{self.find(selector)[ELEMENT]}/value", {"text": text})

    def keys(self, text):
        self.call("POST", f"{self.session}/actions", {"actions": [{"type": "key", "id": "keys", "actions": [
            {"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]}]})

    def log(self):
        """What the browser said of the page: errors of scripts, of the policy of contents, of loads."""
        return self.call("POST", f"{self.session}/se/log", {"type": "browser"})

    def picture(self, path):
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("GET", f"{self.session}/screenshot")))
