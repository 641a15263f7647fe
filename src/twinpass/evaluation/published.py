"""What the paper published: Tables 5, B.2, B.3, C.1 and E.1, number for number."""

from __future__ import annotations

from typing import NamedTuple

from twinpass.evaluation.protocols import Cell


class Published(NamedTuple):
    """One row of a table: values of the seven tasks in the order of GROUPS, then their average."""

    table: str
    model: str
    training: str  # "unsupervised", "supervised", or empty where the table does not say
    source: str  # the paper the row was quoted from; empty where SimCSE's authors measured it
    cell: Cell | None  # the STS protocol; None for transfer accuracy
    values: tuple[float, ...]


_SOURCES = {
    "": "",
    "SBERT": "Reimers and Gurevych, 2019",
    "IS-BERT": "Zhang et al., 2020",
    "whitening": "Su et al., 2021",
    "flow, whitening": "Li et al., 2020; Su et al., 2021",
}
_ALL, _WMEAN = Cell("all", "spearman", False), Cell("wmean", "spearman", False)

_TABLE_5 = """
unsupervised | GloVe embeddings (avg.) | SBERT | 55.14 70.66 59.73 68.25 63.66 58.02 53.76 61.32
unsupervised | BERT-base (first-last avg.) |  | 39.70 59.38 49.67 66.03 66.19 53.87 62.06 56.70
unsupervised | BERT-base-flow |  | 58.40 67.10 60.85 75.16 71.22 68.66 64.47 66.55
unsupervised | BERT-base-whitening |  | 57.83 66.90 60.90 75.08 71.31 68.24 63.73 66.28
unsupervised | IS-BERT-base | IS-BERT | 56.77 69.24 61.21 75.23 70.16 69.21 64.25 66.58
unsupervised | CT-BERT-base |  | 61.63 76.80 68.47 77.50 76.48 74.31 69.19 72.05
unsupervised | SimCSE-BERT-base |  | 68.40 82.41 74.38 80.91 78.56 76.85 72.23 76.25
unsupervised | RoBERTa-base (first-last avg.) |  | 40.88 58.74 49.07 65.63 61.48 58.55 61.63 56.57
unsupervised | RoBERTa-base-whitening |  | 46.99 63.24 57.23 71.36 68.99 61.36 62.91 61.73
unsupervised | DeCLUTR-RoBERTa-base |  | 52.41 75.19 65.52 77.12 78.63 72.41 68.62 69.99
unsupervised | SimCSE-RoBERTa-base |  | 70.16 81.77 73.24 81.36 80.65 80.22 68.56 76.57
unsupervised | SimCSE-RoBERTa-large |  | 72.86 83.99 75.62 84.77 81.80 81.98 71.26 78.90
supervised | InferSent-GloVe | SBERT | 52.86 66.75 62.15 72.77 66.87 68.03 65.65 65.01
supervised | Universal Sentence Encoder | SBERT | 64.49 67.80 64.61 76.83 73.18 74.92 76.69 71.22
supervised | SBERT-base | SBERT | 70.97 76.53 73.19 79.09 74.30 77.03 72.91 74.89
supervised | SBERT-base-flow |  | 69.78 77.27 74.35 82.01 77.46 79.12 76.21 76.60
supervised | SBERT-base-whitening |  | 69.65 77.57 74.66 82.27 78.39 79.52 76.91 77.00
supervised | CT-SBERT-base |  | 74.84 83.20 78.07 83.84 77.93 81.46 76.42 79.39
supervised | SimCSE-BERT-base |  | 75.30 84.67 80.19 85.40 80.82 84.25 80.39 81.57
supervised | SRoBERTa-base | SBERT | 71.54 72.49 70.80 78.74 73.69 77.77 74.46 74.21
supervised | SRoBERTa-base-whitening |  | 70.46 77.07 74.46 81.64 76.43 79.49 76.65 76.60
supervised | SimCSE-RoBERTa-base |  | 76.53 85.21 80.95 86.03 82.57 85.83 80.50 82.52
supervised | SimCSE-RoBERTa-large |  | 77.46 87.27 82.36 86.66 83.93 86.70 81.95 83.76
"""

