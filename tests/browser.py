"""Chromium without a window, for tests of pages: spoken to in its DevTools protocol, over two pipes, so that
neither a driver nor a port is needed.
"""

import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time

from deadlines import HANG_S

PROGRAM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
KEYS = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "ArrowLeft": (37, ""),
    "ArrowRight": (39, ""),
    "Home": (36, ""),
    "End": (35, ""),
    "Space": (32, " "),
    "Escape": (27, ""),
    "/": (191, "/"),
    "?": (191, "?"),
    "+": (187, "+"),
    "-": (189, "-"),
}

# Becomes true once and for all: looked at with every change of the page.
UNTIL = """new Promise((done) => {
    const look = () => { const value = (() => { %s })(); if (value) { watch.disconnect(); done(value); } };
    const watch = new MutationObserver(look);
    watch.observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
    look();
})"""


# A page gives up an answer after a time. Here it waits until there is one, or the connection ends.
NO_DEADLINES = "AbortSignal.timeout = () => new AbortController().signal"


class Gone(Exception):
    """The browser ended."""


class Browser:
    """One process with any number of pages."""

    def __init__(self, directory):
        away, self.out = os.pipe()
        self.back, home = os.pipe()
        # The protocol is spoken over 3 and 4, which may be taken here.
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (away, home)]
        words = [
            PROGRAM,
            "--headless",
            "--remote-debugging-pipe",
            f"--user-data-dir={directory}",
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-hang-monitor",
            "--disable-gpu-watchdog",
            "--force-color-profile=srgb",
            "about:blank",
        ]
        if os.geteuid() == 0:  # its sandbox is for others than root
            words.insert(1, "--no-sandbox")
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=lambda: [os.dup2(fd, 3 + i) for i, fd in enumerate(theirs)],
        )
        for fd in (away, home, *theirs):
            os.close(fd)
        self.ids, self.data, self.pages = itertools.count(1), b"", {}

    def page(self, **options):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, target, session, **options)

    def call(self, method, session=None, **params):
        """The result of a command. What happens meanwhile goes to the pages."""
        number = next(self.ids)
        os.write(
            self.out,
            json.dumps(
                {
                    "id": number,
                    "method": method,
                    "params": params,
                    **({"sessionId": session} if session else {}),
                }
            ).encode()
            + b"\0",
        )
        until = time.monotonic() + HANG_S
        while True:
            message = self.read(until, method, params)
            if message.get("id") == number:
                if "error" in message:
                    raise AssertionError((method, params, message["error"]))
                return message["result"]

    def read(self, until, *what):
        while b"\0" not in self.data:
            if not select.select([self.back], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError(what)
            more = os.read(self.back, 1 << 20)
            if not more:
                raise Gone(what)
            self.data += more
        text, self.data = self.data.split(b"\0", 1)
        message = json.loads(text)
        if message.get("sessionId") in self.pages and "method" in message:
            self.pages[message["sessionId"]].happened(message["method"], message["params"])
        return message

    def end(self):
        with contextlib.suppress(Gone, TimeoutError, BrokenPipeError, AssertionError):
            self.call("Browser.close")
        try:
            self.process.wait(HANG_S)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self.out)
            os.close(self.back)


class Page:
    """A page. `errors`: what its scripts or its rules of content complained of; `asked`: addresses that it
    asked for.
    """

    def __init__(self, browser, target, session, width=1280, height=900):
        self.browser, self.target, self.session = browser, target, session
        self.errors, self.asked, self.loaded = [], [], 0
        browser.pages[session] = self
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=NO_DEADLINES)
        self.size(width, height)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def happened(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"])
        elif (
            method == "Log.entryAdded"
            and params["entry"]["level"] == "error"
            and params["entry"]["source"] != "network"
        ):
            self.errors.append(params["entry"])
        elif method == "Page.javascriptDialogOpening":
            self.errors.append(params)
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded += 1

    def open(self, url):
        loaded = self.loaded
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, (url, answer)
        if "loaderId" in answer:  # else it is another place of the same page
            self.until_loaded(loaded)

    def until_loaded(self, loaded):
        """It has loaded more often than this."""
        until = time.monotonic() + HANG_S
        while self.loaded == loaded:
            self.browser.read(until, "load", loaded)

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError((expression, result["exceptionDetails"]))
        return result["result"].get("value")

    def until(self, expression):
        """What it is once it is true: looked at with every change of the page."""
        try:
            return self.evaluate(UNTIL % f"return {expression}")
        except TimeoutError:
            raise AssertionError(
                (expression, "did not become true", self.errors, self.text("body"))
            ) from None

    def until_asked(self, n):
        """It has asked for something so many times."""
        until = time.monotonic() + HANG_S
        while len(self.asked) < n:
            self.browser.read(until, "asked", n)

    def until_requests(self, is_so):
        """is_so() is true, which depends on `asked`."""
        until = time.monotonic() + HANG_S
        while not is_so():
            self.browser.read(until, "requests")

    def text(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? null")

    def press(self, key):
        code, text = KEYS[key]
        name = " " if key == "Space" else key
        self.call(
            "Input.dispatchKeyEvent",
            type="keyDown" if text else "rawKeyDown",
            key=name,
            code=key,
            windowsVirtualKeyCode=code,
            text=text,
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=key, windowsVirtualKeyCode=code)

    def write(self, text):
        """Into what has the focus, as if it was typed."""
        self.call("Input.insertText", text=text)

    def theme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def size(self, width, height, scale=1):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def picture(self):
        """PNG, as base64, of what is in view."""
        return self.call("Page.captureScreenshot", format="png")["data"]

    def tree(self):
        """[(role, name)] of what assistive technology sees, in order."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]]

    def close(self):
        """It must not have complained."""
        self.browser.call("Target.closeTarget", targetId=self.target)
        del self.browser.pages[self.session]
        assert not self.errors, self.errors
