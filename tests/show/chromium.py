"""A headless Chromium driven through its DevTools protocol, with the standard library alone."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-port=0 about:blank"
)


class Chromium:
    """A browser with one tab; `errors` collects exceptions, console errors, CSP violations and network requests."""

    def __init__(self, width=1400, height=1000):
        self.profile = Path(tempfile.mkdtemp(prefix="blocklab-chromium-"))
        command = [PROGRAM, f"--user-data-dir={self.profile}", f"--window-size={width},{height}", *_FLAGS.split()]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._count = 0
        try:
            self._socket = WebSocket(self._tab_address())
        except BaseException:
            self.close()
            raise
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if hasattr(self, "_socket"):
            self._socket.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def open(self, path, fragment=""):
        """Open a file and wait until the page says that it is drawn."""
        self.send("Page.navigate", url=Path(path).absolute().as_uri() + fragment)
        self.wait_for("document.documentElement?.dataset.ready || document.getElementById('failure')?.hidden === false")

    def run(self, expression):
        """Return the value of a JavaScript expression; raises for an exception in it."""
        reply = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise AssertionError(f"{expression}: {reply['exceptionDetails']}")
        return reply["result"].get("value")

    def wait_for(self, expression, seconds=20):
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({expression})"):
            if time.monotonic() > end:
                raise AssertionError(f"never became true: {expression}; errors {self.errors}")
            time.sleep(0.02)

    def click(self, selector):
        """Click with the mouse in the middle of an element, scrolled into view."""
        find = f"const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
        middle = "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2];"
        place = self.run(f"(() => {{ {find} {middle} }})()")
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def press(self, key, text=None):
        """Press and release a key."""
        extra = {"text": text} if text else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **extra)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path, whole=False):
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def send(self, method, **params):
        """Send one command and return its result, noting the events that come before it."""
        self._count += 1
        number = self._count
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.receive())
            if message.get("id") == number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]
            if "method" in message:
                self._note(message["method"], message["params"])

    def _note(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def _tab_address(self):
        """Return the web socket of the tab: the browser writes its port into its profile."""
        note = self.profile / "DevToolsActivePort"
        end = time.monotonic() + 20
        while not (note.exists() and note.read_text().count("\n") >= 1):
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError("chromium did not start")
            time.sleep(0.02)
        port = note.read_text().splitlines()[0]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
            return next(tab["webSocketDebuggerUrl"] for tab in json.load(answer) if tab["type"] == "page")


class WebSocket:
    """Text messages over RFC 6455, client side."""

    def __init__(self, address):
        parts = urlsplit(address)
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=30)
        key = base64.b64encode(os.urandom(16)).decode()
        request = (
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self.socket.sendall(request.encode())
        self.buffer = self.socket.makefile("rb")
        if b"101" not in self.buffer.readline():
            raise AssertionError("no web socket")
        while self.buffer.readline().strip():
            pass

    def close(self):
        self.buffer.close()
        self.socket.close()

    def send(self, text):
        data = text.encode()
        mask = os.urandom(4)
        size = len(data)
        head = bytes([0x81])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 1 << 16:
            head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
        else:
            head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
        self.socket.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self):
        """Return the next text message, joined from its fragments."""
        whole = b""
        while True:
            first, second = self.buffer.read(2)
            size = second & 0x7F
            if size > 125:
                size = int.from_bytes(self.buffer.read(2 if size == 126 else 8), "big")
            data = self.buffer.read(size)
            if first & 0x0F == 8:
                raise AssertionError("chromium closed the connection")
            if first & 0x0F > 2:  # ping and pong carry nothing for us
                continue
            whole += data
            if first & 0x80:
                return whole.decode()
