"""Five people's jobs with twinpass, each from its data to an answer that is checked.

    python examples/five_jobs.py            all of them, in a temporary folder
    python examples/five_jobs.py researcher --folder work

The data scientist has a table of support tickets, the researcher compares trainings, the backend engineer runs a
service, one user writes Python only, and one comes from sentence-transformers and goes back.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import twinpass
from twinpass.cli.main import main as command_line

TICKETS = """ticket_id,subject,body,category,year
101,Printer on fire,The office printer started smoking and then caught fire.,hardware,2024
102,Cannot log in,I forgot my password and the reset mail never arrives.,account,2023
103,Invoice is wrong,You charged me twice for the same month.,billing,2024
104,Refund please,I was billed two times in March and want my money back.,billing,2023
105,Screen stays black,After the update my monitor shows nothing at all.,hardware,2024
106,Password reset,The link to reset my password has expired.,account,2024
107,Where is my parcel,The tracking page has not changed for nine days.,shipping,2024
108,Late delivery,My order should have arrived last week.,shipping,2023
109,Late delivery,My order should have arrived last week.,shipping,2024
"""
SCORED = """sentence1,sentence2,score
I was charged twice.,You billed me two times.,5
I was charged twice.,The invoice is wrong.,3
The printer burns.,The printer is on fire.,5
The printer burns.,My password has expired.,0
My parcel is late.,The delivery has not arrived.,4
My parcel is late.,The monitor stays black.,0
"""
SENTENCES = [row["body"] for row in csv.DictReader(io.StringIO(TICKETS))]


def run(*words: object) -> str:
    """Run a command of twinpass and return what it prints."""
    line = [str(word) for word in words]
    print("$ twinpass", " ".join(line))
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        try:
            command_line([*line, "--quiet"])
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(f"exit code {ended.code}") from ended
    return shown.getvalue()


def data_scientist(model: str) -> None:
    """From a table of tickets to answers, groups and duplicates, without a line of Python."""
    Path("tickets.csv").write_text(TICKETS)
    together = ("--columns", "subject,body", "--join", " ", "-m", model)
    run("encode", "tickets.csv", *together, "-o", "tickets.parquet")
    import pyarrow.parquet as pq

    assert {"ticket_id", "category", "year", "vector"} <= {*pq.read_table("tickets.parquet").column_names}

    print(run("index", "build", "tickets.csv", *together, "--id-column", "ticket_id", "-o", "tickets"))
    where = "category in (billing, 'account') and not year < 2024"
    found = json.loads(run("search", "tickets", "I paid twice", "--where", where, "--json"))
    hits = found["results"][0]["hits"]
    assert {hit["metadata"]["category"] for hit in hits} <= {"billing", "account"} and hits
    assert all(int(hit["metadata"]["year"]) >= 2024 for hit in hits)

    run("search", "tickets", "password", "--mode", "hybrid", "-k", 3, "-o", "hits.csv")
    with Path("hits.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 3 and any("password" in row["text"] for row in rows)
    keyword = json.loads(run("search", "tickets", "parcel", "--mode", "keyword", "--json"))["results"][0]["hits"]
    assert [str(hit["id"]) for hit in keyword] == ["107"]

    run("cluster", "tickets", "-o", "groups.parquet")
    assert pq.read_table("groups.parquet").num_rows == 9
    print(run("dedupe", "tickets", "--threshold", 0.99, "-o", "duplicates.jsonl"))
    assert "last week" in Path("duplicates.jsonl").read_text()


def researcher(model: str) -> None:
    """Train, evaluate two models side by side, test the difference, run a table of the paper."""
    Path("sentences.txt").write_text("\n".join(SENTENCES) + "\n")
    Path("scored.csv").write_text(SCORED)
    run("train", "sentences.txt", "-m", model, "--dev", "scored.csv", "-o", "trained", "--steps", 3, "--batch-size", 4)
    card = Path("trained/README.md").read_text()
    assert "SHA-256" in card and "spearman_cosine" in card
    task = ("--tasks", "scored:scored.csv", "--resamples", 100)
    print(run("evaluate", model, "trained", *task, "-o", "scores.json", "-o", "scores.md"))
    assert "trained" in Path("scores.md").read_text() and Path("scores.json").is_file()
    print(run("compare", model, "trained", *task))
    run("reproduce", "table-d2", "--scale", "smoke", "-o", "reproduction")
    assert any(Path("reproduction").iterdir())


def backend_engineer(model: str) -> None:
    """A service that the clients of OpenAI and TEI, and curl, already know; texts are added while it runs."""
    import urllib.request

    from openai import OpenAI

    Path("tickets.csv").write_text(TICKETS)
    run("index", "build", "tickets.csv", "--columns", "body", "--id-column", "ticket_id", "-m", model, "-o", "served")
    with _service("--index", "served", "--api-key", "secret", "--name", "mine") as address:
        client = OpenAI(base_url=f"{address}/v1", api_key="secret")
        answer = client.embeddings.create(model="mine", input=SENTENCES[:2])
        expected = twinpass.Encoder.load(model, device="cpu").encode(SENTENCES[:2])
        assert np.allclose([each.embedding for each in answer.data], expected, atol=1e-4)

        def post(path: str, document: object) -> object:
            data, headers = json.dumps(document).encode(), {"Authorization": "Bearer secret"}
            if shutil.which("curl"):  # which sends no JSON content type by itself
                line = ["curl", "-sf", f"{address}{path}", "-H", "Authorization: Bearer secret", "-d", data.decode()]
                return json.loads(subprocess.run(line, check=True, capture_output=True).stdout)
            request = urllib.request.Request(f"{address}{path}", data=data, headers=headers)
            return json.load(urllib.request.urlopen(request))

        assert len(post("/embed", {"inputs": ["a cat sat", "stocks fell"]})) == 2
        new = {"ticket_id": "110", "subject": "Coffee", "category": "kitchen", "year": "2025"}
        print(post("/index/texts", {"texts": ["The coffee machine leaks."], "metadata": [new]}))
        found = post("/search", {"query": "The coffee machine leaks.", "k": 1, "where": "category == kitchen"})
        assert found["results"][0]["hits"][0]["text"] == "The coffee machine leaks."


def python_user(model: str) -> None:
    """The same without a shell: every verb is a function."""
    Path("tickets.csv").write_text(TICKETS)
    encoder = twinpass.Encoder.load(model, device="cpu")
    index = twinpass.Index.build("by-python", "tickets.csv", encoder=encoder, columns="subject,body", join=" ")
    hits = index.search("late parcel", k=2, where="year >= 2023", mode="hybrid")
    print(hits)
    assert len(hits) == 2 and hits.records()[0]["category"]
    result = twinpass.train(
        twinpass.Run(data="memory", output="from-python", steps=2, batch_size=4, device="cpu"),
        rows=SENTENCES,
        encoder=encoder,
    )
    print(result)
    exported = twinpass.export("from-python", output="shared")
    assert exported.apart == 0 and not Path("shared/log.jsonl").exists()
    try:
        twinpass.open_corpus("missing.csv")
    except twinpass.UserError as error:
        print(error)


def sentence_transformers_user(model: str) -> None:
    """There and back: a model of sentence-transformers is trained here, and used there with the same vectors."""
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(_folder_of(model), device="cpu")
    theirs.save_pretrained("theirs")
    encoder = twinpass.Encoder.load("theirs", device="cpu")
    assert np.allclose(encoder.encode(SENTENCES), theirs.encode(SENTENCES), atol=1e-4)
    run_ = twinpass.Run(data="memory", model="theirs", output="tuned", steps=2, batch_size=4, device="cpu")
    twinpass.train(run_, rows=SENTENCES)
    back = SentenceTransformer("tuned", device="cpu").encode(["A sentence.", "Another one."])
    # The card has code for each library, for these two texts; all of it gives the same vectors.
    for code in re.findall(r"```python\n(.*?)```", Path("tuned/README.md").read_text(), flags=re.S):
        names: dict[str, object] = {}
        exec(code, names)
        assert np.allclose(names["vectors"], back, atol=1e-4), code


def _folder_of(model: str) -> str:
    from twinpass.encoder.load import find_folder

    return str(find_folder(model))


@contextlib.contextmanager
def _service(*words: str) -> Iterator[str]:
    """Start `twinpass serve` on a free port, yield its address, and stop it."""
    line = [sys.executable, "-m", "twinpass", "serve", "--port", "0", *words]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


JOBS = {
    "data-scientist": data_scientist,
    "researcher": researcher,
    "backend-engineer": backend_engineer,
    "python-user": python_user,
    "sentence-transformers-user": sentence_transformers_user,
}


def main() -> None:
    """Do the jobs that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", choices=[*JOBS, []], help="default: all")
    parser.add_argument("--model", default="minilm", help="a folder, a hub name, or minilm (built in)")
    parser.add_argument("--folder", type=Path, help="work here, and keep what was made (default: a temporary folder)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        before = Path.cwd()
        os.chdir(folder)
        try:
            for job in asked.jobs or JOBS:
                print(f"== {job}")
                JOBS[job](asked.model)
                print(f"== {job}: done")
        finally:
            os.chdir(before)


if __name__ == "__main__":
    main()
