"""What each training method reads, the defaults of its runs, and which options it uses. No torch: `--help` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from twinpass.errors import ConfigError


class MethodDefaults(NamedTuple):
    """What a method reads, and the defaults of its runs that differ from SimCSE's.

    They stand here and not in the method's file, which imports torch: a Run and `--help` need no torch.
    """

    reads: str
    fields: Mapping[str, Any]


_TEMPLATE, _OTHER_TEMPLATE = 'This sentence : "[X]" means [MASK] .', 'This sentence of "[X]" means [MASK] .'
_LABELLED = ("premise", "hypothesis", "label")
METHOD_DEFAULTS: dict[str, MethodDefaults] = {
    "simcse": MethodDefaults("one, two, three or more text columns", {}),
    # Carlsson et al., 2021. The rate has a schedule of its own, and dropout is off.
    "ct": MethodDefaults(
        "sentences", {"batch_size": 16, "learning_rate": 1e-5, "max_tokens": 75, "pooler": "avg", "clip": None}
    ),
    # Reimers and Gurevych, 2019, and the authors' library.
    "sbert": MethodDefaults(
        "premise, hypothesis, label",
        {"batch_size": 16, "learning_rate": 2e-5, "max_tokens": 128, "pooler": "avg", "columns": _LABELLED}
        | {"warmup": 0.1, "weight_decay": 0.01},
    ),
    # Zhang et al., 2020, and the authors' code.
    "is-bert": MethodDefaults(
        "sentences",
        {"batch_size": 32, "learning_rate": 2e-5, "max_tokens": 128, "pooler": "avg"}
        | {"warmup": 0.1, "weight_decay": 0.01},
    ),
    # Giorgi et al., 2021; max_tokens is the longest span.
    "declutr": MethodDefaults(
        "documents, or their lines in order",
        {"batch_size": 16, "learning_rate": 5e-5, "max_tokens": 512, "pooler": "avg"}
        | {"warmup": 0.1, "weight_decay": 0.1},
    ),
    # Devlin et al., 2019, with the rate at which an encoder is usually trained further.
    "mlm": MethodDefaults(
        "sentences; -m new:layers=6,width=256,vocabulary=8000 trains from scratch",
        {"batch_size": 64, "learning_rate": 5e-5, "max_tokens": 128, "pooler": "avg"}
        | {"warmup": 0.06, "weight_decay": 0.01},
    ),
    # Conneau et al., 2017. The paper cuts no sentence, and 512 words cut next to none.
    "infersent": MethodDefaults(
        "premise, hypothesis, label; -m names a file of word vectors",
        {"batch_size": 64, "learning_rate": 0.1, "max_tokens": 512, "columns": _LABELLED, "width": 2048}
        | {"clip": 5.0, "eval_every": None},
    ),
    # Fewer layers of -m, the teacher. With 1e-4 the loss falls more slowly (three layers of minilm, Wikipedia).
    "distill": MethodDefaults(
        "sentences; -m is the teacher", {"learning_rate": 3e-4, "max_tokens": 128, "layers": 3} | {"warmup": 0.1}
    ),
    # Wu et al., 2022: SimCSE's own batch and rate; the fields of its own have their defaults in Run.
    "esimcse": MethodDefaults("sentences", {}),
    # Jiang et al., 2022, and the authors' code. The template takes 8 of the 40 tokens.
    "promptbert": MethodDefaults(
        "sentences",
        {"batch_size": 256, "learning_rate": 1e-5, "max_tokens": 40, "pooler": "mask"}
        | {"template": _OTHER_TEMPLATE, "second_template": _TEMPLATE},
    ),
    # Chuang et al., 2022, and the authors' code for STS.
    "diffcse": MethodDefaults(
        "sentences", {"learning_rate": 7e-6, "pooler": "cls", "mlm_rate": 0.3, "eval_every": 125}
    ),
    # Wang et al., 2022, and the authors' code, where the template takes 10 of the 32 tokens; here it leaves 30.
    "sncse": MethodDefaults(
        "sentences",
        {"batch_size": 256, "learning_rate": 1e-5, "max_tokens": 40, "pooler": "mask"}
        | {"template": _TEMPLATE, "second_template": _OTHER_TEMPLATE},
    ),
    # Liu et al., 2023, by way of a public reimplementation.
    "rankcse": MethodDefaults("sentences; --teacher names a model", {"batch_size": 128}),
}
# Methods that add something to unsupervised SimCSE, and use its options of training.
AFTER_SIMCSE = ("esimcse", "promptbert", "diffcse", "sncse", "rankcse")
# Which methods use a field, where not all of them do.
_SIMCSE = ["view", "positive", "wordnet", "share_dropout_mask", "dual_encoder"]
_SIMCSE += [
    "hard_negative_weight",
    "mlm_weight",
    "matryoshka",
    "lora",
    "lora_alpha",
    "lora_merge",
    "label",
    "score",
    "mixture",
]
USERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_SIMCSE, ("simcse",)),
    **dict.fromkeys(("similarity", "temperature", "keep_duplicates"), ("simcse", *AFTER_SIMCSE)),
    "dropout": ("simcse", "sbert", "is-bert", "declutr", "mlm", *AFTER_SIMCSE),
    **dict.fromkeys(
        ("warmup", "weight_decay"), ("simcse", "sbert", "is-bert", "declutr", "mlm", "distill", *AFTER_SIMCSE)
    ),
    **dict.fromkeys(
        ("pooler", "precision"), ("simcse", "ct", "sbert", "is-bert", "declutr", "mlm", "distill", *AFTER_SIMCSE)
    ),
    "grad_checkpointing": ("simcse", "ct", "sbert", "is-bert", "declutr", "mlm", *AFTER_SIMCSE),
    "mlm_rate": ("simcse", "mlm", "diffcse"),
    **dict.fromkeys(("generator", "rtd_weight"), ("diffcse",)),
    "chunk_tokens": ("simcse", "ct", "sbert", "declutr", "distill", *AFTER_SIMCSE),
    **dict.fromkeys(("repetition", "queue", "momentum"), ("esimcse",)),
    **dict.fromkeys(("template", "second_template"), ("promptbert", "sncse")),
    **dict.fromkeys(("soft_negative_weight", "margin_low", "margin_high"), ("sncse",)),
    **dict.fromkeys(("teacher", "teacher_pooler", "teacher_share"), ("rankcse",)),
    **dict.fromkeys(("ranking", "ranking_temperature", "ranking_weight", "consistency_weight"), ("rankcse",)),
    "width": ("infersent",),
    **dict.fromkeys(("layers", "match"), ("distill",)),
}


# A model with random weights instead of a pretrained one, and its default sizes.
NEW_MODEL = "new:"
_NEW = {"layers": 6, "width": 256, "vocabulary": 8_000}


def new_model(name: str) -> dict[str, int]:
    """Return the sizes of a model named `new:layers=6,width=256,vocabulary=8000`; what is left out has its default."""
    sizes = dict(_NEW)
    for part in filter(None, name.removeprefix(NEW_MODEL).split(",")):
        field, _, value = part.partition("=")
        if field not in sizes or not value.isdecimal() or int(value) < 1:
            raise ConfigError(f"{name!r}: expected {NEW_MODEL} with layers=N, width=N or vocabulary=N, got {part!r}.")
        sizes[field] = int(value)
    heads = max(1, sizes["width"] // 64)
    if sizes["width"] % heads:
        raise ConfigError(f"{name!r}: the width must be a multiple of {heads}, its number of attention heads.")
    return sizes
