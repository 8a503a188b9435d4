"""JAX's persistent compilation cache, on by default, in the user's cache folder.

The folder is named after what compiled code depends on, so machines that share a home never share code.
Whatever the user has configured is left alone, and a home that cannot be written to is no error.
"""

import hashlib
import os
import platform
from pathlib import Path


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


def _processor() -> str:
    """A short name for the processor and its instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts = sorted({line for line in lines if line.startswith(("flags", "model name"))})
    except OSError:
        facts = [platform.processor(), platform.machine()]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
