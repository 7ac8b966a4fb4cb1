#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page at `/` of `kvern serve`, in a real browser. 77: there is none."""

import pathlib
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "page"))

import browser
import serving
from serving import Server

MESSAGES = "document.querySelectorAll('.message.assistant')"
LAST = f"[...{MESSAGES}].at(-1)"
STRIPS = "[...document.querySelectorAll('.row:not(.gone) canvas.strip')]"
# Not innerText: entries that no frame has shown yet (content-visibility) have none.
TREE = "document.getElementById('tree').textContent"
LIVE = "document.getElementById('health').textContent === 'live'"


class PageCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser(serving.PATIENCE)
        cls.addClassCleanup(cls.browser.close)

    def open(self, server, **media):
        page = self.browser.open(server.url + "/", 1280, 860, **media)
        self.addCleanup(page.close)
        return page

    def say(self, page, text):
        page.value("document.getElementById('input').focus()")
        page.type(text)
        page.press("Enter")

    def answer(self, page, number):
        """The text of an answer that is whole, and what is said below it."""
        page.wait(f"{MESSAGES}.length === {number} && {LAST}.querySelector('.facts')")
        return (page.value(f"{LAST}.querySelector('.said').innerText"),
                page.value(f"{LAST}.querySelector('.facts').innerText"))


class Conversations(PageCase):
    def test_two_turns_by_keyboard(self):
        with Server("chain") as server:
            page = self.open(server)
            page.wait(LIVE)
            self.assertIn("chain", page.value("document.getElementById('model').textContent"))
            self.say(page, "What does a hand mill grind?")
            text, facts = self.answer(page, 1)
            self.assertEqual(text, "café!")
            self.assertIn("none reused", facts)
            self.say(page, "And why?")
            text, facts = self.answer(page, 2)
            self.assertEqual(text, "café!")
            self.assertRegex(facts, r"\d+ of \d+ prompt tokens reused")
            page.wait("document.querySelector('#tree .hits')")
            self.assertIn("What does a hand m", page.value(TREE))
            self.assertEqual(list(page.complaints()), [])

    def test_the_answer_is_that_of_the_interface(self):
        with Server("random", "-n", "30", "--seed", "7", "--temp", "0.9") as server:
            page = self.open(server)
            page.wait(LIVE)
            self.say(page, "hi")
            page.wait(f"{LAST}?.querySelector('.facts')")
            said = page.value(f"{LAST}.querySelector('.said').innerText")
            wanted = server.chat("hi").json()["choices"][0]["message"]["content"]
            # What a page shows has no spaces at its ends, and marks of code are no text.
            plain = "".join(wanted.replace("`", "").replace("*", "").split())
            self.assertEqual("".join(said.replace("`", "").replace("*", "").split()), plain)

    def test_it_streams_and_the_picture_follows(self):
        with Server("long", "--parallel", "2") as server:
            page = self.open(server, prefers_reduced_motion="reduce")
            page.wait(LIVE)
            self.assertIn("No row is there", page.value("document.getElementById('cache').innerText"))
            self.say(page, "count")
            page.wait(f"{LAST}?.getAttribute('aria-busy') === 'true' && {LAST}.innerText.length > 100")
            partly = page.value(f"{LAST}.innerText.length")
            page.wait(f"{STRIPS}.length === 1")
            early = page.value(f"{STRIPS}[0].getAttribute('aria-label')")
            self.assertRegex(early, r"\d+ pages? computed.* of room")
            page.wait(f"{STRIPS}[0].getAttribute('aria-label') !== {serving.json.dumps(early)}")
            self.assertIn("yours", page.value("document.getElementById('rows').innerText"))
            page.wait("Number(document.getElementById('speed').textContent.replace(',', '')) > 0")
            self.assertGreater(page.value(f"{LAST}.innerText.length"), partly)
            page.press("Escape")
            _, facts = self.answer(page, 1)
            self.assertIn("stopped", facts)
            server.wait_until_idle()
            page.wait("document.querySelectorAll('.row:not(.gone)').length === 0")
            page.wait("document.querySelectorAll('#tree .node').length > 0")
            self.assertEqual(list(page.complaints()), [])

    def test_a_model_without_a_template(self):
        with Server("plain", "-n", "8") as server:
            page = self.open(server)
            page.wait(f"{LIVE} && document.getElementById('input').placeholder.includes('goes on with')")
            self.say(page, "cafe")
            self.assertIn("4 prompt tokens", self.answer(page, 1)[1])

    def test_leaving_frees_the_row(self):
        with Server("long") as server:
            page = self.browser.open(server.url + "/")
            page.wait(LIVE)
            self.say(page, "count")
            page.wait(f"{LAST}?.innerText.length > 100")
            page.close()
            server.wait_until_idle()


class Refusals(PageCase):
    def test_a_prompt_that_is_too_long(self):
        with Server("random") as server:
            page = self.open(server)
            page.wait(LIVE)
            self.say(page, "z" * 1000)
            page.wait("document.querySelector('.failure')")
            words = page.value("document.querySelector('.failure').innerText")
            self.assertIn("refused", words)
            self.assertIn("512", words)

    def test_a_key(self):
        with open(serving.path("page-keys"), "w", encoding="utf-8") as file:
            file.write("open-sesame\n")
        with Server("chain", "--api-keys", serving.path("page-keys")) as server:
            page = self.open(server)
            page.wait("document.getElementById('health').textContent === 'no key'")
            page.click("#notice button")
            page.wait("document.activeElement.name === 'key'")
            page.type("open-sesame")
            page.press("Enter")
            page.wait(LIVE)
            self.say(page, "hello, you mill that grinds")
            self.assertEqual(self.answer(page, 1)[0], "café!")
            page.wait("document.querySelectorAll('#tree .node').length > 0")
            self.assertNotIn("mill", page.value(TREE))

    def test_a_server_that_ends(self):
        with Server("chain") as server:
            page = self.open(server)
            page.wait(LIVE)
            server.process.terminate()
            self.assertEqual(server.process.wait(serving.PATIENCE), 0)
            page.wait("document.getElementById('health').textContent === 'no answer'")
            self.say(page, "hi")
            page.wait("document.querySelector('.failure')")
            self.assertIn("does not answer", page.value("document.querySelector('.failure').innerText"))


if __name__ == "__main__":
    if not browser.found():
        print("skipped: there is no chromium; tools/setup test installs it")
        sys.exit(77)
    serving.main()
