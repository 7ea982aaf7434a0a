"""Rows of a packed table have the bits of the expanded table's."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tests.kernels.test_layer_matmul import FORMS, pair, same
from tfjax.checkpoints.affine import AffineForm
from tfjax.kernels.embed_rows import embed_rows


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.bits}-bit by {form.group_size}")
def test_a_packed_table_has_the_rows_of_the_dense_one(form: AffineForm) -> None:
    packed, dense = pair(form)
    token = jnp.asarray([3, 0, dense.shape[1] - 1, 3], jnp.int32)
    found = embed_rows(packed.at(1), token, jnp.int32(4))
    assert same(found, embed_rows(dense[1], token, jnp.int32(4)))
    assert same(found, np.asarray(dense[1])[np.asarray(token)])
