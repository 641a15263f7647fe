"""What the paper compares itself with, trained here: CT, SBERT, IS-BERT, DeCLUTR and InferSent."""

from twinpass.training.baselines import ct, declutr, infersent, isbert, sbert
from twinpass.training.baselines.base import BASELINES, Baseline
from twinpass.training.baselines.loop import train_baseline
from twinpass.training.baselines.run import BaselineResult, BaselineRun

__all__ = [
    "BASELINES",
    "Baseline",
    "BaselineResult",
    "BaselineRun",
    "ct",
    "declutr",
    "infersent",
    "isbert",
    "sbert",
    "train_baseline",
]
