import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twinpass.encoder.any_model import EmbeddingsService, Model, open_model
from twinpass.encoder.vector_cache import checked_vectors
from twinpass.encoder.wordvectors import WordVectors
from twinpass.errors import ConfigError, ModelError

GLOVE = "the 1 0\ncat 0 2\n. 4 4\nnew york 3 3\n"


def test_a_function_is_a_model():
    def encode(texts):
        return np.ones((len(texts), 2))

    model = open_model(encode)
    assert (model.name, model.fingerprint) == ("encode", None)
    assert model.encode(["a"]).shape == (1, 2)


@pytest.mark.parametrize("name", ["glove.txt", "glove.txt.gz", "glove.vec"])
def test_word_vectors_average_known_words(tmp_path, name):
    data = ("4 2\n" if name.endswith("vec") else "") + GLOVE
    write = gzip.open if name.endswith("gz") else open
    with write(tmp_path / name, "wt", encoding="utf-8") as stream:
        stream.write(data)
    model = open_model(tmp_path / name)
    encoded = model.encode(["the cat", "The CAT.", "unknown words", ""])
    np.testing.assert_allclose(encoded, [[0.5, 1], [5 / 3, 2], [0, 0], [0, 0]], rtol=1e-6)
    assert len(model.fingerprint) == 64
    assert WordVectors.load(tmp_path / name).words["new york"] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a 1 2\nb 1\n", ":2: expected a word and 2 numbers"),
        ("a x\n", ":1: expected a word and numbers"),
    ],
)
def test_broken_word_vectors_are_refused_by_line(tmp_path, text, message):
    (tmp_path / "w.txt").write_text(text)
    with pytest.raises(ModelError, match=message):
        open_model(tmp_path / "w.txt")


def test_glove_of_the_shared_data(shared):
    model = open_model(shared / "data" / "glove_100d_40k.txt.gz")
    a, b, c = model.encode(["a man plays a guitar", "someone plays music", "the stock market fell"])
    assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > a @ c / np.linalg.norm(a) / np.linalg.norm(c)


def test_precomputed_parquet_and_npy(tmp_path):
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 2)
    pq.write_table(pa.table({"text": ["a", "b", "c"], "vector": column}), tmp_path / "v.parquet")
    np.save(tmp_path / "w.npy", vectors)
    (tmp_path / "w.txt").write_text("a\nb\nc\n")
    for name in ("v.parquet", "w.npy"):
        model = open_model(tmp_path / name)
        np.testing.assert_array_equal(model.encode(["c", "a", ""]), [[4, 5], [0, 1], [0, 0]])
        with pytest.raises(ModelError, match="no vector for 1 of 2 texts, the first of them 'zebra'"):
            model.encode(["a", "zebra"])


def test_precomputed_files_that_do_not_fit_are_refused(tmp_path):
    np.save(tmp_path / "w.npy", np.ones((3, 2)))
    with pytest.raises(ModelError, match="needs its texts beside it"):
        open_model(tmp_path / "w.npy")
    (tmp_path / "w.txt").write_text("a\nb\n")
    with pytest.raises(ModelError, match=r"\(3, 2\) for 2 texts"):
        open_model(tmp_path / "w.npy")
    pq.write_table(pa.table({"words": ["a"]}), tmp_path / "v.parquet")
    with pytest.raises(ModelError, match="columns text and vector"):
        open_model(tmp_path / "v.parquet")
    with pytest.raises(ModelError, match="no file"):
        open_model(tmp_path / "missing.npy")


