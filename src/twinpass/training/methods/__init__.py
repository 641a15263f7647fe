"""The training methods, one file each: SimCSE, the methods that the paper compares it with, and methods built on it."""

from twinpass.training.method import METHODS, Method
from twinpass.training.methods import (
    ct,
    declutr,
    diffcse,
    distill,
    esimcse,
    infersent,
    isbert,
    pretraining,
    promptbert,
    rankcse,
    sbert,
    simcse,
    sncse,
)

__all__ = ["METHODS", "Method", "ct", "declutr", "diffcse", "distill", "esimcse"]
__all__ += ["infersent", "isbert", "pretraining", "promptbert", "rankcse", "sbert", "simcse", "sncse"]
