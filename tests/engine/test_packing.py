"""Which parameters stay packed, which cannot and why, and what of it the loaded model tells."""

from __future__ import annotations

import logging
import tracemalloc
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from flax import nnx

from tests.checkpoints.hf_files import write_directory
from tests.checkpoints.mlx_files import packed as module_of
from tests.engine.packed_models import CONFIGS, FORMS, loaded, quantized, silent, source_directory
from tests.row_invariance import bits
from tfjax.checkpoints import TensorInfo, open_checkpoint
from tfjax.checkpoints.affine import AffineForm, Packed
from tfjax.checkpoints.mlx_rules import Forms
from tfjax.checkpoints.safetensors_files import SafetensorsFiles
from tfjax.engine import weights
from tfjax.engine.fitting import fit_memory
from tfjax.engine.least_rows import find_least_rows
from tfjax.engine.packing import Packing, packed_weights, weights_of
from tfjax.engine.weights import LoadedModel, load_model, stay_packed
from tfjax.kernels.packed import PackedWeight, expanded
from tfjax.models.config import ConfigError
from tfjax.models.family import Source


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module", params=CONFIGS)
def both(request: pytest.FixtureRequest, folder: Path) -> tuple[LoadedModel, LoadedModel]:
    """A model packed and dense."""
    checkpoint = quantized(folder, request.param)
    return loaded(checkpoint, "packed"), loaded(checkpoint, "dense")


def parameters(model: LoadedModel) -> dict[str, Any]:
    return {".".join(map(str, path)): leaf[...] for path, leaf in nnx.to_flat_state(nnx.state(model.module))}


def test_every_packed_parameter_stands_for_the_dense_one(both: tuple[LoadedModel, LoadedModel]) -> None:
    packed, dense = map(parameters, both)
    assert packed.keys() == dense.keys()
    for path, weight in packed.items():
        assert (weight.shape, weight.dtype) == (dense[path].shape, dense[path].dtype), path
        assert np.array_equal(bits(expanded(weight)), bits(dense[path])), path


def test_products_embedding_and_router_are_packed(both: tuple[LoadedModel, LoadedModel]) -> None:
    """Norms, taps and biases are not, and every form is the one of the module."""
    for path, weight in parameters(both[0]).items():
        if weight.ndim < 2 or path.endswith("taps"):
            assert not isinstance(weight, PackedWeight), path
            continue
        form = FORMS.embedding if path in ("embedding", "head") else FORMS.matrix
        form = FORMS.router if path.endswith("router.weight") else form
        assert isinstance(weight, PackedWeight), path
        assert AffineForm(weight.bits, weight.group) == form, path


def test_the_size_is_the_packed_one(both: tuple[LoadedModel, LoadedModel]) -> None:
    packed, dense = both
    leaves = weights_of(nnx.state(packed.module))
    assert packed.weight_bytes == sum(leaf.nbytes for leaf in leaves) < 0.5 * dense.weight_bytes
    sizes = [leaf.nbytes for path, leaf in parameters(dense).items() if leaf.ndim > 1 and not path.endswith("taps")]
    assert packed.expansion_bytes == max(sizes)
    assert dense.expansion_bytes == 0


def test_memory_is_planned_for_packed_weights_and_one_expansion(both: tuple[LoadedModel, LoadedModel]) -> None:
    packed, dense = (fit_memory(model, asked=64, lanes=1) for model in both)
    assert packed.weight_bytes == both[0].weight_bytes
    assert dense.budget_bytes - packed.budget_bytes == both[0].expansion_bytes


def test_the_form_is_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    checkpoint = quantized(folder / "told", "lfm2_moe")
    packed, dense = loaded(checkpoint, "packed"), loaded(checkpoint, "dense")
    assert packed.weights == "packed 4-bit and 6-bit and 8-bit, 0.00 GiB"
    assert dense.weights == "dense, 0.00 GiB"
    assert [record.message for record in caplog.records] == [f"weights: {model.weights}" for model in (packed, dense)]


def test_least_rows_are_found_with_the_packed_products(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(quantized(folder / "least", "lfm2_moe"), "packed")
    tried: list[Any] = []

    def product(x: jax.Array, weight: Any) -> jax.Array:
        tried.append(weight)
        assert x.shape[1] == weight.shape[1]
        return x[:, :1]

    monkeypatch.setattr("tfjax.engine.least_rows._product", product)
    assert find_least_rows(weights_of(nnx.state(model.module))).rows == 2
    assert all(isinstance(weight, PackedWeight) and weight.ndim == 2 for weight in tried)
    shapes = {weight.shape for weight in tried}
    assert shapes == {weight.shape[-2:] for weight in packed_weights(nnx.state(model.module))}


@pytest.mark.parametrize(
    ("word", "share", "wanted"),
    [("auto", 0.7, False), ("auto", 0.8, True), ("packed", 0.1, True), ("dense", 1.5, False)],
)
def test_auto_keeps_weights_packed_only_where_they_would_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch, word: str, share: float, wanted: bool
) -> None:
    monkeypatch.setattr(weights, "memory_budget", lambda: 1000)
    assert stay_packed(word, int(1000 * share)) == wanted


# What cannot stay packed.