def test_a_folder_of_shards_is_one_file_of_stored_vectors(tmp_path):
    folder = tmp_path / "shards.parquet"
    folder.mkdir()
    (folder / "_job.json").write_text("{}")
    for number, text in enumerate("ab"):
        pq.write_table(pa.table({"text": [text], "vector": [[float(number), 1.0]]}), folder / f"{number}.parquet")
    np.testing.assert_array_equal(open_model(folder).encode(["b", "a"]), [[1, 1], [0, 1]])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.full((2, 3), np.nan), "NaN or infinity for 2 of 2 texts, the first of them 'a'"),
        (np.ones(2), r"shape \(2,\)"),
        (np.ones((3, 2)), r"shape \(3, 2\)"),
        (np.array([["x"], ["y"]]), "expected numbers"),
    ],
)
def test_what_cannot_be_judged_is_refused(returned, message):
    with pytest.raises(ModelError, match=message):
        checked_vectors(Model("m", lambda texts: returned), ["a", "b"])


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, self.headers.get("Authorization"), body))
        status = self.server.answers.pop(0) if self.server.answers else 200
        data = [{"index": i, "embedding": [len(t), 1.0]} for i, t in enumerate(body["input"])]
        answer = {"data": data[::-1]} if status == 200 else {"error": "busy"}
        self.send_response(200 if status == "cut" else status)
        if status == "cut":  # the answer ends before its announced length
            self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.seen, server.answers = [], []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def url(server):
    return f"http://127.0.0.1:{server.server_port}/v1"


def test_an_embeddings_service_is_a_model(server, monkeypatch):
    monkeypatch.setenv("TWINPASS_API_KEY", "mine")
    texts = ["x" * (i % 7) for i in range(300)]
    vectors = open_model(url(server) + "#small").encode(texts)
    np.testing.assert_array_equal(vectors[:, 0], [len(t) for t in texts])
    assert [len(body["input"]) for *_, body in server.seen] == [128, 128, 44]
    path, key, body = server.seen[0]
    assert (path, key, body["model"]) == ("/v1/embeddings", "Bearer mine", "small")


def test_openais_key_goes_to_nobody_else(server, monkeypatch):
    monkeypatch.delenv("TWINPASS_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    open_model(url(server)).encode(["a"])
    assert server.seen[0][1] is None


def test_a_busy_service_is_asked_again_and_a_refusal_is_not(server):
    server.answers = [503, 429]
    assert EmbeddingsService(url(server), pause=0).encode(["abc"])[0, 0] == 3
    server.answers = [401]
    with pytest.raises(ModelError, match=r"answered 401.*TWINPASS_API_KEY"):
        EmbeddingsService(url(server), pause=0).encode(["abc"])


def test_an_answer_that_breaks_off_is_asked_for_again(server):
    server.answers = ["cut"]
    assert EmbeddingsService(url(server), pause=0).encode(["abc"])[0, 0] == 3
    server.answers = ["cut"] * 4
    with pytest.raises(ModelError, match="cannot be reached: IncompleteRead"):
        EmbeddingsService(url(server), pause=0).encode(["abc"])


def test_a_service_that_is_not_there_says_so():
    with pytest.raises(ModelError, match="cannot be reached"):
        EmbeddingsService("http://127.0.0.1:9/v1", pause=0).encode(["abc"])


def test_damaged_word_vectors_are_refused(tmp_path):
    path = tmp_path / "words.txt.gz"
    content = bytearray(gzip.compress("".join(f"word{n} {n} 1 2\n" for n in range(500)).encode()))
    content[20:60] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(ModelError, match="cannot be read as word vectors"):
        WordVectors.load(path)


def test_word_vectors_may_leave_out_stop_words(tmp_path):
    """SBERT's GloVe row does: a sentence is the mean of its content words, and punctuation does not count."""
    path = tmp_path / "words.txt"
    path.write_text("the 1 0\ncat 0 2\nsat 0 4\n. 8 8\n")
    every, content = open_model(path), open_model(path, pooler="avg_content")
    assert every.encode(["The cat sat ."]).tolist() == [[2.25, 3.5]]
    assert content.encode(["The cat sat .", "the ."]).tolist() == [[0.0, 3.0], [0.0, 0.0]]
    assert every.fingerprint != content.fingerprint
    assert (every.name, content.name) == (str(path), f"{path}#pooler=avg_content"), "tables show both beside each other"
    with pytest.raises(ConfigError, match="avg_content: the same without English stop words"):
        open_model(path, pooler="cls")
