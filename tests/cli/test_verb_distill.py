"""The verb `distill`: its options reach the library, and mistakes exit with 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import twinpass
from twinpass.encoder.encoder import Encoder


def test_a_static_student(run, model: str, sentences: Path, tmp_path: Path) -> None:
    output = tmp_path / "static"
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("question,answer\nthe cat,a cat sat\noil people,people and oil\n")
    options = ["--static", "--dimensions", 6, "--tasks", f"retrieval:{pairs}", "-o", output]
    ran = run("distill", model, sentences, *options, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["kind"], found["student"]["dimensions"], found["made"]["weights"]) == ("static", 6, "text")
    assert run("similarity", "-m", output, "a cat", "the cat").code == 0
    again = run("distill", model, sentences, *options)
    assert again.code == 2 and "Add --overwrite" in again.err


def test_a_student_with_layers(run, model: str, sentences: Path, tmp_path: Path) -> None:
    output = tmp_path / "student"
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("question,answer\nthe cat,a cat sat\noil people,people and oil\n")
    options = ["--layers", 1, "--match", "vectors", "--steps", 2, "--batch-size", 4, "--lr", 1e-3]
    ran = run("distill", model, sentences, *options, "--tasks", f"retrieval:{pairs}", "-o", output)
    assert ran.code == 0, ran.err
    assert "student (1 layer)" in ran.out and "R@1" in ran.out and "step 2/2" in ran.err
    assert Encoder.load(output).model.transformer.config.num_hidden_layers == 1


def test_mistakes_exit_with_2(run, model: str, sentences: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("question,answer\nthe cat,a cat sat\noil people,people and oil\n")
    asked = ["--tasks", f"retrieval:{tmp_path / 'pairs.csv'}", "-o", tmp_path / "out"]
    for options, message in (
        ([], "Choose one of the two"),
        (["--layers", 7], "so a student has 1 to"),
        (["--static", "--steps", 3], "nothing is trained"),
        (["--static", "--weights", "idf"], "weights must be one of"),
    ):
        ran = run("distill", model, sentences, *options, *asked)
        assert (ran.code, ran.out) == (2, "") and message in ran.err, ran.err
    ran = run("distill", model, tmp_path / "nothing.txt", "--static", *asked)
    assert ran.code == 2 and "nothing.txt" in ran.err


def test_the_help_has_the_defaults_of_distill_and_of_no_other_method(run) -> None:
    ran = run("distill", "--help")
    assert ran.code == 0 and "declutr" not in ran.out and "distill only" not in ran.out
    assert "[128]" in ran.out and "[0.0003]" in ran.out


def test_search_and_serve_with_a_static_student_need_no_torch(model: str, sentences: Path, tmp_path: Path) -> None:
    student, index = str(tmp_path / "static"), str(tmp_path / "index")
    twinpass.distill(model, sentences, output=student, static=True, dimensions=6, tasks=[])
    twinpass.Index.build(index, str(sentences), encoder=student)
    code = (
        "import sys\nfrom fastapi.testclient import TestClient\nimport twinpass\nfrom twinpass.cli.main import main\n"
        f"try: main(['search', {index!r}, 'the cat', '--json'])\nexcept SystemExit: pass\n"
        f"with TestClient(twinpass.create_app({student!r})) as client:\n"
        "    answer = client.post('/v1/embeddings', json={'input': ['a cat', 'two dogs']}).json()\n"
        "print('\\nSERVED', [len(each['embedding']) for each in answer['data']])\n"
        "print(sorted({'torch', 'transformers', 'openvino'} & sys.modules.keys()))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "the cat sat on the mat" in ran.stdout
    assert ran.stdout.endswith("SERVED [6, 6]\n[]\n")