_TABLE_B2 = """
 | SBERT (all) |  | 70.97 76.53 73.19 79.09 74.30 76.98 72.91 74.85
 | SBERT (wmean) |  | 66.35 73.76 73.88 77.33 73.62 76.98 72.91 73.55
 | SBERT | SBERT | 70.97 76.53 73.19 79.09 74.30 77.03 72.91 74.89
 | BERT-whitening (NLI, all) |  | 57.83 66.90 60.89 75.08 71.30 68.23 63.73 66.28
 | BERT-whitening (NLI, wmean) |  | 61.43 65.90 65.96 74.80 73.10 68.23 63.73 67.59
 | BERT-whitening (NLI) | whitening | 61.69 65.70 66.02 75.11 73.11 68.19 63.60 67.63
 | BERT-whitening (target, all) |  | 42.88 77.77 66.27 63.60 67.58 71.34 60.40 64.26
 | BERT-whitening (target, wmean) |  | 63.38 73.01 69.13 74.48 72.56 71.34 60.40 69.19
 | BERT-whitening (target) | whitening | 63.62 73.02 69.23 74.52 72.15 71.34 60.60 69.21
"""

_TABLE_B3 = """
 | BERT-base (first-last avg.) | flow, whitening | 57.86 61.97 62.49 70.96 69.76 59.04 63.75 63.69
 | BERT-base (first-last avg.) + flow (NLI) | flow, whitening | 59.54 64.69 64.66 72.92 71.84 58.56 65.44 65.38
 | BERT-base (first-last avg.) + flow (target) | flow, whitening | 63.48 72.14 68.42 73.77 75.37 70.72 63.11 69.57
 | BERT-base (first-last avg.) + whitening (NLI) | flow, whitening | 61.69 65.70 66.02 75.11 73.11 68.19 63.60 67.63
 | BERT-base (first-last avg.) + whitening (target) | flow, whitening | 63.62 73.02 69.23 74.52 72.15 71.34 60.60 69.21
unsupervised | SimCSE-BERT-base |  | 70.14 79.56 75.91 81.46 79.07 76.85 72.23 76.46
 | SBERT-base (first-last avg.) | flow, whitening | 68.70 74.37 74.73 79.65 75.21 77.63 74.84 75.02
 | SBERT-base (first-last avg.) + flow (NLI) | flow, whitening | 67.75 76.73 75.53 80.63 77.58 79.10 78.03 76.48
 | SBERT-base (first-last avg.) + flow (target) | flow, whitening | 68.95 78.48 77.62 81.95 78.94 81.03 74.97 77.42
 | SBERT-base (first-last avg.) + whitening (NLI) | flow, whitening | 69.11 75.79 75.76 82.31 79.61 78.66 76.33 76.80
 | SBERT-base (first-last avg.) + whitening (target) | flow, whitening | 69.01 78.10 77.04 80.83 77.93 80.50 72.54 76.56
supervised | SimCSE-BERT-base |  | 70.90 81.49 80.19 83.79 81.89 84.25 80.39 80.41
"""

_TABLE_C1 = """
 | BERT-flow (NLI) |  | 58.40 67.10 60.85 75.16 71.22 68.66 64.47 66.55
 | BERT-flow (target) |  | 53.15 78.38 66.02 62.09 70.84 71.70 61.97 66.31
 | BERT-whitening (NLI) |  | 57.83 66.90 60.90 75.08 71.31 68.24 63.73 66.28
 | BERT-whitening (target) |  | 42.88 77.77 66.28 63.60 67.58 71.34 60.40 64.26
 | SBERT-flow (NLI) |  | 69.78 77.27 74.35 82.01 77.46 79.12 76.21 76.60
 | SBERT-flow (target) |  | 66.18 82.69 76.22 73.72 75.71 79.99 73.82 75.48
 | SBERT-whitening (NLI) |  | 69.65 77.57 74.66 82.27 78.39 79.52 76.91 77.00
 | SBERT-whitening (target) |  | 52.91 81.91 75.44 72.24 72.93 80.50 72.54 72.64
"""

