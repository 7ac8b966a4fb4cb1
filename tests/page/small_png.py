# SPDX-License-Identifier: MIT
"""Makes a picture of a page small: its most frequent 256 colours, and the nearest of them for the others.

small_png.write(data, path)     data: a PNG of 8 bits a channel, as browsers make them
"""

import collections
import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunks(data):
    at = len(SIGNATURE)
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        at += size + 12


def paeth(left, up, corner):
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))


def unfiltered(line, before, kind, step):
    """One line of a picture (PNG specification, section 9)."""
    out = bytearray(line)
    for i, byte in enumerate(line):
        left, corner = (out[i - step], before[i - step]) if i >= step else (0, 0)
        up = before[i]
        out[i] = (byte + (0, left, up, (left + up) // 2, paeth(left, up, corner))[kind]) & 255
    return out


def pixels(data):
    """(width, height, colours line by line as (r, g, b))."""
    header = next(body for kind, body in chunks(data) if kind == b"IHDR")
    width, height, depth, colour = struct.unpack(">IIBB", header[:10])
    step = {2: 3, 6: 4}[colour]
    assert depth == 8
    raw = zlib.decompress(b"".join(body for kind, body in chunks(data) if kind == b"IDAT"))
    line, all_lines, size = bytes(width * step), [], width * step + 1
    for y in range(height):
        line = unfiltered(raw[y * size + 1 : (y + 1) * size], line, raw[y * size], step)
        all_lines.append(list(zip(line[0::step], line[1::step], line[2::step])))
    return width, height, all_lines


def nearest(colour, palette):
    return min(range(len(palette)), key=lambda i: sum((a - b) ** 2 for a, b in zip(colour, palette[i])))


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def write(data, path):
    width, height, lines = pixels(data)
    counts = collections.Counter(colour for line in lines for colour in line)
    palette = [colour for colour, _ in counts.most_common(256)]
    index = {colour: nearest(colour, palette) for colour in counts}
    raw = b"".join(b"\0" + bytes(index[colour] for colour in line) for line in lines)
    with open(path, "wb") as file:
        file.write(SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)))
        file.write(chunk(b"PLTE", bytes(value for colour in palette for value in colour)))
        file.write(chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))
