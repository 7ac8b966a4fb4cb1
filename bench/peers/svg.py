# SPDX-License-Identifier: MIT
"""Line charts and bar charts as SVG: no more than the report needs."""

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 170, 40, 50
COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8d5a97", "#c77d0a", "#4f5d75", "#00798c", "#a23b72")


class Chart:
    """A white sheet with a title; coordinates of the plot begin at its lower left corner."""

    def __init__(self, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            'font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        ]
        self.width, self.height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        self.text(LEFT, 22, title, size=14)

    def text(self, x, y, text, anchor="start", size=12, turn=None):
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn is not None else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#222222"{turned}>'
            f"{escape(text)}</text>"
        )

    def line(self, x1, y1, x2, y2, colour="#cccccc", width=1.0, dash=""):
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}"' + (f' stroke-dasharray="{dash}"' if dash else "") + "/>"
        )

    def legend(self, index, name, colour, dash=""):
        y = TOP + 10 + 18 * index
        self.line(WIDTH - RIGHT + 12, y, WIDTH - RIGHT + 36, y, colour, 3, dash)
        self.text(WIDTH - RIGHT + 42, y + 4, name)

    def end(self):
        return "\n".join([*self.parts, "</svg>"]) + "\n"


class Axis:
    """Maps values to a length, in logarithms or from 0 on."""

    def __init__(self, values, length, log):
        low, high = min(values), max(values)
        self.length, self.log = length, log
        if log:
            self.low, self.high = math.log2(low), math.log2(high)
            if self.high - self.low < 1:
                self.low, self.high = self.low - 0.5, self.high + 0.5
        else:
            self.low, self.high = 0.0, high * 1.08 or 1.0

    def at(self, value):
        place = math.log2(value) if self.log else value
        return (place - self.low) / (self.high - self.low) * self.length

    def ticks(self):
        if self.log:
            first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
            step = max(1, (last - first + 6) // 7)
            return [2.0**power for power in range(first, last + 1, step)]
        step = 10 ** math.floor(math.log10(self.high / 4))
        while self.high / step > 8:
            step *= 2.5 if self.high / step > 20 else 2
        return [step * i for i in range(int(self.high / step) + 1)]


def number(value):
    """A label of a tick."""
    if value >= 1024 and value % 1024 == 0:
        return f"{value / 1024:g}k"
    return f"{value:.4g}"


def draw_axes(chart, x, y, x_label, y_label, x_ticks, y_ticks=None):
    """Grid lines and labels. `x` may be None: then the caller labels that side."""
    for tick in y_ticks or y.ticks():
        height = TOP + chart.height - y.at(tick)
        chart.line(LEFT, height, LEFT + chart.width, height)
        chart.text(LEFT - 6, height + 4, number(tick), "end")
    if x:
        for tick in x_ticks:
            chart.text(LEFT + x.at(tick), TOP + chart.height + 18, number(tick), "middle")
    chart.line(LEFT, TOP + chart.height, LEFT + chart.width, TOP + chart.height, "#222222")
    chart.text(LEFT + chart.width / 2, HEIGHT - 10, x_label, "middle")
    chart.text(18, TOP + chart.height / 2, y_label, "middle", turn=-90)


def lines(title, x_label, y_label, series, log=True):
    """A line chart. `series` is a list of (name, [(x, y), ...], dashed)."""
    chart = Chart(title)
    xs = sorted({x for _, points, _ in series for x, _ in points})
    x = Axis(xs, chart.width, log)
    y = Axis([value for _, points, _ in series for _, value in points], chart.height, log)
    draw_axes(chart, x, y, x_label, y_label, xs)
    for index, (name, points, dashed) in enumerate(series):
        colour, dash = COLOURS[index % len(COLOURS)], "6 4" if dashed else ""
        places = [(LEFT + x.at(a), TOP + chart.height - y.at(b)) for a, b in sorted(points)]
        for (x1, y1), (x2, y2) in zip(places, places[1:]):
            chart.line(x1, y1, x2, y2, colour, 2, dash)
        for place in places:
            chart.parts.append(f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="3.5" fill="{colour}"/>')
        chart.legend(index, name, colour, dash)
    return chart.end()


def decades(low, high):
    """Powers of ten, and their doubles and halves where they are few, that lie between."""
    steps = (1, 2, 5) if high / low < 100 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for power in powers for step in steps if low <= (tick := step * 10.0**power) <= high]


# Where a label may stand beside its point: to the right, to the left, above, below, further away.
LABEL_PLACES = ((7, 4, "start"), (-7, 4, "end"), (0, -8, "middle"), (0, 16, "middle"), (7, -8, "start"),
                (7, 16, "start"), (-7, -8, "end"), (-7, 16, "end"))


def label_box(place, text, x, y):
    """Left, top, right, bottom of a text of 11 units beside a point."""
    dx, dy, anchor = place
    wide = 6.2 * len(text)
    left = x + dx - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
    return left, y + dy - 9, left + wide, y + dy + 2


def draw_labels(chart, labels):
    """Texts beside points, (text, x, y): each where it covers nothing before it, if there is such a place."""
    taken = [(x - 4, y - 4, x + 4, y + 4) for _, x, y in labels]
    for text, x, y in labels:
        boxes = [label_box(place, text, x, y) for place in LABEL_PLACES]
        covered = [sum(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in taken)
                   + (a[2] > LEFT + chart.width + RIGHT) for a in boxes]
        best = covered.index(min(covered))
        dx, dy, anchor = LABEL_PLACES[best]
        taken.append(boxes[best])
        chart.text(x + dx, y + dy, text, anchor, 11)


def points(title, x_label, y_label, series, x_ticks):
    """Labelled points, both axes in logarithms. `series` is a list of (name, [(label, x, y), ...])."""
    chart = Chart(title)
    every = [point for _, some in series for point in some]
    x = Axis([point[1] for point in every], chart.width, True)
    y = Axis([point[2] for point in every], chart.height, True)
    low, high = (2.0**edge for edge in (x.low, x.high))
    draw_axes(chart, x, y, x_label, y_label, [tick for tick in x_ticks if low <= tick <= high],
              decades(2.0**y.low, 2.0**y.high))
    labels = []
    for index, (name, some) in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        for label, a, b in some:
            labels.append((label, LEFT + x.at(a), TOP + chart.height - y.at(b)))
            chart.parts.append(f'<circle cx="{labels[-1][1]:.1f}" cy="{labels[-1][2]:.1f}" r="4" fill="{colour}"/>')
        chart.legend(index, name, colour)
    draw_labels(chart, labels)
    return chart.end()


def bars(title, x_label, y_label, groups, names):
    """A bar chart. `groups` is a list of (label, [value or None per name])."""
    chart = Chart(title)
    y = Axis([value for _, values in groups for value in values if value is not None], chart.height, False)
    draw_axes(chart, None, y, x_label, y_label, [])
    room = chart.width / len(groups)
    wide = room * 0.8 / len(names)
    for place, (label, values) in enumerate(groups):
        left = LEFT + place * room + room * 0.1
        for index, value in enumerate(values):
            if value is not None:
                height = y.at(value)
                chart.parts.append(
                    f'<rect x="{left + index * wide:.1f}" y="{TOP + chart.height - height:.1f}" '
                    f'width="{wide * 0.92:.1f}" height="{height:.1f}" fill="{COLOURS[index % len(COLOURS)]}"/>'
                )
        chart.text(left + room * 0.4, TOP + chart.height + 18, label, "middle", 11)
    for index, name in enumerate(names):
        chart.legend(index, name, COLOURS[index % len(COLOURS)])
    return chart.end()
