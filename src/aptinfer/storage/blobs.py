"""Arrays as bytes: one line of text, then the raw little-endian numbers.

    <f4 1000 2 5d41402a\\n followed by 8000 bytes

dtype, shape and CRC-32 of what follows. Everything that the line declares is compared with what is there
before anything is allocated, so that a truncated, damaged or hostile blob is an error and nothing else.
"""

import math
import zlib

import numpy as np

from aptinfer.errors import RunFileError

KINDS = ("<f4", "<f8", "<i4", "<i8", "<u4", "<u8", "|u1", "|i1", "<i2", "<u2", "<f2", "|b1")
_LONGEST_LINE = 400
_MOST_AXES = 32


def packed(array: np.ndarray) -> bytes:
    """The array as bytes."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))  # the first alone makes a scalar a vector
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if little.dtype.str not in KINDS:
        raise TypeError(f"an array of {array.dtype} cannot be kept in a file.")
    body = little.tobytes()
    words = [little.dtype.str, *map(str, little.shape), f"{zlib.crc32(body):08x}"]
    return " ".join(words).encode("ascii") + b"\n" + body


def unpacked(blob: object) -> np.ndarray:
    """The array in these bytes, read-only; `RunFileError` if they hold none."""
    if not isinstance(blob, bytes):
        raise RunFileError(f"an array was expected, and {type(blob).__name__} was found")
    end = blob.find(b"\n", 0, _LONGEST_LINE)
    try:
        kind, *shape, checksum = blob[: max(end, 0)].decode("ascii").split(" ")
        sizes = tuple(_size(word) for word in shape)
    except ValueError:
        raise RunFileError("an array does not begin with its type and shape") from None
    if kind not in KINDS or len(sizes) > _MOST_AXES:
        raise RunFileError(f"an array of an unknown type was found: {kind[:20]!r}")
    body = memoryview(blob)[end + 1 :]
    declared = math.prod(sizes) * np.dtype(kind).itemsize
    if declared != len(body):
        raise RunFileError(f"an array should have {declared} bytes and has {len(body)}")
    if f"{zlib.crc32(body):08x}" != checksum:
        raise RunFileError("an array is damaged: its checksum does not agree")
    if kind == "|b1" and len(body) and np.frombuffer(body, np.uint8).max() > 1:
        raise RunFileError("an array of truth values holds other numbers")
    return np.frombuffer(body, kind).reshape(sizes)


def _size(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 16):
        raise ValueError
    return int(word)
