"""Matrix products of the library's programs have full precision, whatever the device's default is."""

import re
from pathlib import Path

import jax
import numpy as np

import aptinfer as apt
from aptinfer.posteriors import direct
from aptinfer.precision import precise
from aptinfer.programs import compiled

SOURCES = sorted((Path(__file__).resolve().parents[1] / "src" / "aptinfer").rglob("*.py"))
MOVES_DATA_ONLY = {"convoy.py": 2, "ensemble.py": 1}  # programs without a product
SQUARE = np.eye(3, dtype=np.float32)


def product(a, b):
    return a @ b


def precisions(text: str) -> set[str]:
    """Of all products in a program before it is optimised."""
    return {
        found
        for line in text.splitlines()
        if "dot_general" in line
        for found in re.findall(r"HIGHEST|DEFAULT", line)
    }


def test_products_have_full_precision_where_the_default_has_not():
    assert precisions(jax.jit(product).lower(SQUARE, SQUARE).as_text()) == {"DEFAULT"}
    assert precisions(jax.jit(precise(product)).lower(SQUARE, SQUARE).as_text()) == {"HIGHEST"}


def test_gradients_too():
    slope = precise(jax.grad(lambda a, b: product(a, b).sum()))
    assert precisions(jax.jit(slope).lower(SQUARE, SQUARE).as_text()) == {"HIGHEST"}


def test_what_the_user_has_chosen_stays():
    with jax.default_matmul_precision("bfloat16"):
        text = jax.jit(precise(product)).lower(SQUARE, SQUARE).as_text()
    assert precisions(text) == {"DEFAULT"}  # as JAX writes it down


def test_programs_that_are_kept_have_it():
    program, _ = compiled("product", product, (), SQUARE, SQUARE)
    assert "operand_precision={highest,highest}" in program.compiled.as_text()


def test_another_choice_is_another_program():
    first, _ = compiled("chosen", product, (), SQUARE, SQUARE)
    with jax.default_matmul_precision("bfloat16"):
        second, _ = compiled("chosen", product, (), SQUARE, SQUARE)
    assert second is not first


def test_posteriors_have_it():
    method = apt.NPE(estimator=apt.MDN(1), embedding=apt.MLP((8,)), trainer=apt.Trainer(epochs=1))
    prior = apt.gaussian(np.zeros(2), np.eye(2))
    run = apt.infer(
        lambda rng, theta: theta, prior, np.zeros(2), method=method, simulations=50, progress=False
    )
    posterior = run.posterior
    assert isinstance(posterior, direct.DirectPosterior)
    values = np.zeros((3, 2), np.float32)
    text = direct._log_prob.lower(posterior.estimator, posterior.condition, values).as_text()
    assert precisions(text) == {"HIGHEST"}


def test_no_program_is_forgotten():
    """Wherever something is compiled, `precise` stands beside it."""
    without = {}
    for path in SOURCES:
        lines = path.read_text(encoding="utf-8").splitlines()
        without[path.name] = sum(
            bool(re.search(r"\bjit\b|filter_jit", line)) and "precise" not in line + following
            for line, following in zip(lines, [*lines[1:], ""], strict=True)
        )
    assert {name: count for name, count in without.items() if count} == MOVES_DATA_ONLY
