"""The client and the decoder draw random numbers that are the same with every version of numpy: `hubbub_decoder/random_state.py`."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub.errors import ParameterError
from hubbub_decoder.simulation import simulate, simulate_reports, simulate_two_periods
from tests.contracts.test_layers import MODULES

CHANGED = ("default_rng", "multinomial")
"""Methods that draw other numbers with other versions of numpy: RandomState.multinomial does too, from 2.5 on."""


def unfrozen_draws(source: str) -> list[str]:
    """Return where a module draws from a numpy.random.Generator, or makes one by `default_rng`, whose bits may change.

    >>> unfrozen_draws("def f(rng: np.random.Generator):\\n    frozen(rng).binomial(1, 1)\\n    return rng.random()")
    ['rng.random']
    >>> unfrozen_draws("def f(r: np.random.Generator):\\n    return r.bit_generator, np.random.default_rng(1)")
    ['np.random.default_rng']
    """
    tree = ast.parse(source)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in CHANGED]
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
            names = {
                argument.arg
                for argument in arguments
                if argument.annotation and "Generator" in ast.unparse(argument.annotation)
            }
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
                    found += [node] if node.attr != "bit_generator" else []
    return [ast.unparse(node) for node in found]


def test_random_numbers_are_those_of_every_numpy() -> None:
    """The aggregator's one draw, the order of an export, is repeated by nobody."""
    sources = {module: file.read_text("utf-8") for module, file in MODULES.items() if "aggregator" not in module}
    assert sum("np.random" in source for source in sources.values()) > 10
    found = {module: unfrozen_draws(source) for module, source in sources.items()}
    assert {module: draws for module, draws in found.items() if draws} == {}


@pytest.mark.parametrize("wrong", [1, None, np.random.RandomState(1)])
def test_another_source_of_random_numbers_is_refused(wrong: object) -> None:
    metric = Metric.string("page", Params(num_bits=8, num_hashes=1, num_cohorts=2, prob_p=0.25, prob_q=0.75, prob_f=0))
    for draw in (
        lambda: simulate(metric, {"a": 1}, wrong),  # type: ignore[call-overload]
        lambda: simulate_two_periods(metric, {("a", "a"): 1}, wrong),  # type: ignore[arg-type]
        lambda: next(simulate_reports(metric, {"a": 1}, wrong)),  # type: ignore[arg-type]
    ):
        with pytest.raises(ParameterError, match=r"rng must be a numpy\.random\.Generator, got .*default_rng\(seed\)"):
            draw()
