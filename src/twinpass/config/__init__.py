"""A training run as data: its options, their checks, the defaults of each method, and the paper's presets."""

from twinpass.config.methods import METHOD_DEFAULTS, NEW_MODEL, USERS, new_model
from twinpass.config.mixture import PART_FIELDS, Part, parts_of, read_part
from twinpass.config.positives import POSITIVES, Positive, read_positive
from twinpass.config.presets import PRESETS, SUP, UNSUP
from twinpass.config.run import Run
from twinpass.config.sizes import read_sizes

__all__ = [
    "METHOD_DEFAULTS",
    "NEW_MODEL",
    "PART_FIELDS",
    "POSITIVES",
    "PRESETS",
    "SUP",
    "UNSUP",
    "USERS",
    "Part",
    "Positive",
    "Run",
    "new_model",
    "parts_of",
    "read_part",
    "read_positive",
    "read_sizes",
]
