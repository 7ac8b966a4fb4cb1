#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The pictures of the page in docs/images: a server with a model, some clients, and a conversation.

    tests/page/screenshots.py [MODEL]      smollm2 by default; build/kvern serves it

They are looked at and committed by hand; no test writes them.
"""

import http.client
import json
import pathlib
import subprocess
import sys
import threading
import time

import browser
import small_png

ROOT = pathlib.Path(__file__).parents[2]
IMAGES = ROOT / "docs/images"
OPTIONS = "--port 0 --kv q4 --kv-residual 128 --parallel 4 --budget 128M -n 700 --seed 5 --temp 0.6".split()
SYSTEM = (
    "You are a careful miller. You answer questions about mills, grain and flour in whole sentences, you explain "
    "every word that a visitor may not know, you give numbers where they are known, and you never make one up. "
    "When a question is about something else you say so, kindly, and come back to the mill. "
) * 4
QUESTIONS = (
    "Write a long story about a miller who lost his stones, and found them in the end.",
    "List everything that a mill consists of, from the ground to the roof, and explain each part at length.",
)
LAST = "[...document.querySelectorAll('.message.assistant')].at(-1)"


def keep_asking(address, question, ended):
    """A client that asks the same again when it has been answered."""
    while not ended.is_set():
        connection = http.client.HTTPConnection(address, timeout=600)
        said = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps({"messages": said, "stream": True}))
            response = connection.getresponse()
            while response.read(256) and not ended.is_set():
                pass
        except (OSError, http.client.HTTPException):
            return
        connection.close()


def converse(page, texts):
    for number, text in enumerate(texts, 1):
        page.value("document.getElementById('input').focus()")
        page.type(text)
        page.press("Enter")
        whole = f"document.querySelectorAll('.message.assistant .facts').length === {number}"
        much = f"{LAST}?.querySelector('.said').innerText.length > 300"
        page.wait(whole if number < len(texts) else f"{whole} || {much}", 300)


def take(page):
    """All pictures; they are made small at the end, for the rows go on."""
    page.picture(IMAGES / "page-light.png")
    page.media(prefers_color_scheme="dark")
    time.sleep(0.6)
    page.picture(IMAGES / "page-dark.png")
    page.size(390, 780, 2, True)
    page.click("#tab-cache")
    time.sleep(1)
    page.picture(IMAGES / "page-phone.png")
    for path in IMAGES.glob("page-*.png"):
        small_png.write(path.read_bytes(), path)


def main():
    model = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
    IMAGES.mkdir(exist_ok=True)
    command = [ROOT / "build/kvern", "serve", model, *OPTIONS]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = server.stdout.readline().strip().removeprefix("http://")
    ended = threading.Event()
    try:
        with browser.Browser() as opened:
            page = opened.open(f"http://{address}/", 1360, 1120, prefers_color_scheme="light")
            for question in QUESTIONS:
                threading.Thread(target=keep_asking, args=(address, question, ended), daemon=True).start()
                time.sleep(3)
            converse(page, ("Why is the sky blue?", "And why is it red in the evening?"))
            take(page)
    finally:
        ended.set()
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
