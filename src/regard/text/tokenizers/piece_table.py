"""Pieces of text found by their bytes, for a whole text at once: known pieces are never made into strings.

    "the cat\\n"  ->  bytes  ->  where pieces begin and how long they are  ->  64-bit keys  ->  their numbers

A piece of up to 8 bytes is its own key. One of up to 16 bytes has its second half mixed in: then key and first half are
compared, which together determine the second. So a number that is found is always the right one. Longer pieces,
and the rare one whose key another piece has, are never found here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regard.base.cuckoo import FACTORS, hash_keys, slot_of

MAX_KEY_BYTES = 16  # bytes of a piece with a key
# Bytes behind a piece are replaced by 0xFF, which UTF-8 does not use. By the piece's length, as signed numbers.
BEHIND = np.array([-1 << 8 * length for length in range(8)] + [0])
WHITE_OF_THREE_BYTES = [
    int.from_bytes(chr(code).encode())
    for code in (0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
]
NO_PIECE, TOO_LONG = -1, -2  # instead of the first 8 bytes: both contain bytes that UTF-8 does not use


class Pieces(NamedTuple):
    """The positions of a text's pieces in its bytes."""

    text: bytes
    starts: np.ndarray
    lengths: np.ndarray

    def strings(self, which: np.ndarray) -> list[str]:
        starts = self.starts[which]
        ends = starts + self.lengths[which]
        return [self.text[start:end].decode() for start, end in zip(starts.tolist(), ends.tolist())]


def cut_words(text: bytes) -> Pieces:
    """The pieces between white space, as `str.split` cuts; each line end is a piece."""
    symbols = np.frombuffer(text, np.uint8)
    line_end = symbols == ord("\n")
    white = np.ones(len(symbols) + 2, dtype=bool)  # with one before and one behind the text
    before, here, behind = white[:-2], white[1:-1], white[2:]
    np.logical_or(_white(symbols), symbols - np.uint8(0x1C) <= 3, out=here)  # U+001C … U+001F too
    (starts,) = ((before > here) | line_end).nonzero()
    (last,) = ((behind > here) | line_end).nonzero()
    return Pieces(text, starts, last - starts + 1)


def cut_spaced(text: bytes) -> Pieces:
    """Words with the white space before them, as byte pairs require; each line end is a piece."""
    symbols = np.frombuffer(text, np.uint8)
    line_end, white = symbols == ord("\n"), _white(symbols)
    start = line_end.copy()
    start[:1] = True
    start[1:] |= line_end[:-1] | (white[1:] > white[:-1])
    (starts,) = start.nonzero()
    return Pieces(text, starts, np.diff(starts, append=len(symbols)))


def _white(symbols: np.ndarray) -> np.ndarray:
    """A mask of the bytes that belong to white space (`tokenizer.WHITE`) or a line end; the last one is a line end."""
    white = (symbols - np.uint8(ord("\t")) <= 4) | (symbols == ord(" "))  # \t … \r: differences of bytes wrap around
    (two,) = (symbols == 0xC2).nonzero()  # the first byte of U+0085 and U+00A0
    two = two[np.isin(symbols[two + 1], (0x85, 0xA0))]
    (three,) = (symbols - np.uint8(0xE1) <= 2).nonzero()  # the first byte of all others
    three = three[np.isin(symbols[three[:, None] + [0, 1, 2]] @ [1 << 16, 1 << 8, 1], WHITE_OF_THREE_BYTES)]
    white[two] = white[two + 1] = white[three] = white[three + 1] = white[three + 2] = True
    return white


class PieceTable:
    """Pieces by their bytes. A piece's number is its place in `pieces`."""

    def __init__(self, pieces: Sequence[str]) -> None:
        encoded = [piece.encode() for piece in pieces]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        first, key = _keys(Pieces(b"".join(encoded), lengths.cumsum() - lengths, lengths))
        (numbers,) = (lengths <= MAX_KEY_BYTES).nonzero()
        keys, distinct = np.unique(key[numbers], return_index=True)
        numbers = numbers[distinct]
        self._slots = hash_keys(keys)
        self._keys = np.append(keys, 0)  # an empty slot holds the last index
        self._first = np.append(first[numbers], NO_PIECE)
        self._numbers = np.append(numbers, 0)

    def find(self, pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
        """The number of each piece, and the places of those that are not found."""
        first, key = _keys(pieces)
        index, (other,) = self._look(key, first, FACTORS[0])
        index[other], (missing,) = self._look(key[other], first[other], FACTORS[1])
        return self._numbers.take(index), other[missing]

    def _look(self, key: np.ndarray, first: np.ndarray, factor: int) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """The content of one slot for each key, and the places where it is another piece."""
        index = self._slots.take(slot_of(key, factor, len(self._slots)))
        return index, ((self._keys.take(index) != key) | (self._first.take(index) != first)).nonzero()


def _keys(pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
    """The first 8 bytes of each piece, and its key."""
    text = pieces.text + bytes(MAX_KEY_BYTES)
    eight = np.ndarray(len(text) - 7, "<i8", text, strides=(1,))  # the 8 bytes from each byte on
    first = eight.take(pieces.starts) | BEHIND.take(pieces.lengths, mode="clip")
    (long,) = (pieces.lengths > 8).nonzero()
    lengths = pieces.lengths[long]
    second = eight.take(pieces.starts[long] + 8) | BEHIND.take(lengths - 8, mode="clip")
    key = first.copy()
    key[long] ^= ~second * FACTORS[1]  # an odd factor gives no two the same product, and 0 none but all 0xFF
    first[long[lengths > MAX_KEY_BYTES]] = TOO_LONG
    return first, key
