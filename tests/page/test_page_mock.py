#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page at `/` alone, in a real browser, with invented servers: tests/page/mock_server.py.

    tests/page/test_page_mock.py [-v] [NAME]...

77: there is no browser. KVERN_BROWSER names another one than chromium.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import browser
import mock_server

ROOT = pathlib.Path(__file__).parents[2]
MESSAGES = "document.querySelectorAll('.message.assistant')"
LAST = f"[...{MESSAGES}].at(-1)"
DONE = f"{LAST}?.querySelector('.facts')"
# Texts whose contrast with what lies behind them is below WCAG's AA, as [text, ratio].
FAINT = """(() => {
    const parse = (c) => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
    const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) =>
        v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
    const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
        if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
    const faint = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node; node = walker.nextNode();) {
        const e = node.parentElement, style = getComputedStyle(e);
        if (!node.data.trim() || !e.checkVisibility() || e.closest('script, style, .unseen, .gone')) continue;
        const [a, b] = [light(parse(style.color)), light(behind(e))].sort((x, y) => y - x);
        const ratio = (a + .05) / (b + .05), large = parseFloat(style.fontSize) >= 24;
        if (ratio < (large ? 3 : 4.5)) faint.push([node.data.trim().slice(0, 40), ratio.toFixed(2)]);
    }
    return faint;
})()"""
# What sticks out to the right of the window, scrollers' contents left out.
WIDE = """(() => {
    const out = [...document.body.querySelectorAll('*')].filter((e) => e.checkVisibility()
        && !e.closest('.unseen, pre, .skip') && e.getBoundingClientRect().right > innerWidth + .5);
    // Nor does a text stick out of its box.
    const sticksOut = (e) => e.checkVisibility() && e.clientWidth && e.scrollWidth > e.clientWidth + 1
        && getComputedStyle(e).overflowX === 'visible' && !e.matches('#store, #tree-part');
    out.push(...[...document.body.querySelectorAll('.card, .card *, .message, .button')].filter(sticksOut));
    const page = document.scrollingElement.scrollWidth > innerWidth ? ['the page'] : [];
    return out.map((e) => `${e.tagName}#${e.id}.${e.className}`).concat(page);
})()"""


