"""Generated data for a smoke test: text of every kind under its usual names, evaluation sets, and a tiny encoder."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twinpass.evaluation.tasks import TASKS, Part, Task
from twinpass.files import writing_folder

ROWS = 400
DIMENSIONS = 16  # small, and a flow can halve it three times
WORDS = ["a", "the", "cat", "dog", "man", "woman", "sits", "runs", "on", "mat", "red", "blue", "old", "young"]
_MORE_WORDS = ["nobody", "somebody", "happily", "near", "water", *(f"class{label}" for label in range(6))]
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_data(folder: Path) -> Path:
    """Write a data folder into one that exists, whole or not at all, unless it is there already."""
    if not folder.is_dir():
        with writing_folder(folder) as aside:
            rng = random.Random(0)
            sentences = list(dict.fromkeys(_sentence(rng) for _ in range(ROWS)))
            _write(aside / "wiki.txt", sentences)
            _write(aside / "nli_pairs.tsv", ["premise\thypothesis\tlabel", *_nli(sentences)])
            _write(aside / "pairs" / "qqp_6k.tsv", ["question1\tquestion2\tis_duplicate", *_questions(sentences)])
            _write(aside / "pairs" / "paranmt_6k.tsv", ["sent0\tsent1", *(f"{s}\t{_longer(s)}" for s in sentences)])
            _write(aside / "flickr30k_captions.tsv", _captions(sentences))
            _write(aside / "glove.txt", _word_vectors(rng))
            for task in TASKS:
                write_task(TASKS[task], aside / "senteval")
    return folder


def make_encoder(folder: Path) -> Path:
    """Write a tiny random BERT with a masked-language-model head, unless it is there already."""
    if not folder.is_dir():
        import torch
        from tokenizers import Tokenizer, models, pre_tokenizers, processors
        from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

        vocabulary = {word: place for place, word in enumerate([*_SPECIAL, *WORDS, *_MORE_WORDS])}
        words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        words.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        tokens = {f"{token.strip('[]').lower()}_token": token for token in _SPECIAL}
        config = BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=DIMENSIONS,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
        )
        with torch.random.fork_rng(devices=[]), writing_folder(folder) as aside:
            torch.manual_seed(0)
            model: Any = BertForMaskedLM(config)
            model.save_pretrained(aside)
            tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=words, **tokens)
            tokenizer.save_pretrained(aside)
    return folder


def write_task(task: Task, root: Path) -> Path:
    """Write every file of an evaluation task in SentEval's layout, with the true number of rows.

    The score of a pair is the share of words that its sentences have in common, and the first word of a sentence
    tells its class, so both can be learned.
    """
    rng = random.Random(task.name)
    for part in task.parts:
        for file in part.files:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
        _WRITERS[task.layout](task, part, root, rng)
    return root


def _sentence(rng: random.Random, first: str | None = None) -> str:
    """Return a few words, after a given first one if there is one."""
    words = rng.choices(WORDS, k=rng.randint(3, 9))
    return " ".join([first, *words] if first else words)


def _pair(rng: random.Random) -> tuple[str, str, float]:
    a, b = _sentence(rng), _sentence(rng)
    shared = len(set(a.split()) & set(b.split())) / len(set(a.split()) | set(b.split()))
    return a, b, round(5 * shared, 3)


def _parallel(task: Task, part: Part, root: Path, rng: random.Random) -> None:
    pairs = [_pair(rng) for _ in range(part.rows)]
    inputs = [f"{a}\t{b}\tmore\n" for a, b, _ in pairs] + ["never\tscored\n"]
    (root / part.files[0]).write_text("".join(inputs), encoding="utf-8")
    (root / part.files[1]).write_text("".join(f"{s}\n" for *_, s in pairs) + "\n", encoding="utf-8")


def _table(task: Task, part: Part, root: Path, rng: random.Random) -> None:
    lines = ["header\n"] if task.header else []
    target = task.target or 0
    for _ in range(part.rows):
        fields = ["x"] * (max(*task.texts, target) + 1)
        if len(task.texts) == 2:
            a, b, score = _pair(rng)
            fields[task.texts[0]], fields[task.texts[1]] = a, b
            fields[target] = str(int(score > 1) if task.classes else score)
        else:
            label = rng.randrange(task.classes)
            fields[0], fields[target] = _sentence(rng, f"class{label}"), str(label)
        lines.append("\t".join(fields) + "\n")
    (root / part.files[0]).write_text("".join(lines), encoding="utf-8")


def _lines(task: Task, part: Part, root: Path, rng: random.Random) -> None:
    rows = [_sentence(rng, f"class{part.label}") for _ in range(part.rows - 1)]
    (root / part.files[0]).write_text("\n".join([*rows, ""]) + "\n", encoding="latin-1")


def _trec(task: Task, part: Part, root: Path, rng: random.Random) -> None:
    names = ["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"]
    labels = [rng.randrange(6) for _ in range(part.rows)]
    rows = [f"{names[i]}:fine {_sentence(rng, f'class{i}')}\n" for i in labels]
    (root / part.files[0]).write_text("".join(rows), encoding="latin-1")


_WRITERS = {"parallel": _parallel, "table": _table, "lines": _lines, "trec": _trec}


def _nli(sentences: list[str]) -> Iterable[str]:
    for sentence in sentences:
        yield f"{sentence}\t{sentence.rpartition(' ')[0]}\tentailment"
        yield f"{sentence}\t{_longer(sentence)}\tneutral"
        yield f"{sentence}\tnobody {sentence}\tcontradiction"
        if len(sentence) % 2:  # some premises have two
            yield f"{sentence}\tnobody {_longer(sentence)}\tcontradiction"


def _questions(sentences: list[str]) -> Iterable[str]:
    for place, sentence in enumerate(sentences):
        yield f"{sentence}\t{_longer(sentence)}\t1" if place % 2 else f"{sentence}\t{sentences[place - 1]}\t0"


def _captions(sentences: list[str]) -> Iterable[str]:
    yield "\t".join(["split", "image", *(f"cap{place}" for place in range(1, 6))])
    for number, place in enumerate(range(0, len(sentences) - 4, 5)):
        yield "\t".join(["train", f"{number}.jpg", *sentences[place : place + 5]])


def _word_vectors(rng: random.Random) -> Iterable[str]:
    for word in [*WORDS, *_MORE_WORDS]:
        yield " ".join([word, *(f"{rng.gauss(0, 1):.4f}" for _ in range(DIMENSIONS))])


def _longer(sentence: str) -> str:
    return f"{sentence} near water"


def _write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