_TABLE_E1 = """
unsupervised | GloVe embeddings (avg.) | SBERT | 77.25 78.30 91.17 87.85 80.18 83.00 72.87 81.52
unsupervised | Skip-thought | IS-BERT | 76.50 80.10 93.60 87.10 82.00 92.20 73.00 83.50
unsupervised | Avg. BERT embeddings | SBERT | 78.66 86.25 94.37 88.66 84.40 92.80 69.54 84.94
unsupervised | BERT-[CLS] embedding | SBERT | 78.68 84.85 94.21 88.23 84.13 91.40 71.13 84.66
unsupervised | IS-BERT-base | IS-BERT | 81.09 87.18 94.96 88.75 85.96 88.64 74.24 85.83
unsupervised | SimCSE-BERT-base |  | 81.18 86.46 94.45 88.88 85.50 89.80 74.43 85.81
unsupervised | SimCSE-BERT-base w/ MLM |  | 82.92 87.23 95.71 88.73 86.81 87.01 78.07 86.64
unsupervised | SimCSE-RoBERTa-base |  | 81.04 87.74 93.28 86.94 86.60 84.60 73.68 84.84
unsupervised | SimCSE-RoBERTa-base w/ MLM |  | 83.37 87.76 95.05 87.16 89.02 90.80 75.13 86.90
unsupervised | SimCSE-RoBERTa-large |  | 82.74 87.87 93.66 88.22 88.58 92.00 69.68 86.11
unsupervised | SimCSE-RoBERTa-large w/ MLM |  | 84.66 88.56 95.43 87.50 89.46 95.00 72.41 87.57
supervised | InferSent-GloVe | SBERT | 81.57 86.54 92.50 90.38 84.18 88.20 75.77 85.59
supervised | Universal Sentence Encoder | SBERT | 80.09 85.19 93.98 86.70 86.38 93.20 70.14 85.10
supervised | SBERT-base | SBERT | 83.64 89.43 94.39 89.86 88.96 89.60 76.00 87.41
supervised | SimCSE-BERT-base |  | 82.69 89.25 94.81 89.59 87.31 88.40 73.51 86.51
supervised | SimCSE-BERT-base w/ MLM |  | 82.68 88.88 94.52 89.82 88.41 87.60 76.12 86.86
supervised | SRoBERTa-base |  | 84.91 90.83 92.56 88.75 90.50 88.60 78.14 87.76
supervised | SimCSE-RoBERTa-base |  | 84.92 92.00 94.11 89.82 91.27 88.80 75.65 88.08
supervised | SimCSE-RoBERTa-base w/ MLM |  | 85.08 91.76 94.02 89.72 92.31 91.20 76.52 88.66
supervised | SimCSE-RoBERTa-large |  | 88.12 92.37 95.11 90.49 92.75 91.80 76.64 89.61
supervised | SimCSE-RoBERTa-large w/ MLM |  | 88.45 92.53 95.19 90.58 93.30 93.80 77.74 90.23
"""


def _rows(table: str, text: str, cell: Cell | None) -> list[Published]:
    rows = []
    for line in text.strip().splitlines():
        training, model, source, values = (field.strip() for field in line.split("|"))
        numbers = tuple(float(value) for value in values.split())
        rows.append(Published(table, model, training, _SOURCES[source], cell, numbers))
    return rows


def _own_cell(row: Published) -> Published:
    """Table B.2 mixes protocols: a row names its own, and whitening's authors used wmean."""
    wmean = "wmean" in row.model or row.source == _SOURCES["whitening"]
    return row._replace(cell=_WMEAN if wmean else _ALL)


PUBLISHED = (
    *_rows("5", _TABLE_5, _ALL),
    *(_own_cell(row) for row in _rows("B.2", _TABLE_B2, _ALL)),
    *_rows("B.3", _TABLE_B3, _WMEAN),
    *_rows("C.1", _TABLE_C1, _ALL),
    *_rows("E.1", _TABLE_E1, None),
)


def published_beside(cell: Cell | None) -> list[Published]:
    """Return the rows that a score may be compared with: those of the same protocol, each model once."""
    rows = {row.values: row for row in reversed(PUBLISHED) if row.cell == cell}
    return list(rows.values())[::-1]
