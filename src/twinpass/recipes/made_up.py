"""Everything that a smoke test needs, made up on the spot: text of every kind under its usual names, and an encoder."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twinpass.evaluation.tasks import TASKS
from twinpass.files import explaining, writing_folder
from twinpass.recipes.made_up_tasks import WORDS, make_sentence, write_task

ROWS = 400
DIMENSIONS = 16  # small, and three halvings of a flow leave a whole number
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_MORE_WORDS = ["nobody", "somebody", "happily", "near", "water", *(f"class{label}" for label in range(6))]


def make_data(folder: Path) -> Path:
    """Write a data folder, whole or not at all, unless it is there already."""
    if not folder.is_dir():
        _make_parent(folder)
        with writing_folder(folder) as aside:
            rng = random.Random(0)
            sentences = list(dict.fromkeys(make_sentence(rng) for _ in range(ROWS)))
            _write(aside / "wiki.txt", sentences)
            _write(aside / "nli_pairs.tsv", ["premise\thypothesis\tlabel", *_nli(sentences)])
            _write(aside / "pairs" / "qqp_6k.tsv", ["question1\tquestion2\tis_duplicate", *_questions(sentences)])
            _write(aside / "pairs" / "paranmt_6k.tsv", ["sent0\tsent1", *(f"{s}\t{_longer(s)}" for s in sentences)])
            _write(aside / "flickr30k_captions.tsv", [_CAPTIONS, *_images(sentences)])
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

        _make_parent(folder)
        vocabulary = {word: place for place, word in enumerate([*_SPECIAL, *WORDS, *_MORE_WORDS])}
        words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        words.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        names = dict(zip(("pad", "unk", "cls", "sep", "mask"), _SPECIAL, strict=True))
        tokens = {f"{name}_token": token for name, token in names.items()}
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


_CAPTIONS = "\t".join(["split", "image", *(f"cap{place}" for place in range(1, 6))])


def _nli(sentences: list[str]) -> Iterable[str]:
    for sentence in sentences:
        yield f"{sentence}\t{_shorter(sentence)}\tentailment"
        yield f"{sentence}\t{_longer(sentence)}\tneutral"
        yield f"{sentence}\tnobody {sentence}\tcontradiction"


def _questions(sentences: list[str]) -> Iterable[str]:
    for place, sentence in enumerate(sentences):
        yield f"{sentence}\t{_longer(sentence)}\t1" if place % 2 else f"{sentence}\t{sentences[place - 1]}\t0"


def _images(sentences: list[str]) -> Iterable[str]:
    for number, place in enumerate(range(0, len(sentences) - 4, 5)):
        yield "\t".join(["train", f"{number}.jpg", *sentences[place : place + 5]])


def _word_vectors(rng: random.Random) -> Iterable[str]:
    for word in [*WORDS, *_MORE_WORDS]:
        yield " ".join([word, *(f"{rng.gauss(0, 1):.4f}" for _ in range(DIMENSIONS))])


def _shorter(sentence: str) -> str:
    return sentence.rpartition(" ")[0]


def _longer(sentence: str) -> str:
    return f"{sentence} near water"


def _make_parent(folder: Path) -> None:
    with explaining(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)


def _write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
