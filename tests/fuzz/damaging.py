"""Faults in bytes and in texts, drawn by a seed."""

import random
import re

SIZES = (0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, 0x10000, 10**12)


def words_of(data: bytes, at: int) -> int:
    """What four bytes are as a number: the way to a table, a vector's length, a count."""
    return int.from_bytes(data[at : at + 4], "little")


def field(data: bytes, at: int) -> int:
    """A place after another whose four bytes may be a count, or the way to a place in the file."""
    places = range(at & ~3, len(data) - 3, 4)
    return next((p for p in places[:4096] if 0 < words_of(data, p) < len(data) - p), at & ~3)


def damaged(data: bytes, draw: random.Random) -> bytes:
    """One to three faults: bits, bytes, sizes, a part twice, a part gone, an end gone.

    Half of them are near the beginning, where headers are; a field becomes a size, goes in a
    circle, or to where another one goes; a letter becomes no UTF-8.
    """
    held = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 3))):
        end = len(held) if draw.random() < 0.5 else min(len(held), 1024)
        at = draw.randrange(max(end, 1))
        match draw.randrange(11):
            case 7:
                at = field(held, at)
                held[at : at + 4] = (draw.choice(SIZES) & 0xFFFFFFFF).to_bytes(4, "little")
            case 8:
                at = field(held, at)
                back = draw.randrange(at + 1) - at
                held[at : at + 4] = (back & 0xFFFFFFFF).to_bytes(4, "little")
            case 9:
                at = field(held, at)
                other = field(held, draw.randrange(max(len(held), 1)))
                there = other + words_of(held, other) - at
                held[at : at + 4] = (there & 0xFFFFFFFF).to_bytes(4, "little")
            case 10:
                letters = [m.start() for m in re.finditer(rb"[A-Za-z_]{3,}", held)]
                if letters:
                    held[draw.choice(letters) + 1] = draw.choice((0xFF, 0xC0, 0, 0x80))
            case 0 if held:
                held[at] ^= 1 << draw.randrange(8)
            case 1:
                del held[at:]
            case 2:
                at &= ~3
                held[at : at + 4] = (draw.choice(SIZES) & 0xFFFFFFFF).to_bytes(4, "little")
            case 3:
                at &= ~7
                held[at : at + 8] = draw.choice(SIZES).to_bytes(8, "little")
            case 4:
                held[at:at] = held[at : at + draw.randint(1, 64)]
            case 5:
                del held[at : at + draw.randint(1, 64)]
            case _:
                other = draw.randrange(max(len(held), 1)) & ~3
                held[at & ~3 : (at & ~3) + 4] = held[other : other + 4]
    return bytes(held)


TOKEN = re.compile(r'%\w+|"[^"]*"|[A-Za-z_][\w.]*|-?\d+\.?\d*(?:e[+-]?\d+)?|\s+|.')
ODD = (
    "9**9**9**9", "1/0", "Max()", "s0 < 3", "-1", "0", "-0.0", "nan", "inf", "1e400", "None", "[]",
    "[0]", "[-1, -1]", "true", '"x"', "?", "9223372036854775807", "9223372036854775808", "1e-45",
    "tensor<f32>", "tensor<0xf32>", "tensor<?xf32>", "tensor<*xf32>", "tensor<2xi7>", "f16", "i64",
    "\0", "\u2028", "{", "}", "(", "<", ">", "//", "%0",
    "dense<1>", "@forward", "func.return", "loc(unknown)", "!quant.uniform<i8:f32, 0.0:0>",
)  # fmt: skip


TYPES = ("f32", "i64", "i8", "true", "false", "none", "aten")


def reworded(text: str, draw: random.Random) -> str:
    """One or two words gone, doubled, exchanged, or another of the text, or something odd."""
    words = TOKEN.findall(text)
    solid = [i for i, word in enumerate(words) if not word.isspace()]
    apt = [i for i in solid if words[i][0] in "%-0123456789" or words[i][:4] in TYPES]
    for _ in range(draw.choice((1, 1, 2))):
        a, b = draw.choice(apt if draw.random() < 0.7 else solid), draw.choice(solid)
        alike = [i for i in solid if words[i] and kind(words[i]) == kind(words[a] or "x")]
        match draw.randrange(9):
            case 0:
                words[a] = ""
            case 1:
                words[a] += " " + words[a]
            case 2:
                words[a], words[b] = words[b], words[a]
            case 3:
                words[a] = draw.choice(ODD)
            case _:
                words[a] = words[draw.choice(alike)]
    return "".join(words)


def kind(word: str) -> str:
    """What may stand in a word's place and still be a text: the same kind of word."""
    return "number" if word[0] in "-0123456789" else word[0] if word[0] in '%"' else "name"
