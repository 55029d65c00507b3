"""A browser without a window for tests of pages: Chromium, spoken to through its debugging pipe."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time

import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
with_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this machine")

# The browser reads messages from descriptor 3 and writes them to 4.
WRAPPER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """Chromium without a window, spoken to through its debugging pipe: JSON with a NUL byte after each message."""

    def __init__(self, profile, downloads):
        from_us, to_browser = os.pipe()
        from_browser, to_us = os.pipe()
        high = [fcntl.fcntl(handle, fcntl.F_DUPFD, 10) for handle in (from_us, to_us)]
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        command = [sys.executable, "-c", WRAPPER, *map(str, high), BROWSER, *arguments, f"--user-data-dir={profile}"]
        with (profile / "log").open("wb") as log:
            self.process = subprocess.Popen(command, pass_fds=high, stdout=log, stderr=log)
        for handle in high:
            os.close(handle)
        os.close(from_us)
        os.close(to_us)
        self.to, self.of = to_browser, os.fdopen(from_browser, "rb", 0)
        self.number, self.waiting, self.events = 0, b"", []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")
        self.ask("Log.enable")
        self.ask("Runtime.enable")
        self.ask("Network.enable")
        session, self.session = self.session, None
        self.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads), eventsEnabled=True)
        self.session = session

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("id") == self.number:
                if "error" in reply:
                    raise RuntimeError(reply["error"])
                return reply["result"]
            self.events.append(reply)

    def _next(self):
        """The next message; a question whether to leave a page is answered with yes."""
        while b"\0" not in self.waiting:
            if not select.select([self.of], [], [], 60)[0]:
                raise RuntimeError("the browser says nothing")
            piece = self.of.read(65536)
            if not piece:
                raise RuntimeError("the browser went away")
            self.waiting += piece
        message, self.waiting = self.waiting.split(b"\0", 1)
        message = json.loads(message)
        if message.get("method") == "Page.javascriptDialogOpening":
            answer = {"id": 0, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
            os.write(self.to, json.dumps(answer | {"sessionId": message["sessionId"]}).encode() + b"\0")
        return message

    def open(self, path):
        self.events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        self.until("document.readyState === 'complete'")

    def run(self, code):
        result = self.ask("Runtime.evaluate", expression=code, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def until(self, code):
        for _ in range(200):
            if self.run(code):
                return
            time.sleep(0.05)
        raise RuntimeError(f"never came: {code}")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key)

    def drag(self, points):
        """Press the left button at the first point, move over the others, let it go at the last; in CSS pixels."""
        kinds = ["mouseMoved", "mousePressed", *["mouseMoved"] * (len(points) - 1), "mouseReleased"]
        places = [points[0], points[0], *points[1:], points[-1]]
        for kind, (x, y) in zip(kinds, places, strict=True):
            held = (
                {}
                if kind == "mouseMoved" and (x, y) == points[0]
                else {"button": "left", "buttons": 1, "clickCount": 1}
            )
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)

    def size(self, width, height, *, dark=False):
        """Give the page a size in CSS pixels, and a system that is dark or light."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def problems(self):
        """What the console, the policy and the script complained about, and every request that left the page."""
        self.run("0")
        named = ("Log.entryAdded", "Runtime.exceptionThrown", "Page.javascriptDialogOpening")
        seen = [event for event in self.events if event.get("method") in named]
        sent = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return seen, [url for url in sent if not url.startswith(("file:", "data:", "blob:"))]
