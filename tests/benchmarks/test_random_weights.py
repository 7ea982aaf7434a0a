from __future__ import annotations

import jax.numpy as jnp
import pytest
from flax import nnx

from benchmarks import random_weights
from benchmarks.random_weights import random_model, random_module
from benchmarks.windows import llama_of
from tfjax.engine.kernel_choice import Kernels
from tfjax.kernels.routes import Route
from tfjax.kernels.specs import TINY
from tfjax.models.llama import FAMILY, Llama
from tfjax.models.stacked_llama import StackedLlama

CONFIG = llama_of(TINY, 3)


def test_norms_are_ones_in_stacks_too_and_layers_differ() -> None:
    module = random_module(lambda: StackedLlama(CONFIG, jnp.float32, Route.REFERENCE))
    values = {str(path[0]): leaf.get_value() for path, leaf in nnx.to_flat_state(nnx.state(module))}
    assert {name for name in values if "norm" in name} == {"attention_norm", "mlp_norm"}
    for name, value in values.items():
        if "norm" in name:
            assert bool((value == 1).all()), name
        else:
            assert 0.015 < float(jnp.std(value)) < 0.025, name
    assert not bool((values["qkv"][0] == values["qkv"][1]).all())


def test_what_is_left_has_no_value() -> None:
    module = random_module(lambda: Llama(CONFIG, jnp.float32), ("head",))
    values = {path: leaf.get_value() for path, leaf in nnx.to_flat_state(nnx.state(module))}
    assert not hasattr(values.pop(("head",)), "devices")
    assert all(hasattr(value, "devices") for value in values.values())


@pytest.mark.parametrize(("stacked", "kind"), [(True, StackedLlama), (False, Llama)])
def test_the_form_is_that_of_the_operators(stacked: bool, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Kernels(Route.REFERENCE, "a test", stacked=stacked)
    monkeypatch.setattr(random_weights, "choose_kernels", lambda *asked: chosen)
    model = random_model(FAMILY, CONFIG, jnp.bfloat16, "auto")
    assert (type(model.module), model.kernels) == (kind, chosen)
