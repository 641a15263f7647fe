"""The training methods, one file each: SimCSE, and the methods that the paper compares it with."""

from twinpass.training.method import METHODS, Method
from twinpass.training.methods import ct, declutr, infersent, isbert, pretraining, sbert, simcse

__all__ = ["METHODS", "Method", "ct", "declutr", "infersent", "isbert", "pretraining", "sbert", "simcse"]