def rewritten(folder: Path, name: str, change: Any) -> Path:
    """A quantized model with other tensors: `change` takes and gives them by name, and changes the config."""
    checkpoint = quantized(folder, name)
    files = SafetensorsFiles(checkpoint.path)
    arrays = {tensor: files.read(tensor, types=("U32", "BF16", "F16", "F32")) for tensor in files.infos}
    stated = {"group_size": 32, "bits": 4, "mode": "affine", "model.embed_tokens": {"group_size": 64, "bits": 6}}
    config = {**checkpoint.config, "quantization": stated}
    change(arrays, stated)
    return write_directory(folder / "other", config=config, tensors=arrays)


def in_eight_bits(arrays: dict[str, Any], stated: dict[str, Any]) -> None:
    module = "model.layers.0.self_attn.k_proj"
    stated[module] = {"group_size": 32, "bits": 8}
    arrays |= module_of(module, np.ones((32, 64), arrays[f"{module}.scales"].dtype), AffineForm(8, 32))


def unquantized(arrays: dict[str, Any], stated: dict[str, Any]) -> None:
    module = "model.layers.0.self_attn.k_proj"
    stated[module] = False
    arrays[f"{module}.weight"] = np.ones((32, 64), arrays.pop(f"{module}.scales").dtype)
    del arrays[f"{module}.biases"]


def wide_scales(arrays: dict[str, Any], stated: dict[str, Any]) -> None:
    for module in ("q_proj", "k_proj", "v_proj"):
        name = f"model.layers.0.self_attn.{module}.scales"
        arrays[name] = arrays[name].astype(np.float32)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (in_eight_bits, "their parts have several forms"),
        (unquantized, "only some of their parts are quantized"),
        (wide_scales, "scales in float32, bfloat16 or float16 is needed"),
    ],
)
def test_parts_that_do_not_go_together_are_expanded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Any, reason: str
) -> None:
    checkpoint = open_checkpoint(rewritten(tmp_path, "llama", change))
    packed, dense = (parameters(loaded(checkpoint, word)) for word in ("packed", "dense"))
    plain = [path for path, weight in packed.items() if weight.ndim > 1 and not isinstance(weight, PackedWeight)]
    assert plain == ["layers.0.attention.qkv.weight"]
    for path, weight in packed.items():
        assert np.array_equal(bits(expanded(weight)), bits(dense[path])), path
    assert f"1 quantized parameter is expanded at load ({reason})" in caplog.text


@pytest.mark.parametrize("weights_in", ["float32", "plain"])
def test_packed_is_refused_where_nothing_can_be(tmp_path: Path, weights_in: str) -> None:
    if weights_in == "plain":
        checkpoint = open_checkpoint(source_directory(tmp_path, "llama"))
    else:
        checkpoint = quantized(tmp_path, "llama", dtype=np.float32)
    with pytest.raises(ConfigError, match=r"--weights packed: .* has no weights that can stay packed.*--weights dense"):
        load_model(checkpoint, "bfloat16", silent, weights="packed")
    assert load_model(checkpoint, "bfloat16", silent, weights="auto").expansion_bytes == 0


def test_a_group_of_experts_keeps_its_place(tmp_path: Path) -> None:
    """Expert by expert: gate over up, in the order of the experts."""
    forms = Forms(AffineForm(3, 32), router=None, embedding=None)
    packed, dense = (loaded(quantized(tmp_path / word, "lfm2_moe", forms=forms), word) for word in ("packed", "dense"))
    module, plain = (model.module.layers[1].feed_forward for model in (packed, dense))  # type: ignore[attr-defined]
    assert module.gate_up[...].shape == (8, 128, 64)
    for expert in range(8):
        assert np.array_equal(bits(expanded(module.gate_up[...].at(expert))), bits(plain.gate_up[...][expert]))
    assert not isinstance(module.router.weight[...], PackedWeight)


class MadeWhenRead:
    """Packed tensors that take memory only while somebody holds what was read."""

    form = AffineForm(4, 32)

    def __init__(self, names: list[str], shape: tuple[int, int]):
        self.shape = shape
        self.infos = {name: TensorInfo(shape, "AFFINE4", Path("model"), 0) for name in names}

    def read(self, name: str) -> Any:
        raise AssertionError(f"{name} is expanded")

    def packed(self, name: str) -> tuple[Packed, AffineForm]:
        rows, columns = self.shape
        number = int(name)
        words = np.full((rows, columns * 4 // 32), number, np.uint32)
        scales, biases = (np.full((rows, columns // 32), number + add, np.float16) for add in (0, 0.5))
        return Packed(words, scales, biases), self.form


def test_a_packed_stack_is_read_with_one_of_its_tensors_beside_it() -> None:
    layers, shape = 16, (512, 256)
    names = [str(layer) for layer in range(layers)]
    tensors = MadeWhenRead(names, shape)
    like = jax.ShapeDtypeStruct((layers, *shape), np.dtype(ml_dtypes.bfloat16))
    tracemalloc.start()
    try:
        weight = Packing(tensors).parameter([Source(name, shape) for name in names], like)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert weight is not None
    assert weight.shape == like.shape
    for part, add in ((weight.words, 0), (weight.scales, 0), (weight.biases, 0.5)):
        assert np.array_equal(part[:, 7, 1], np.arange(layers) + add)
    assert peak < weight.nbytes * (1 + 3 / layers)
