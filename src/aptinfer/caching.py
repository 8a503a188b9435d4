"""What is kept between runs in the user's cache folder: compiled programs and expensive posterior draws.

JAX's persistent compilation cache is on by default; its folder is named after what compiled code depends
on, so machines that share a home never share code. Whatever the user has configured is left alone, and a
home that cannot be written to is no error.
"""

import hashlib
import os
import platform
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np


def enable_compilation_cache() -> None:
    """Point JAX to our cache unless the user has chosen one, or switched it off."""
    import jax
    from jaxlib.version import __version__ as jaxlib_version

    chosen = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if chosen is not None or not jax.config.jax_enable_compilation_cache:  # pyright: ignore
        return
    folder = cache_folder()
    if folder is None:
        return
    folder = folder / "compiled" / f"jaxlib-{jaxlib_version}-{_processor()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))


def cache_folder() -> Path | None:
    """The user's cache folder for this library; None for a user without a home."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = chosen if chosen.is_absolute() else Path(os.path.expanduser("~")) / ".cache"
    return base / "aptinfer" if base.is_absolute() else None


def references_folder() -> Path | None:
    """Where expensive posterior draws are kept."""
    folder = cache_folder()
    return folder and folder / "references"


def kept(
    name: str, key: str, compute: Callable[[], dict[str, np.ndarray]], *, fresh: bool = False
) -> dict[str, np.ndarray]:
    """Arrays computed once and read from the cache folder afterwards.

    Args:
        name: how the file's name begins.
        key: everything that the arrays depend on; its hash is the rest of the file's name.
        compute: makes the arrays. They are returned even if they cannot be written anywhere.
        fresh: compute again, and replace what is kept.
    """
    folder = references_folder()
    path = folder and folder / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    if path and not fresh:
        try:
            with path.open("rb") as file, np.load(file) as archive:
                return {entry: archive[entry] for entry in archive.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            pass  # absent, or cut short by something outside our hands
    arrays = compute()
    if path:
        _written(path, arrays)
    return arrays


def _written(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a file that other processes see whole or not at all; a folder that refuses is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".npz")
        try:
            with os.fdopen(descriptor, "wb") as file:
                np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError:
        pass


def _processor() -> str:
    """A short name for the processor and its instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts = sorted({line for line in lines if line.startswith(("flags", "model name"))})
    except OSError:
        facts = [platform.processor(), platform.machine()]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
