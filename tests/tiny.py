"""Tiny randomly initialised models of every family, made when a test asks for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AutoModel,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    XLMRobertaConfig,
)

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = (
    "the a of to and in is it you that he was for on are as with his they at be this have from or one had "
    "by word but not what all were we when your can said there use an each which she do how their if will "
    "up other about out many then them these so some her would make like him into time has look two more "
    "write go see number no way could people my than first water been call who oil its now find long down "
    "day did get come made may part cat dog sat mat "
)
WORDS = TEXT.split()
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 66,
}

FAMILIES: dict[str, Any] = {
    "bert": lambda **common: BertConfig(**SIZES, **common),
    "roberta": lambda **common: RobertaConfig(**SIZES, **common),
    "distilbert": lambda **common: DistilBertConfig(
        dim=32, n_layers=3, n_heads=4, hidden_dim=48, max_position_embeddings=66, **common
    ),
    "mpnet": lambda **common: MPNetConfig(**SIZES, **common),
    "electra": lambda **common: ElectraConfig(embedding_size=16, **SIZES, **common),
    "albert": lambda **common: AlbertConfig(embedding_size=16, **SIZES, **common),
    "deberta": lambda **common: DebertaV2Config(**SIZES, **common),
    "modernbert": lambda **common: ModernBertConfig(
        **SIZES, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3, **common
    ),
    "xlm-roberta": lambda **common: XLMRobertaConfig(**SIZES, **common),
}


def make_tokenizer() -> PreTrainedTokenizerFast:
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = [*SPECIAL, *letters, *("##" + letter for letter in letters), *dict.fromkeys(WORDS), ".", ",", "!", "?"]
    vocabulary = {piece: place for place, piece in enumerate(dict.fromkeys(pieces))}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )


def make_checkpoint(folder: Path, family: str = "bert", *, seed: int = 0) -> Path:
    """Write a bare transformers checkpoint of the family."""
    tokenizer = make_tokenizer()
    config = FAMILIES[family](vocab_size=len(tokenizer), pad_token_id=0)
    torch.manual_seed(seed)
    model = AutoModel.from_config(config)
    with torch.no_grad():  # the default deviation is so small that all sentences look alike
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def export(source: str | Path, folder: Path, **loading: Any) -> Path:
    """Write a model of ours as an exported one: an OpenVINO graph in fp32."""
    from twinpass.encoder.encoder import Encoder
    from twinpass.encoder.export import make_graph, write_graph
    from twinpass.encoder.folder import save_exported

    encoder = Encoder.load(source, device="cpu", **loading)
    graph = write_graph(make_graph(encoder))
    save_exported(folder, encoder, graph, precision="fp32", measured={"cosine": 1.0}, card="# A tiny model, exported")
    return folder


SENTENCES = [
    "the cat sat on the mat",
    "",
    "a dog",
    "how many people find water and oil in the first part of the day?",
    "she said that they could look at it, and then go down to see what was made of it",
    "a dog",
    "Many words! More words? Yes.",
    "日本語 and some émigré text with 12345 numbers",
]
