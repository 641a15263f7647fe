"""A template around every text: its tokens, the place of its mask token, the folder that keeps it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tests.tiny import SENTENCES, export

from twinpass import Encoder
from twinpass.encoder.layers import with_layer
from twinpass.encoder.model import Dense
from twinpass.errors import ConfigError, ModelError

TEMPLATE = 'the word of "[X]" is [MASK] .'
FIRST = "[MASK] is a word of : [X]"


def test_the_texts_tokens_stand_between_the_templates(checkpoints) -> None:
    encoder = Encoder.load(checkpoints("bert"), pooler="mask", template=TEMPLATE)
    tokenizer = encoder.tokenizer
    words = [tokenizer.convert_ids_to_tokens(ids) for ids in encoder.tokenize(["a cat sat", ""])]
    assert words[0][-4:] == ["is", "[MASK]", ".", "[SEP]"]
    assert words[0][:4] == ["[CLS]", "the", "word", "of"] and words[0][5:8] == ["a", "cat", "sat"]
    assert len(words[1]) == len(words[0]) - 3


@pytest.mark.parametrize(("template", "place"), [(TEMPLATE, -3), (FIRST, 1)])
def test_the_vector_is_the_state_of_the_mask_token(checkpoints, template: str, place: int) -> None:
    encoder = Encoder.load(checkpoints("bert"), pooler="mask", template=template)
    texts = [*SENTENCES, "a text with [MASK] in it"]
    for text, vector in zip(texts, encoder.encode(texts), strict=True):
        (ids,) = encoder.tokenize([text])
        assert ids[place] == encoder.tokenizer.mask_token_id
        with torch.no_grad():
            states = encoder.model.transformer(**encoder.pad([ids])).last_hidden_state[0]
        np.testing.assert_allclose(vector, states[place], atol=1e-5)


def test_only_the_text_is_truncated(checkpoints) -> None:
    encoder = Encoder.load(checkpoints("bert"), pooler="mask", template=TEMPLATE)
    frame = len(encoder.tokens.frame)
    (long,) = encoder.tokenize(["cat dog " * 100], max_tokens=frame + 3)
    assert len(long) == frame + 3 and long[-3] == encoder.tokenizer.mask_token_id
    with pytest.warns(UserWarning, match="longer than"):
        _, cut = encoder.encode(["cat dog " * 100, "cat"], max_tokens=frame + 3, return_truncated=True)
    assert cut == [0]
    with pytest.raises(ConfigError, match=rf"the template .* alone has {frame} tokens.*Use {frame + 1} or more"):
        encoder.encode(["cat"], max_tokens=frame)


def test_a_folder_keeps_its_template(checkpoints, tmp_path) -> None:
    encoder = Encoder.load(checkpoints("bert"), pooler="mask", template=TEMPLATE)
    with pytest.warns(UserWarning, match="sentence-transformers cannot load this model: it has no pooling like 'mask'"):
        encoder.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved/twinpass.json").read_text())["template"] == TEMPLATE
    again = Encoder.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.encode(SENTENCES), encoder.encode(SENTENCES))
    other = Encoder.load(checkpoints("bert"), pooler="mask")
    assert again.fingerprint == encoder.fingerprint != other.fingerprint
    plain = Encoder.load(tmp_path / "saved", pooler="avg")
    np.testing.assert_allclose(
        plain.encode(SENTENCES), Encoder.load(checkpoints("bert"), pooler="avg").encode(SENTENCES), atol=1e-6
    )
    layered = [with_layer(each, Dense(32, 4)).encode(SENTENCES).shape for each in (again, encoder)]
    assert layered == [(8, 4)] * 2


def test_a_model_without_a_template_is_written_as_before(checkpoints, tmp_path) -> None:
    Encoder.load(checkpoints("bert"), pooler="avg").save(tmp_path / "saved")
    assert "template" not in json.loads((tmp_path / "saved/twinpass.json").read_text())


def test_an_exported_model_keeps_its_template(checkpoints, tmp_path) -> None:
    pytest.importorskip("openvino")
    folder = export(checkpoints("bert"), tmp_path / "exported", pooler="mask", template=TEMPLATE)
    encoder = Encoder.load(checkpoints("bert"), pooler="mask", template=TEMPLATE)
    np.testing.assert_allclose(Encoder.load(folder).encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-4)
    with pytest.raises(ConfigError, match="its template is"):
        Encoder.load(folder, template="[X] [MASK]")


def test_a_mask_token_of_another_name_is_put_in(checkpoints) -> None:
    encoder = Encoder.load(checkpoints("roberta"), pooler="mask", template=TEMPLATE)
    token = encoder.tokenizer.mask_token
    assert encoder.settings.template == TEMPLATE.replace("[MASK]", token)


def test_what_cannot_be_is_explained(checkpoints, tmp_path) -> None:
    bert = checkpoints("bert")
    for template in ("no places", "[X] only", "[X] [X] [MASK]", "[MASK] only"):
        with pytest.raises(ConfigError, match=r"a template has .* once"):
            Encoder.load(bert, pooler="mask", template=template)
    with pytest.raises(ConfigError, match="a template is for the pooler 'mask', not for 'avg'"):
        Encoder.load(bert, pooler="avg", template=TEMPLATE)
    with pytest.raises(ConfigError, match="a pooler of a template cannot be joined"):
        Encoder.load(bert, pooler="mask+cls")
    encoder = Encoder.load(bert, pooler="mask")
    with pytest.warns(UserWarning, match="sentence-transformers"):
        encoder.save(tmp_path / "saved")
    settings = tmp_path / "saved/twinpass.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"template": "none"}))
    (tmp_path / "saved/SHA256SUMS").unlink()
    with pytest.raises(ModelError, match=r"template is 'none'; expected text with \[X\] once"):
        Encoder.load(tmp_path / "saved")


def test_onnx_is_refused(checkpoints, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    from twinpass.workflows.export import export as share

    with pytest.raises(ModelError, match=r"reads texts in a template .* Use --format openvino or safetensors"):
        share(Encoder.load(checkpoints("bert"), pooler="mask"), output=tmp_path / "shared", format="onnx")
