"""Damaged robot files: bytes that were cut, moved, doubled or replaced by what parsers stumble over."""

import re

WORDS = [
    b"nan",
    b"-1",
    b"1e400",
    b"1e30",
    b"-1e-30",
    b"0",
    b"",
    b"\xff",
    b"<",
    b'"',
    b"<link/>",
    b"base",
    b"&e;",
    b"&#0;",
    b"thumb",
    b"\xfe\xff",
    b"world",
]
WHOLE = [
    lambda data: b'<!DOCTYPE r [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;&a;">]>' + data,
    lambda data: data.decode("latin1").encode("utf-16"),
    lambda data: data.replace(b"?>", b' encoding="ascii"?>', 1) + "\u00e9".encode(),
    lambda data: data * 2,
    lambda data: b"",
    lambda data: b"<a>" * 2000 + data,
]
NUMBER, NAME, TAG = (
    re.compile(rb'(?<=[" >])-?\d+\.?\d*(e-?\d+)?(?=[" <])'),
    re.compile(rb'name="[^"]*"'),
    re.compile(rb"</?[a-z_]+"),
)


def mutated(whole, dice):
    """Returns a mutation of a file.

    Args:
        whole: its bytes.
        dice: `random.Random`.
    """
    way = dice.randrange(8)
    if way == 0:  # Truncated.
        return whole[: dice.randrange(len(whole))]
    if way == 1:  # Replaced.
        at, length = dice.randrange(len(whole)), dice.choice((0, 1, 5, 200))
        return whole[:at] + dice.choice(WORDS) + whole[at + length :]
    if way == 2:  # Another number.
        at = dice.choice(list(NUMBER.finditer(whole)))
        return whole[: at.start()] + dice.choice(WORDS[:6]) + whole[at.end() :]
    if way == 3:  # One name for another: duplicated names, unknown ones, circles.
        one, other = (dice.choice(list(NAME.finditer(whole))) for _ in range(2))
        return whole[: one.start()] + other.group(0) + whole[one.end() :]
    if way == 4:  # Unknown elements.
        at = dice.choice(list(TAG.finditer(whole)))
        return whole[: at.start()] + at.group(0)[:-1] + whole[at.end() :]
    if way == 5:  # Lines in another order, which moves elements into others.
        lines = whole.split(b"\n")
        at, to = dice.randrange(len(lines)), dice.randrange(len(lines))
        lines.insert(to, lines.pop(at))
        return b"\n".join(lines)
    if way == 6:  # A line again.
        lines = whole.split(b"\n")
        return b"\n".join([*lines[: (at := dice.randrange(len(lines)))], lines[at], *lines[at:]])
    return dice.choice(WHOLE)(whole)
