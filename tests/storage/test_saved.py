"""Posteriors in files of their own."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

import aptinfer as apt
from aptinfer.estimators.ensemble import build_members
from aptinfer.keys import Key
from aptinfer.posteriors import DirectPosterior
from aptinfer.scaling import Scaling
from aptinfer.spaces import Latent, Theta
from aptinfer.storage import tensors

X_O = np.array([0.2, 0.3])


def posterior(estimator=None, embedding=None, prior=None, space=None) -> DirectPosterior:
    """One that nobody has trained."""
    prior = prior or apt.box([-1, -1], [1, 1])
    built = build_members(Key((0,)), estimator or apt.MDN(2), embedding or apt.MLP((8,)), prior.dim, (2,))
    scaling = Scaling(np.zeros(2), np.ones(2))
    return DirectPosterior((space or Latent()).frame(prior, np.float32), scaling, built, X_O, (2,))


def test_a_trained_posterior_comes_back_with_the_same_bits(plain, tmp_path):
    path = tmp_path / "posterior.safetensors"
    plain.posterior.save(path)
    again = apt.load_posterior(path)
    np.testing.assert_array_equal(again.sample(100, seed=3), plain.posterior.sample(100, seed=3))
    np.testing.assert_array_equal(
        again.given([0.0, 0.1]).sample(10), plain.posterior.given([0.0, 0.1]).sample(10)
    )
    assert again.names == plain.posterior.names
    assert path.stat().st_size < 10_000
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_posterior_from_a_run_file_can_be_saved(finished, plain, tmp_path):
    path = tmp_path / "posterior.safetensors"
    apt.open(finished).posterior.save(path)
    np.testing.assert_array_equal(apt.load_posterior(path).sample(100), plain.posterior.sample(100))


@pytest.mark.parametrize("space", [Latent(), Theta(), Theta(1e-4)])
def test_estimators_and_priors_of_all_kinds_are_written(space, tmp_path):
    path = tmp_path / "posterior.safetensors"
    prior = apt.Prior(a=st.gamma(2), b=st.norm(1, 2))
    one = posterior(apt.Ensemble(apt.NSF(layers=2), 2), apt.ResidualMLP(8, 1), prior, space)
    one.save(path)
    two = apt.load_posterior(path)
    assert isinstance(two, DirectPosterior)
    assert jax.tree.structure(one.estimator) == jax.tree.structure(two.estimator)
    for a, b in zip(jax.tree.leaves(one.estimator), jax.tree.leaves(two.estimator), strict=True):
        assert type(a) is type(b)
        np.testing.assert_array_equal(a, b)
    z = np.random.default_rng(0).standard_normal((5, 2))
    np.testing.assert_array_equal(one.frame.to_theta(z), two.frame.to_theta(z))
    assert one.frame.least_accepted == two.frame.least_accepted


class Mine(eqx.Module):
    """A user's own embedding."""

    scale: jax.Array

    def __call__(self, x):
        return self.scale * x


def test_what_is_the_users_own_is_passed_again(tmp_path):
    path = tmp_path / "posterior.safetensors"
    prior = apt.Prior(a=st.uniform(0, 1), b=lambda a: st.uniform(a, 1))
    posterior(embedding=Mine(jnp.full(2, 3.0)), prior=prior).save(path)
    with pytest.raises(apt.RunFileError, match=r"prior has functions of yours"):
        apt.load_posterior(path)
    with pytest.raises(apt.RunFileError, match=r"Mine is your own"):
        apt.load_posterior(path, prior=prior)
    with pytest.raises(apt.RunFileError, match=r"another prior"):
        apt.load_posterior(path, prior=apt.box([0, 0], [1, 1]))
    again = apt.load_posterior(path, prior=prior, embedding=Mine(jnp.zeros(2)))
    assert isinstance(again, DirectPosterior)
    embedding = again.estimator.embedding
    assert isinstance(embedding, Mine)
    np.testing.assert_array_equal(embedding.scale, [[3.0, 3.0]])


def test_the_format_is_safetensors():
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([True]), "c": np.array(2.5)}
    data = tensors.to_bytes(arrays, {"note": "text"})
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header["__metadata__"] == {"note": "text"}
    assert header["a"]["dtype"] == "F32"
    start, end = header["a"]["data_offsets"]
    np.testing.assert_array_equal(np.frombuffer(data[8 + length :][start:end], "<f4"), np.arange(6))
    found, notes = tensors._parsed(data)
    assert notes == {"note": "text"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_damaged_and_hostile_files_are_refused(tmp_path):
    path, rng = tmp_path / "posterior.safetensors", np.random.default_rng(0)
    posterior().save(path)
    whole = path.read_bytes()
    for number in range(150):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 1 + number % 8):
            data[place] ^= 1 << rng.integers(8)
        path.write_bytes(data[: rng.integers(len(data))] if number % 5 == 0 else data)
        try:
            apt.load_posterior(path)
        except apt.RunFileError:
            continue
    for header in (
        {"a": {"dtype": "F64", "shape": [10**12], "data_offsets": [0, 8 * 10**12]}},
        {"a": {"dtype": "F64", "shape": [-1], "data_offsets": [0, -8]}},
        {"a": {"dtype": "O", "shape": [1], "data_offsets": [0, 8]}},
        {"a": 3},
        [],
        {"__metadata__": {"kind": 1}},
        {"__metadata__": {"kind": "other"}},
        {"__metadata__": {"kind": "aptinfer.posterior", "format": "2"}},
        {"__metadata__": {"kind": "aptinfer.posterior", "format": "1", "content": "[" * 100_000}},
    ):
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text)
        with pytest.raises(apt.RunFileError):
            apt.load_posterior(path)
    with pytest.raises(apt.RunFileError, match="cannot be read"):
        apt.load_posterior(tmp_path / "absent")
