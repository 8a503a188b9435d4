"""Posteriors from files."""

import os

from aptinfer.caching import enable_compilation_cache
from aptinfer.errors import RunFileError
from aptinfer.posteriors.base import Posterior
from aptinfer.storage.foreign import name_of
from aptinfer.storage.saved import load


def load_posterior(path: str | os.PathLike, *, prior: object = None, embedding: object = None) -> Posterior:
    """A posterior that `posterior.save` wrote. Nothing in the file is executed.

    Args:
        path: the file.
        prior: needed only if it holds functions of your own; compared with what the file knows of it.
        embedding: your own `eqx.Module`, if one was trained: any of the same structure, its weights are in
            the file.

    Raises:
        RunFileError: the file is damaged, of a newer format, or no posterior.

    Example:
        >>> posterior = apt.load_posterior("posterior.safetensors")  # doctest: +SKIP
        >>> posterior.given(x).sample(1000)  # doctest: +SKIP
    """
    enable_compilation_cache()
    found = load(path, prior, {} if embedding is None else {name_of(embedding): embedding})
    try:
        if isinstance(found, Posterior):
            found.try_out()
            return found
    except Exception as error:
        raise RunFileError(f"{os.fspath(path)}: its posterior does not work ({error}).") from None
    raise RunFileError(f"{os.fspath(path)} holds something else than a posterior.")
