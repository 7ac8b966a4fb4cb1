# SPDX-License-Identifier: MIT
"""A headless chromium, driven by messages over two pipes; nothing but the standard library.

    with Browser() as browser:
        page = browser.open("http://127.0.0.1:8080/")
        page.type("Hello")
        page.press("Enter")
        page.wait("document.querySelector('.message')")

The browser has a profile of its own, which goes with it, and looks up no name of the network. It runs without its
sandbox, which root and many containers cannot have: it sees pages of the project alone.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-headless-shell", "google-chrome")
FLAGS = (
    "--headless=new --remote-debugging-pipe --no-first-run --no-default-browser-check --disable-gpu --hide-scrollbars"
    " --disable-background-networking --disable-component-update --disable-sync --disable-extensions --mute-audio"
    " --disable-dev-shm-usage --force-color-profile=srgb --font-render-hinting=none --no-sandbox"
).split() + ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
# name -> (code, number, text)
KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    " ": ("Space", 32, " "),
}
SHIFT = 8


def found():
    """The program, or None."""
    named = os.environ.get("KVERN_BROWSER")
    return named or next((path for path in map(shutil.which, NAMES) if path), None)


class Failed(Exception):
    """The browser says no, or nothing in time."""


class Browser:
    def __init__(self, seconds=60):
        self.seconds = seconds
        self.folder = tempfile.mkdtemp(prefix="kvern-browser-")
        to_browser, self.writes = os.pipe()
        self.reads, from_browser = os.pipe()
        # The child gets them as 3 and 4; none of them may be that already.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
        command = [found(), *FLAGS, f"--user-data-dir={self.folder}", "about:blank"]
        with open(os.path.join(self.folder, "log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(3, 4),
                start_new_session=True,
                preexec_fn=lambda: (os.dup2(ends[0], 3), os.dup2(ends[1], 4)),
            )
        for end in (to_browser, from_browser, *ends):
            os.close(end)
        self.number, self.rest, self.events = 0, b"", []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        os.close(self.writes)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.reads)
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self, until):
        """The next message of the browser."""
        while b"\0" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.reads], [], [], left)[0]:
                raise Failed("the browser says nothing")
            more = os.read(self.reads, 1 << 20)
            if not more:
                raise Failed("the browser has ended")
            self.rest += more
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.seconds
        while True:
            answer = self.message(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, address, width=1280, height=800, **media):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        page.size(width, height)
        page.media(**media)
        page.go(address)
        return page


class Page:
    def __init__(self, browser, target, session):
        self.browser, self.target, self.session = browser, target, session
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def go(self, address):
        answer = self.call("Page.navigate", url=address)
        if "errorText" in answer:
            raise Failed(f"{address}: {answer['errorText']}")
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def size(self, width, height, scale=1, mobile=False):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def media(self, **features):
        """media(prefers_color_scheme="dark")"""
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=named)

    def value(self, expression):
        """The value of an expression, or what its promise becomes."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise Failed(f"{expression}: {answer['exceptionDetails'].get('exception', {}).get('description')}")
        return answer["result"].get("value")

    def wait(self, expression, seconds=None):
        """Waits until an expression is true, and returns its value."""
        until = time.monotonic() + (seconds or self.browser.seconds)
        while True:
            value = self.value(f"(() => {{ const it = ({expression}); return it instanceof Node || it; }})()")
            if value:
                return value
            if time.monotonic() > until:
                raise Failed(f"never: {expression}")
            time.sleep(0.03)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, name, shift=False):
        code, number, text = KEYS[name]
        key = {"key": name, "code": code, "windowsVirtualKeyCode": number, "modifiers": SHIFT if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **key)
        self.call("Input.dispatchKeyEvent", type="keyUp", **key)

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector):
        """As a mouse does, in the middle of what a selector finds, when that stays where it is."""
        self.value(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'nearest'}})")
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def middle(self, selector):
        return self.value(
            """new Promise((found) => {
            const element = document.querySelector(%s);
            let before = '';
            const look = () => {
                const b = element.getBoundingClientRect(), now = [b.x, b.y, b.width, b.height].join();
                if (now === before) return found([b.x + b.width / 2, b.y + b.height / 2]);
                before = now;
                requestAnimationFrame(look);
            };
            look();
        })"""
            % json.dumps(selector)
        )

    def names(self):
        """(role, name) of everything that can have the focus, as assistive technology is told."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        for node in nodes:
            properties = {p["name"]: p["value"].get("value") for p in node.get("properties", [])}
            if properties.get("focusable") and not node.get("ignored"):
                yield node["role"]["value"], node.get("name", {}).get("value", "")

    def complaints(self):
        """Exceptions, errors and what the policy of the page forbade, since the beginning."""
        self.value("0")
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                yield event["params"]["exceptionDetails"].get("exception", {}).get("description", "an exception")
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                entry = event["params"]["entry"]
                yield f"{entry['source']}: {entry['text']} {entry.get('url', '')}"

    def work(self):
        """Seconds that scripts, styles and layouts have taken."""
        metrics = {m["name"]: m["value"] for m in self.call("Performance.getMetrics")["metrics"]}
        return metrics["ScriptDuration"] + metrics["LayoutDuration"] + metrics["RecalcStyleDuration"]

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
