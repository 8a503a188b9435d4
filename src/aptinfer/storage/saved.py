"""Posteriors on their own, in one small file, for use where the run is not.

The file has the safetensors format: networks as arrays, everything else as JSON in its notes.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from aptinfer.errors import RunFileError
from aptinfer.priors import as_prior
from aptinfer.spaces import LEAST_ACCEPTED, Frame, LatentFrame, StandardisedFrame
from aptinfer.storage import tensors
from aptinfer.storage.records import Reader, Writer, digest
from aptinfer.storage.specification import described_prior, differences, read_prior, versions

FORMAT = 1
KIND = "aptinfer.posterior"


def save(posterior: Any, path: str | os.PathLike) -> None:
    """Write a posterior to a file, which appears whole or not at all."""
    frame: Frame = posterior.frame
    writer = Writer({"frame": frame}, trained=True)
    content = {
        "prior": described_prior(frame.prior),
        "latent": isinstance(frame, LatentFrame),
        "dtype": np.dtype(frame.dtype).name,
        "least_accepted": frame.least_accepted,
        "posterior": writer(posterior),
        "versions": versions(),
    }
    notes = {"kind": KIND, "format": str(FORMAT), "content": json.dumps(content)}
    _write(Path(path), tensors.to_bytes(writer.arrays, notes))


def load(path: str | os.PathLike, prior: object = None, yours: dict[str, Any] | None = None) -> Any:
    """The value that `save` wrote; the caller sees whether it is a posterior."""
    path = Path(path)
    arrays, notes = tensors.from_file(path)
    if notes.get("kind") != KIND:
        raise RunFileError(f"{path} holds arrays, but not a posterior of aptinfer.")
    if notes.get("format") != str(FORMAT):
        raise RunFileError(
            f"{path} has format {notes.get('format', '')[:20]!r}, and this version of aptinfer reads format "
            f"{FORMAT}. Use a newer version: pip install --upgrade aptinfer."
        )

    def array(name: str) -> np.ndarray:
        if name not in arrays or digest(arrays[name]) != name:
            raise RunFileError("an array is missing or damaged")
        return arrays[name]

    try:
        content = json.loads(notes["content"])
        frame = _frame(content, prior)
        return Reader(array, {"frame": frame}, yours)(content["posterior"])
    except RunFileError as error:
        raise RunFileError(f"{path}: {error}.") from None
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise RunFileError(f"{path}: its content cannot be read ({type(error).__name__}: {error}).") from None


def _frame(content: dict[str, Any], prior: object) -> Frame:
    found = read_prior(content["prior"])
    if prior is not None:
        found = as_prior(prior)
        if lines := differences({"prior": content["prior"]}, {"prior": described_prior(found)}):
            raise RunFileError("it was saved with another prior:\n  " + "\n  ".join(lines))
    if found is None:
        raise RunFileError("its prior has functions of yours, which are not kept. Pass it again: prior=...")
    dtype = {"float32": np.float32, "float64": np.float64}[content["dtype"]]
    if content["latent"]:
        return LatentFrame(found, dtype)
    return StandardisedFrame(found, dtype, content.get("least_accepted", LEAST_ACCEPTED))


def _write(path: Path, data: bytes) -> None:
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {path.absolute().parent} to save {path.name} in: make it first."
        )
    descriptor, draft = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.", suffix=".new")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