def policy():
    """The Content-Security-Policy that the build writes for this page."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "page_data.c")
        page = ROOT / "server/page/index.html"
        subprocess.run(["cmake", f"-DPAGE={page}", f"-DOUT={out}", "-P", ROOT / "cmake/page.cmake"], check=True)
        return re.search(r'policy\[\] =\s+"(.*)"', out.read_text(encoding="utf-8")).group(1)


class PageCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser()
        cls.policy = policy()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def setUp(self):
        self.mock = mock_server.Mock(self.policy)
        threading.Thread(target=self.mock.serve_forever, daemon=True).start()
        self.expected = []  # parts of complaints that belong to a test

    def tearDown(self):
        if hasattr(self, "page"):
            for complaint in self.page.complaints():
                self.assertTrue(any(part in complaint for part in self.expected), complaint)
            self.page.close()
        self.mock.goes_on.set()
        self.mock.shutdown()
        self.mock.server_close()

    def open(self, width=1280, height=800, **media):
        self.page = self.browser.open(self.mock.address, width, height, **{"prefers_color_scheme": "light", **media})
        self.page.wait("document.getElementById('health').textContent === 'live'")
        return self.page

    def say(self, text):
        self.page.value("document.getElementById('input').focus()")
        self.page.type(text)
        self.page.press("Enter")

    def failure(self):
        return self.page.wait("document.querySelector('.failure')") and self.page.value(
            "document.querySelector('.failure').innerText"
        )


class Chat(PageCase):
    def test_an_answer_streams_in(self):
        page = self.open()
        self.mock.holds_after = 12
        self.say("Why is the sky blue?")
        page.wait(f"{LAST}?.getAttribute('aria-busy') === 'true' && {LAST}.innerText.length > 40")
        partly = page.value(f"{LAST}.querySelector('.said').innerText")
        self.mock.goes_on.set()
        page.wait(DONE)
        text = page.value(f"{LAST}.querySelector('.said').innerText")
        self.assertLess(len(partly), len(text))
        self.assertIn("scatters short waves", text)
        self.assertEqual(page.value(f"{LAST}.querySelector('pre').innerText"), "intensity ~ 1 / wavelength^4")
        self.assertIsNone(page.value(f"{LAST}.getAttribute('aria-busy')"))
        self.assertIn("34 prompt tokens, none reused", page.value(f"{LAST}.innerText"))
        body = self.mock.asked[0]
        self.assertEqual(body["messages"], [{"role": "user", "content": "Why is the sky blue?"}])
        self.assertTrue(body["stream"] and body["stream_options"]["include_usage"])
        self.assertEqual(set(body), {"messages", "stream", "stream_options", "model"})

    def test_sentences_are_announced_whole(self):
        page = self.open()
        self.say("Why?")
        page.wait(DONE)
        spoken = page.value("[...document.querySelectorAll('#spoken p')].map((p) => p.textContent)")
        self.assertGreater(len(spoken), 1)
        self.assertEqual("".join("".join(spoken).split()), "".join(mock_server.ANSWER.split()))

    def test_a_second_turn_tells_what_was_reused(self):
        page = self.open()
        for number, text in enumerate(("Why?", "And then?"), 1):
            self.say(text)
            page.wait(f"{MESSAGES}.length === {number} && {DONE}")
        self.assertIn("20 of 34 prompt tokens reused", page.value(f"{LAST}.innerText"))
        self.assertEqual([m["role"] for m in self.mock.asked[1]["messages"]], ["user", "assistant", "user"])
        self.assertEqual(self.mock.asked[1]["messages"][1]["content"], mock_server.ANSWER)

    def test_what_a_model_says_is_text(self):
        page = self.open()
        self.mock.answer = (
            "<img src=x onerror=alert(1)> <b>bold</b>\n```html\n<script>alert(2)</script>\n```\n`<i>` **<u>**"
        )
        self.say("<h1>Hello</h1>")
        page.wait(DONE)
        self.assertEqual(
            page.value(
                "document.querySelectorAll('.message img, .message b, .message i, .message h1, .said u').length"
            ),
            0,
        )
        self.assertIn("<img src=x onerror=alert(1)> <b>bold</b>", page.value(f"{LAST}.innerText"))
        self.assertIn("<h1>Hello</h1>", page.value("document.querySelector('.message.user').innerText"))

    def test_escape_stops_an_answer(self):
        page = self.open()
        self.mock.answer, self.mock.pause = "word " * 3000, 0.02
        self.say("Go on and on.")
        page.wait(f"{LAST}?.innerText.length > 60")
        self.assertFalse(page.value("document.getElementById('stop').hidden"))
        page.press("Escape")
        page.wait(DONE)
        self.assertIn("stopped", page.value(f"{LAST}.innerText"))
        self.assertTrue(self.mock.gone.wait(60), "the connection was not closed")
        self.assertFalse(page.value("document.getElementById('send').hidden"))
        self.say("Once more.")
        page.wait(f"{MESSAGES}.length === 2")
        page.click("#stop")
        page.wait("!document.getElementById('send').hidden")

    def test_the_last_message_is_changed(self):
        page = self.open()
        self.say("First")
        page.wait(DONE)
        page.press("ArrowUp")
        self.assertEqual(page.value("document.getElementById('input').value"), "First")
        self.assertEqual(page.value("document.querySelectorAll('.message').length"), 0)
        page.type(", changed")
        page.press("Enter")
        page.wait(DONE)
        self.assertEqual(self.mock.asked[1]["messages"], [{"role": "user", "content": "First, changed"}])

    def test_a_new_conversation_forgets(self):
        page = self.open()
        self.say("First")
        page.wait(DONE)
        page.click("#new")
        page.wait("document.querySelectorAll('.message').length === 0 && !document.getElementById('welcome').hidden")
        self.say("Second")
        page.wait(DONE)
        self.assertEqual(len(self.mock.asked[1]["messages"]), 1)

    def test_a_model_without_a_template_goes_on_with_texts(self):
        self.mock.scene = lambda second: mock_server.cache(chats=False)
        page = self.open()
        self.assertEqual(
            page.value("document.getElementById('input').placeholder"), "A text that the model goes on with"
        )
        for number, text in enumerate(("Once upon ", " And"), 1):
            self.say(text)
            page.wait(f"{MESSAGES}.length === {number} && {DONE}")
        self.assertIn("scatters short waves", page.value(f"{LAST}.innerText"))
        self.assertEqual(self.mock.asked[0]["prompt"], "Once upon ")
        self.assertEqual(self.mock.asked[1]["prompt"], f"Once upon {mock_server.ANSWER} And")
        self.assertNotIn("messages", self.mock.asked[1])

    def test_shift_enter_is_a_new_line(self):
        page = self.open()
        page.type("a")
        page.press("Enter", shift=True)
        page.type("b")
        self.assertEqual(page.value("document.getElementById('input').value"), "a\nb")
        self.assertEqual(self.mock.asked, [])

    def test_settings_go_with_the_request(self):
        page = self.open()
        page.click("#open-settings")
        for name, value in (("temperature", "0.5"), ("seed", "7"), ("system", "Be brief.")):
            page.value(f"document.getElementById('settings-form').elements.{name}.focus()")
            page.type(value)
        page.click("#settings-form [type=submit]")
        self.say("Why?")
        page.wait(DONE)
        body = self.mock.asked[0]
        self.assertEqual((body["temperature"], body["seed"]), (0.5, 7))
        self.assertEqual(body["messages"][0], {"role": "system", "content": "Be brief."})
        self.assertNotIn("top_p", body)
        page.go(self.mock.address)
        self.assertIn("seed 7", page.value("document.getElementById('sampling').textContent"))


class Failures(PageCase):
    def test_refusals_in_words(self):
        page = self.open()
        self.expected = ["Failed to load resource"]
        for status, headers, words in (
            (429, {"Retry-After": "3"}, "try again in 3 seconds"),
            (400, {}, "The prompt has 9000 tokens"),
            (500, {}, "The server failed"),
        ):
            self.mock.refuse = (status, headers, "The prompt has 9000 tokens, the context 8192.")
            self.say("Why?")
            self.assertIn(words, self.failure())
            page.value("document.querySelector('.failure').remove()")
        self.mock.refuse = None
        self.say("Why?")
        page.wait(DONE)
        # What was refused is not said again.
        self.assertEqual(len(self.mock.asked[-1]["messages"]), 1)

    def test_try_again(self):
        page = self.open()
        self.expected = ["Failed to load resource"]
        self.mock.refuse = (503, {}, "The server ends.")
        self.say("Why?")
        self.assertIn("The server ends.", self.failure())
        self.mock.refuse = None
        page.click(".failure button")
        page.wait(DONE)
        self.assertFalse(page.value("document.querySelector('.failure') !== null"))

    def test_an_answer_that_breaks_off(self):
        page = self.open()
        self.mock.breaks_after = 5
        self.say("Why?")
        self.assertIn("broke off", self.failure())
        self.assertIn("The sky is blue", page.value(f"{LAST}.innerText"))

    def test_a_key_is_asked_for(self):
        self.mock.key = "secret"
        self.expected = ["Failed to load resource"]
        self.page = self.browser.open(self.mock.address)
        page = self.page
        page.wait("document.getElementById('health').textContent === 'no key'")
        self.say("Why?")
        self.assertIn("wants an API key", self.failure())
        page.click(".failure button")
        page.wait("document.activeElement.name === 'key'")
        page.type("secret")
        page.press("Enter")
        page.wait("document.getElementById('health').textContent === 'live'")
        page.click(".failure button:last-child")
        page.wait(DONE)

    def test_a_server_that_fails_is_asked_seldom(self):
        page = self.open()
        self.expected = ["Failed to load resource"]
        self.mock.cache_status = 500
        page.wait("!document.getElementById('notice').hidden")
        self.assertIn("Asked again in", page.value("document.getElementById('notice').innerText"))
        before = self.mock.looks
        time.sleep(3)
        self.assertLessEqual(self.mock.looks - before, 2)
        self.mock.cache_status = 200
        page.wait("document.getElementById('notice').hidden")

    def test_nobody_looks_nobody_asks(self):
        page = self.open()
        hide = """Object.defineProperty(document, 'hidden', {value: %s, configurable: true});
            document.dispatchEvent(new Event('visibilitychange'))"""
        page.value(hide % "true")
        before = None
        while before != self.mock.looks:  # a last look may be on its way
            before = self.mock.looks
            time.sleep(1)
        time.sleep(2)
        self.assertEqual(self.mock.looks, before)
        page.value(hide % "false")
        until = time.monotonic() + 60
        while self.mock.looks == before and time.monotonic() < until:
            time.sleep(0.05)
        self.assertGreater(self.mock.looks, before)


class Cache(PageCase):
    def test_strips_tell_their_pages(self):
        self.mock.scene = lambda second: mock_server.cache(
            [
                mock_server.row(
                    1,
                    "decode",
                    700,
                    1000,
                    shared_tokens=256,
                    **{"from": "memory"},
                    why="nothing that is kept begins the same for longer",
                )
            ],
            [
                mock_server.layer(layers=5, window=128),
                mock_server.layer(layers=13, storage="full:h3:k64=affine4g64:v64=affine4g64", residual=64),
            ],
        )
        page = self.open(prefers_reduced_motion="reduce")
        # 700 positions: 11 pages; the window of 128 begins in page 8; of 1000 there are 16 pages.
        page.wait("document.querySelectorAll('canvas.strip').length === 2")
        labels = page.value("[...document.querySelectorAll('canvas.strip')].map((c) => c.getAttribute('aria-label'))")
        self.assertIn(
            "5 layers, window 128: 8 pages passed by the window, 3 pages computed, 5 pages of room", labels[0]
        )
        self.assertIn(
            "4 pages taken over in 4.5 bits, quantized, 5 pages computed in 4.5 bits, quantized, 2 pages computed,"
            " 5 pages of room",
            labels[1],
        )
        self.assertIn("256 reused from memory", page.value("document.getElementById('rows').innerText"))

    def test_strips_are_read_by_keys(self):
        self.mock.scene = lambda second: mock_server.cache([mock_server.row(1, "decode", 700, 1000, shared_tokens=256)])
        page = self.open(prefers_reduced_motion="reduce")
        page.wait("document.querySelector('canvas.strip')")
        page.press("Tab")
        page.value("document.querySelector('canvas.strip').focus()")
        page.press("ArrowRight")
        words = page.wait("document.getElementById('detail').textContent")
        self.assertIn("Pages 5 to 11", words)
        self.assertEqual(page.value("document.getElementById('tip').innerText"), words)
        page.press("Escape")
        self.assertTrue(page.value("document.getElementById('tip').hidden"))

    def test_the_picture_is_drawn(self):
        self.mock.scene = lambda second: mock_server.cache([mock_server.row(1, "decode", 640, 1280, shared_tokens=256)])
        page = self.open(prefers_reduced_motion="reduce")
        page.wait("document.querySelector('canvas.strip')")
        colours = page.value("""(() => { const c = document.querySelector('canvas.strip'), g = c.getContext('2d');
            const width = Math.min(30, Math.floor(c.clientWidth / 20));
            return [0, 7, 15].map((p) => [...g.getImageData(p * width + 8, 20, 1, 1).data].join()); })()""")
        self.assertEqual(len(set(colours)), 3, colours)  # shared, own, room

    def test_prefixes_and_reasons(self):
        self.mock.scene = lambda second: mock_server.cache(store=mock_server.store(9, 60))
        page = self.open()
        page.wait("document.querySelectorAll('#tree .node').length > 9")
        # Not innerText: entries that no frame has shown yet (content-visibility) have none.
        text = page.value("document.getElementById('store').textContent")
        for words in (
            "63%",
            "You are a helpful assistant.",
            "18 hits",
            "nothing that is kept begins the same for longer",
            "2 found nothing",
        ):
            self.assertIn(words, text)
        page.value("document.querySelector('#tree [tabindex=\"0\"]').focus()")
        page.press("ArrowDown")
        self.assertEqual(page.value("document.activeElement.getAttribute('aria-level')"), "2")

    def test_what_is_on_disk(self):
        disk = {"budget_bytes": 0, "bytes": 2500000, "entries": 3, "lookups": 8, "full_hits": 1, "partial_hits": 2}
        self.mock.scene = lambda second: mock_server.cache(
            store=mock_server.store(1, 8), disk={**disk, "misses": 5, "tokens_lent": 700, "why": {}}
        )
        page = self.open()
        page.wait("!document.getElementById('disk').hidden")
        self.assertEqual(
            page.value("document.getElementById('disk').textContent"),
            "On disk: 3 entries, 2.5 MB; 3 of 8 lookups found something, 700 tokens came from there.",
        )

    def test_latencies_are_those_of_the_metrics(self):
        page = self.open()
        page.wait("document.getElementById('speed-more').textContent.includes('first')")
        words = page.value("document.getElementById('speed-more').textContent").replace("\xa0", " ")
        self.assertIn("first in 120 ms, others in 8.5 ms", words)

    def test_empty_states_say_something(self):
        for told, words in (
            (mock_server.cache(), "keeps no prefixes"),
            (mock_server.cache(store=mock_server.store(0, 0)), "Nothing is kept yet"),
        ):
            self.mock.scene = lambda second, told=told: told
            page = self.open()
            text = page.value("document.getElementById('cache').innerText")
            self.assertIn(words, text)
            self.assertIn("Send a message", text)

    def test_the_legend_has_what_there_is(self):
        shown = (
            "[...document.querySelectorAll('#legend li')].filter((e) => e.checkVisibility()).map((e) => e.textContent)"
        )
        self.mock.scene = lambda second: mock_server.cache()
        self.assertEqual(self.open().value(shown), ["computed page", "page taken over", "room"])
        self.mock.scene = mock_server.busy
        self.page.wait(f"{shown}.length === 5")

    def test_a_cache_that_tells_little(self):
        self.mock.scene = lambda second: {
            "rows": [{"id": "1", "length": 100}],
            "store": {"entries": 3, "lookups": 1, "bytes": 5},
            "odd": [1],
        }
        page = self.open()
        page.wait("document.querySelector('canvas.strip')")
        self.assertIn("100 positions", page.value("document.getElementById('rows').innerText"))

    def test_much_stays_fluid(self):
        self.mock.scene = mock_server.huge
        page = self.open()
        page.wait(
            "document.querySelectorAll('#tree .node').length > 400"
            " && document.querySelectorAll('canvas.strip').length === 64"
        )
        # Time of the processor, which does not grow when the machine has other work.
        page.call("Performance.enable", timeDomain="threadTicks")
        before = page.work()
        time.sleep(4)
        self.assertLess(page.work() - before, 1.6)


class Appearance(PageCase):
    def fill(self, **media):
        self.mock.scene = mock_server.busy
        page = self.open(**media)
        self.expected = ["Failed to load resource"]
        self.say("Why is the sky blue?")
        page.wait(DONE)
        self.mock.refuse = (429, {}, "The queue is full.")
        self.say("And now?")
        self.failure()
        return page

    def test_contrast(self):
        for scheme in ("light", "dark"):
            page = self.fill(prefers_color_scheme=scheme, width=1400, height=900)
            self.mock.refuse = None
            self.assertEqual(page.value("document.documentElement.hasAttribute('data-dark')"), scheme == "dark")
            self.assertEqual(page.value(FAINT), [], scheme)
            page.click("#open-settings")
            self.assertEqual(page.value(FAINT), [], scheme)

    def test_the_switch_of_themes(self):
        page = self.open(prefers_color_scheme="dark")
        seen = []
        for _ in range(3):
            page.click("#theme")
            seen.append(
                (
                    page.value("document.getElementById('theme').getAttribute('aria-label')"),
                    page.value("document.documentElement.hasAttribute('data-dark')"),
                )
            )
        self.assertEqual(seen, [("Theme: light", False), ("Theme: dark", True), ("Theme: automatic", True)])
        page.media(prefers_color_scheme="light")
        page.wait("!document.documentElement.hasAttribute('data-dark')")

    def test_no_width_overflows(self):
        page = self.fill()
        for width in (320, 360, 414, 600, 768, 899, 900, 1024, 1440, 2560):
            page.size(width, 740, mobile=width < 600)
            for view in ("chat", "cache"):
                if page.value("document.querySelector('.views').checkVisibility()"):
                    page.click(f"#tab-{view}")
                self.assertEqual(page.value(WIDE), [], f"{width} {view}")
        page.size(360, 640, mobile=True)
        page.click("#open-settings")
        self.assertEqual(page.value(WIDE), [])

    def test_everything_has_a_name(self):
        page = self.fill()
        page.type("Hello")
        names = list(page.names())
        self.assertGreater(len(names), 15)
        self.assertEqual([role for role, name in names if not name.strip() and role not in ("RootWebArea",)], [])
        for name in ("Message", "Send", "Settings", "New conversation", "Theme: automatic", "Change the last message"):
            self.assertIn(name, [name for _, name in names])
        page.click("#open-settings")
        self.assertEqual([role for role, name in page.names() if not name.strip() and role != "RootWebArea"], [])

    def test_keys_reach_all_and_show_where(self):
        page = self.fill()
        page.value("document.activeElement.blur(); document.body.tabIndex = -1; document.body.focus()")
        reached = []
        for _ in range(60):
            page.press("Tab")
            at = page.value("""(() => { const e = document.activeElement; if (e === document.body) return null;
                const shown = e.id === 'input' ? e.parentElement : e, style = getComputedStyle(shown);
                const visible = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1;
                return [e.id || e.getAttribute('role') || e.textContent, visible]; })()""")
            if at is None or (reached and at[0] == reached[0]):
                break
            self.assertTrue(at[1], f"{at[0]} does not show that it has the focus")
            reached.append(at[0])
        for name in (
            "new",
            "theme",
            "open-settings",
            "scroll",
            "Change",
            "Try again",
            "input",
            "cache",
            "img",
            "treeitem",
        ):
            self.assertIn(name, reached)
        self.assertLess(reached.index("input"), reached.index("cache"))

    def test_reduced_motion(self):
        self.mock.answer, self.mock.holds_after = "word " * 400, 300
        page = self.open(prefers_reduced_motion="reduce")
        self.say("Go on.")
        page.wait(f"{LAST}?.innerText.length > 30")
        self.assertEqual(page.value("document.getAnimations().length"), 0)
        page.media(prefers_reduced_motion="no-preference", prefers_color_scheme="light")
        page.wait("document.getAnimations().length > 0")
        page.press("Escape")


if __name__ == "__main__":
    if not browser.found():
        print("skipped: there is no chromium; tools/setup test installs it")
        sys.exit(77)
    unittest.main()
