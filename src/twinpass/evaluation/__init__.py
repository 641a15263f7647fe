"""Evaluation: tasks, protocols, scores with confidence intervals, comparison of models."""
