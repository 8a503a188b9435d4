"""The safetensors format: named arrays and some text in a file that holds no code.

    8 bytes: length of the header; the header, JSON; the arrays, one after the other

Written and read here, in a few lines, because a file from a stranger must be an error or an array: every
offset is compared with what is there, arrays fill the file without gaps or overlaps, the header has a bound.
Files of other programs that hold plain arrays can be read too, and ours by them.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aptinfer.errors import RunFileError

NAMES = {
    "<f2": "F16", "<f4": "F32", "<f8": "F64", "|i1": "I8", "<i2": "I16", "<i4": "I32", "<i8": "I64",
    "|u1": "U8", "<u2": "U16", "<u4": "U32", "<u8": "U64", "|b1": "BOOL",
}  # fmt: skip
KINDS = {name: kind for kind, name in NAMES.items()}
LONGEST_HEADER = 100_000_000


def to_bytes(arrays: Mapping[str, np.ndarray], notes: Mapping[str, str]) -> bytes:
    """Arrays and notes as the content of a file."""
    header: dict[str, Any] = {"__metadata__": dict(notes)}
    parts, end = [], 0
    # Wider types first, so that all of them are aligned.
    for name, array in sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
        little = np.asarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        body = little.tobytes()
        offsets = [end, end + len(body)]
        header[name] = {
            "dtype": NAMES[little.dtype.str],
            "shape": list(little.shape),
            "data_offsets": offsets,
        }
        parts.append(body)
        end += len(body)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def from_file(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and notes in a file; `RunFileError` if it is not of this format."""
    try:
        data = path.read_bytes()
        return _parsed(data)
    except (OSError, MemoryError) as error:
        raise RunFileError(f"{path} cannot be read: {error}.") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RunFileError(f"{path} is damaged, or no saved posterior ({error}).") from None


def _parsed(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(LONGEST_HEADER, len(data) - 8):
        raise ValueError("its header is longer than the file")
    header = json.loads(data[8 : 8 + length].decode("utf-8"))
    notes = header.pop("__metadata__", {})
    body, arrays, filled = memoryview(data)[8 + length :], {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        kind, shape, (start, end) = KINDS[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
        if not all(type(n) is int and 0 <= n <= len(data) for n in (*shape, start, end)):
            raise ValueError(f"the array {name[:40]!r} has no proper shape")
        if start != filled or end > len(body) or math.prod(shape) * np.dtype(kind).itemsize != end - start:
            raise ValueError(f"the array {name[:40]!r} does not have the size that it should")
        arrays[name], filled = np.frombuffer(body[start:end], kind).reshape(shape), end
    if filled != len(body):
        raise ValueError("there is more in it than its header says")
    if not all(isinstance(text, str) for item in notes.items() for text in item):
        raise ValueError("its notes are not text")
    return arrays, notes
