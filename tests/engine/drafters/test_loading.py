from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken

from tests.engine.drafters.drafter_files import (
    IDS,
    SMALL,
    TOKENIZER,
    llama_directory,
    small_arrays,
    small_directory,
    target,
)
from tests.text import backends
from tfjax.engine.drafters import loading
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.loading import UnusableDrafter, load_drafter
from tfjax.engine.table import vocabulary_hash

TARGET = target()


def load(path: Path, depth: int = 8) -> DraftingModel:
    return load_drafter(path, TARGET, TOKENIZER, "float32", depth, lambda phase, share: None)


def test_a_small_drafter_shares_the_targets_embedding(tmp_path: Path) -> None:
    model = load(small_directory(tmp_path / "little"))
    module: Any = model.loaded.module
    own: Any = TARGET.module
    assert (model.name, model.kind, model.vocab, model.context) == ("little", "small", 264, 256)
    assert model.ids.tolist() == IDS.tolist()
    assert module.embedding[...].unsafe_buffer_pointer() == own.embedding[...].unsafe_buffer_pointer()
    assert model.weight_bytes == sum(array.nbytes for name, array in small_arrays().items() if name != "d2t")
    assert np.array_equal(module.head_weight, small_arrays()["lm_head.weight"])


def test_a_small_drafter_with_a_projected_head(tmp_path: Path) -> None:
    config = SMALL | {"tie_word_embeddings": True}
    model = load(small_directory(tmp_path / "little", config=config))
    module: Any = model.loaded.module
    own: Any = TARGET.module
    head = np.asarray(own.embedding[...])[IDS] @ small_arrays(config)["head_proj.weight"]
    np.testing.assert_allclose(module.head_weight, head, rtol=1e-4, atol=1e-5)


def test_a_llama_with_the_same_tokens(tmp_path: Path) -> None:
    """Rows of padding may differ in number; none of them can be drafted."""
    model = load(llama_directory(tmp_path / "other"))
    assert (model.kind, model.vocab, model.context) == ("model", 264, 128)
    assert model.ids.tolist() == list(range(259 + 1))
    assert not model.shared


def renamed(directory: Path) -> Path:
    backend = backends.byte_level()
    backend.add_tokens([AddedToken("extra")])
    return llama_directory(directory, tokens=backend)


def truncated(directory: Path) -> Path:
    file = small_directory(directory) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    return directory


def without_tokenizer(directory: Path) -> Path:
    (llama_directory(directory) / "tokenizer.json").unlink()
    return directory


def small(**changes: Any) -> Callable[[Path], Path]:
    return lambda directory: small_directory(directory, config=SMALL | changes)


def another_map(ids: list[int]) -> Callable[[Path], Path]:
    return lambda directory: small_directory(directory, d2t=np.array(ids) - np.arange(24))


UNUSABLE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda directory: directory / "nowhere", "nowhere: no such model"),
    "truncated": (truncated, "damaged or truncated safetensors file"),
    "another architecture": (small(architectures=["MambaForCausalLM"]), "'MambaForCausalLM' cannot draft"),
    "other tokens": (renamed, r"another vocabulary: token 260 is 'extra' there and None in the model"),
    "no tokenizer": (without_tokenizer, "tokenizer.json: no such file"),
    "another width": (small(target_hidden_size=48), "hidden_size 48; this one has 264 and 40"),
    "another vocabulary": (small(vocab_size=265), "vocab_size 265 and hidden_size 40; this one has 264 and 40"),
    "other tokens by hash": (small(vocabulary_sha256="ab"), r"trained with other tokens .*vocabulary_sha256 ab"),
    "context below a window": (
        small(max_position_embeddings=9),
        "trained for 9 positions, fewer than the 10 that a window of --drafter-depth 8 needs",
    ),
    "a map outside": (another_map([*range(23), 264]), "token 264 for draft id 23"),
    "a map that repeats": (another_map([*range(23), 22]), "token 22 2 times"),
    "a superfluous tensor": (
        lambda directory: small_directory(directory, **{"model.extra.weight": np.zeros(3, np.float32)}),
        "model.extra.weight has no place",
    ),
    "an unknown key": (small(attention_sinks=4), "attention_sinks"),
}


@pytest.mark.parametrize(("make", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_one_that_cannot_be_used(make: Callable[[Path], Path], words: str, tmp_path: Path) -> None:
    with pytest.raises(UnusableDrafter, match=words) as refusal:
        load(make(tmp_path / "drafter"))
    assert str(refusal.value).startswith("--drafter: ")


def test_the_shortest_context_that_will_do(tmp_path: Path) -> None:
    path = small(max_position_embeddings=10)(tmp_path / "drafter")
    assert load(path).context == 10
    with pytest.raises(UnusableDrafter, match="11 that a window of --drafter-depth 9"):
        load(path, depth=9)


def test_the_right_hash_is_accepted(tmp_path: Path) -> None:
    assert load(small(vocabulary_sha256=vocabulary_hash(TOKENIZER))(tmp_path / "drafter")).kind == "small"


def test_weights_that_do_not_fit_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_directory(tmp_path / "drafter")
    needed = sum(array.nbytes for name, array in small_arrays().items() if name != "d2t")
    monkeypatch.setattr(loading, "memory_budget", lambda: TARGET.weight_bytes + needed)
    assert load(path).weight_bytes == needed
    monkeypatch.setattr(loading, "memory_budget", lambda: TARGET.weight_bytes + needed - 1)
    monkeypatch.setattr(loading, "read_model", None)
    with pytest.raises(UnusableDrafter, match=r"needs 0\.0 GiB for its weights.*give a smaller drafter"):
        load(path)
