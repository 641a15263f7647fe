"""Read a task's files, or its copy on the hub, and refuse data that is not what the task says."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from twinpass.errors import ConfigError, InputError
from twinpass.evaluation.tasks import Part, Task
from twinpass.files import sha256
from twinpass.text.corpus import open_corpus

HUB = "hub"
_ON_HUB = {
    "STS12": "mteb/sts12-sts",
    "STS13": "mteb/sts13-sts",
    "STS14": "mteb/sts14-sts",
    "STS15": "mteb/sts15-sts",
    "STS16": "mteb/sts16-sts",
    "STS-B": "mteb/stsbenchmark-sts",
}
_HUB_SPLITS = {"dev": "validation"}
_TREC = {"ABBR": 0, "DESC": 1, "ENTY": 2, "HUM": 3, "LOC": 4, "NUM": 5}


class Rows(NamedTuple):
    """The rows of one part: texts[i] are the one or two texts of row i, targets[i] its score or class."""

    texts: list[tuple[str, ...]]
    targets: list[float]


class Data(NamedTuple):
    """A task with its rows by part, and the SHA-256 of each file they came from."""

    task: Task
    parts: dict[str, Rows]
    sha256: dict[str, str]


def read_task(task: Task, folder: str | Path, *, parts: tuple[str, ...] | None = None) -> Data:
    """Read a task (or only some of its parts) from a folder in SentEval's layout."""
    root = find_root(Path(folder))
    chosen = [part for part in task.parts if parts is None or part.name in parts]
    rows = {part.name: _read_part(task, part, root) for part in chosen}
    return Data(task, rows, {file: _check_hash(task, root, file) for part in chosen for file in part.files})


def read_hub_task(task: Task, *, split: str) -> Data:
    """Read one STS task from the hub: mteb's copies are not tokenised and do not mark their subsets."""
    if task.name not in _ON_HUB:
        known = ", ".join(_ON_HUB)
        # The hub's SICK-R is all 9,927 pairs, not the 4,927 of its test split.
        raise ConfigError(f"{task.name} is not on the hub in the form of its protocol. Available: {known}.")
    whole = task.protocol == "subsets"
    source = f"hf:{_ON_HUB[task.name]}:{'test' if whole else _HUB_SPLITS.get(split, split)}"
    corpus = open_corpus(source, columns=["sentence1", "sentence2"], score="score")
    rows = [(row.texts, row.score or 0.0) for row in corpus]
    expected = sum(part.rows for part in task.parts if whole or part.name == split)
    if len(rows) != expected:
        raise InputError(f"{task.name}: expected {expected} rows, got {len(rows)} in {source}.")
    part = Rows([texts for texts, _ in rows], [score for _, score in rows])
    return Data(task, {"test" if whole else split: part}, {source: corpus.fingerprint()})


def senteval_order(parts: Sequence[Rows]) -> Rows:
    """Join parts in SentEval's order, which its folds and shuffles depend on: by number of words, then target."""
    rows = [row for part in parts for row in zip(part.texts, part.targets, strict=True)]
    rows.sort(key=lambda row: (*(len(text.split()) for text in row[0]), row[1]))
    return Rows([texts for texts, _ in rows], [target for _, target in rows])


def find_root(folder: Path) -> Path:
    """Return the folder that holds STS, MR and so on: the one given, or its folder 'downstream'."""
    if not folder.is_dir():
        raise InputError(f"no folder {folder}. Name the folder of the data with --data (SentEval's layout).")
    below = folder / "downstream"
    return below if below.is_dir() else folder


def _read_part(task: Task, part: Part, root: Path) -> Rows:
    rows = list(_LAYOUTS[task.layout](task, part, root))
    if len(rows) != part.rows:
        raise InputError(
            f"{task.name} {part.name}: expected {part.rows} rows, got {len(rows)} in "
            f"{root / part.files[0]}. The file is truncated or another one; take a complete copy."
        )
    if task.classes and (strange := {target for _, target in rows} - set(range(task.classes))):
        raise InputError(
            f"{task.name} {part.name}: expected classes 0 to {task.classes - 1}, got {min(strange):g} in "
            f"{root / part.files[0]}."
        )
    return Rows([texts for texts, _ in rows], [target for _, target in rows])


def _check_hash(task: Task, root: Path, file: str) -> str:
    found = sha256(root / file)
    if found != SHA256.get(file, found):
        warnings.warn(
            f"{root / file} has the right number of rows for {task.name}, but is not SentEval's copy "
            f"(sha256 {found[:12]}..., expected {SHA256[file][:12]}...): "
            "the scores do not compare with published ones.",
            stacklevel=2,
        )
    return found


Row = tuple[tuple[str, ...], float]


def _parallel(task: Task, part: Part, root: Path) -> Iterator[Row]:
    """Sentences in one file, gold scores in another; a line without a score is not scored."""
    inputs, scores = (_lines(task, root / file) for file in part.files)
    if len(inputs) != len(scores):
        raise InputError(
            f"{task.name} {part.name}: {root / part.files[0]} has {len(inputs)} lines and "
            f"{root / part.files[1]} {len(scores)}. Expected equally many; take complete copies."
        )
    for number, (line, score) in enumerate(zip(inputs, scores, strict=True), start=1):
        if score.strip():
            place = f"{root / part.files[0]}:{number}"
            gold = _number(score, f"{root / part.files[1]}:{number}")
            yield _texts(task, line.split("\t"), place), gold


def _table(task: Task, part: Part, root: Path) -> Iterator[Row]:
    """Tab-separated columns, without quoting."""
    path = root / part.files[0]
    for number, line in enumerate(_lines(task, path), start=1):
        if number == 1 and task.header:
            continue
        fields, place = line.split("\t"), f"{path}:{number}"
        texts = _texts(task, fields, place)
        yield texts, _number(_field(fields, task.target or 0, place), place)


def _one_class(task: Task, part: Part, root: Path) -> Iterator[Row]:
    """One sentence a line, all of one class; an empty line is an empty sentence."""
    for line in _lines(task, root / part.files[0]):
        yield (_clean(line),), float(part.label or 0)


def _trec(task: Task, part: Part, root: Path) -> Iterator[Row]:
    """COARSE:fine, a space, the question."""
    path = root / part.files[0]
    for number, line in enumerate(_lines(task, path), start=1):
        label, _, question = line.partition(" ")
        coarse = label.partition(":")[0]
        if coarse not in _TREC:
            raise InputError(f"{path}:{number}: expected one of {', '.join(_TREC)} before ':', got {coarse!r}.")
        yield (_clean(question),), float(_TREC[coarse])


_LAYOUTS = {"parallel": _parallel, "table": _table, "lines": _one_class, "trec": _trec}


def _lines(task: Task, path: Path) -> list[str]:
    try:
        text = path.read_bytes().decode(task.encoding)
    except FileNotFoundError:
        raise InputError(
            f"{task.name} needs {path}, and there is no such file. Check --data, or skip {task.name}."
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not {task.encoding}. Take SentEval's copy.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    # Only a line feed ends a line: other separators, such as U+0085 in latin-1, belong to the sentence.
    lines = text.removeprefix("\ufeff").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _texts(task: Task, fields: list[str], place: str) -> tuple[str, ...]:
    return tuple(_clean(_field(fields, column, place)) for column in task.texts)


def _field(fields: list[str], column: int, place: str) -> str:
    if column >= len(fields):
        raise InputError(f"{place}: expected {column + 1} tab-separated columns, got {len(fields)}.")
    return fields[column]


def _number(field: str, place: str) -> float:
    try:
        number = float(field)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{place}: expected a number, got {field.strip()!r}.")
    return number


def _clean(text: str) -> str:
    """One space between words, none around them, as after SentEval's splitting into words."""
    return " ".join(text.split())


# SHA-256 of each data file in SentEval's layout, by folder (the STS files lowercased and tokenised).
_BY_FOLDER = {
    "STS/STS12-en-test": {
        "STS.input.MSRpar.txt": "21c0c6cc32f68f69d672dfae0f86935cdc2627bae4941381692941aa9320f8c4",
        "STS.gs.MSRpar.txt": "5526be59228bc34ccb3cb6f1f56c0d7278d3419b8886713ae016fd92b151f19c",
        "STS.input.MSRvid.txt": "c4a92a3645744f77d1cda9f2af7da5d11e807ae296f6a20fe5930403fb9c4dfe",
        "STS.gs.MSRvid.txt": "9c6096c6bcfb0144c8bbddb00900ca9198c88498630cd0c8f08d18365f1d7150",
        "STS.input.SMTeuroparl.txt": "05acf33c0fcb592347f49e279137a17e0244d7b0d37cc113134320a5d3f586e1",
        "STS.gs.SMTeuroparl.txt": "708530c4d006d06881f3289fce35d624d7efe562dcf0fe5f8aa0eec3a135f6d4",
        "STS.input.surprise.OnWN.txt": "e605c67de4b7cee2c5629239d209e2845920f475ebd0468bdcf03d8da2ffa9cf",
        "STS.gs.surprise.OnWN.txt": "088d8ca22c0aa406e4a5d2e6e308a4f38b482b8e736c2445a38ffb6e4c4fb4fd",
        "STS.input.surprise.SMTnews.txt": "cc4a0b9a1355c5680a8a37c02f2d08e35f95754b9f89a2a4a05088ee5ff57ffe",
        "STS.gs.surprise.SMTnews.txt": "aa6dfc868db333c43dc59be14d46fa6587c7ebddc0d497e717f647bf35121cf1",
    },
    "STS/STS13-en-test": {
        "STS.input.FNWN.txt": "a20cb41a33a528f3c089c94ef24da8eb5e26ed594937cf6fa90f3d1c79d6c53c",
        "STS.gs.FNWN.txt": "8ca95b7228119578e2007839cf7969f22c4f1fd41fd610c4b7f9683072d98066",
        "STS.input.headlines.txt": "637f3b4afdc8d1cc789e91a4d7217efff30e503c34a872d93e8b27e7b1136cb7",
        "STS.gs.headlines.txt": "f49f64089011436dd296ef384c07160219406feef7dc4b9fa2af52a519f32bc6",
        "STS.input.OnWN.txt": "cb74993eef23cfa2c03da7e5a08c62e50c9baafae0fa9ba0bb5a09d8e7d2be65",
        "STS.gs.OnWN.txt": "0cd497aaddb00a2fb6db25f77bccfc09e8aa012e11549b81b434bab1a27ad954",
    },
    "STS/STS14-en-test": {
        "STS.input.deft-forum.txt": "b39579e59c7b9f4063545c3d4643f8db16dc060cd0a35447ef56ff0aabec9d83",
        "STS.gs.deft-forum.txt": "ba6dc76696b5c93985590a325b4d142449932cdf0d715b2bab1b1743fe3c488c",
        "STS.input.deft-news.txt": "cc450dcd9228211c1a311de1ff28199f166dce6f7fc81dcb5ce968a3a8a80d2d",
        "STS.gs.deft-news.txt": "105c5b333abd50c274efb4dae9e3e0dab36ed63eee780cfb49955b1586bd62f2",
        "STS.input.headlines.txt": "2ed0ea55d196cdbb440ed428eb1846dcb43486a692aafb22b3bc5c14c44407c8",
        "STS.gs.headlines.txt": "f243c34647255cd0b994565ed4f58dd31506e7d9c9d6250d1a6dd14095625832",
        "STS.input.images.txt": "295fc99f8a9215c330b36a08bc1ff3e428f10057be5bb915262111494b3616e2",
        "STS.gs.images.txt": "fc994ebacc7074c332626fa9e29542d7340a48a3cdb999b47cdb59c378523a62",
        "STS.input.OnWN.txt": "8cd2333328d17e3212afa2d43dd934c5521e3fd35fc786b992dc7864f9d34f8f",
        "STS.gs.OnWN.txt": "1c80147df270ea4cfce14a47ed29f8a2f10d5dc016d02836077fd786ff7f535b",
        "STS.input.tweet-news.txt": "b25b3768762aa7cdcd89f2a25ce5049de7e4cd51b138227c3a31092ae8e2b5f5",
        "STS.gs.tweet-news.txt": "0098c644bfeaa2d511a8297b1940771865900c372c9dd49a62726dc5ec02c9a3",
    },
    "STS/STS15-en-test": {
        "STS.input.answers-forums.txt": "b8f1bc125559adbb3ac5b33206472b217c12621c3a6b5a8575da47dc0b536fc4",
        "STS.gs.answers-forums.txt": "1644301a7540e5484da285002e9269062852efb2272be614cad99c9530f6a102",
        "STS.input.answers-students.txt": "4893f736e84cea176c39c882250f6513d5bbcfa6ebe8d3ffabcef6056d0471a7",
        "STS.gs.answers-students.txt": "028db213140f8c7aef7497c4ae38b6380938f20359852231669c83dce11c3701",
        "STS.input.belief.txt": "a54ec7af1924c900d8474586abae465819d2c03c73561aa2e76e7fa5e836faff",
        "STS.gs.belief.txt": "5736192faaccbdbecd0ef6b73ec04b24115cd2e48d55dc3b1b170da3d2a81c75",
        "STS.input.headlines.txt": "85d90b0f8f258a47758808d382188ba2ee7b1adbbf84feb776afad0e4691d5d1",
        "STS.gs.headlines.txt": "e8e432f769c8a94ddb62ae3343890ac24a9dd78a116d56c707313bc59413dd56",
        "STS.input.images.txt": "0dac9494186838a8f4dfbb4ee290fec8d7581cf84a33d615c522700b3b50e0d6",
        "STS.gs.images.txt": "ed8878209098c77ca7f02ac413d3fd698f92ad3425999555e50fda89fc46012a",
    },
    "STS/STS16-en-test": {
        "STS.input.answer-answer.txt": "ebbffced7d4630755e61d4dfe4d82121198965a14b9f5734b5abedb961f0725c",
        "STS.gs.answer-answer.txt": "332efd741b0cb247d20dd2a6cec854360c921c7e6b395f328f562d8d26057214",
        "STS.input.headlines.txt": "705c3e82fb85fa3b6706a481b790e1030304ddc9c72d39e126693ed44b258ba6",
        "STS.gs.headlines.txt": "01e33a95996201a6e81e3cce9eda0f15048b77613ea64dce2929bb35479f7d85",
        "STS.input.plagiarism.txt": "dd4ca54d1dfcd7d1cabe67f0de98cde23f4c1696ecc0003afbecae1274305d63",
        "STS.gs.plagiarism.txt": "29984944a91aaff484f2b2e5d4d434fc8a6f5ef6f578a880cccd2786f5142fdc",
        "STS.input.postediting.txt": "9b455d8da1d1bae692d038da1d431827d23bfec04c64b109efc3b6b620fd422f",
        "STS.gs.postediting.txt": "81947ed9dbe7f85b7bd249df68ed5c7b2f16f06390ad568eb5554b1e26bc5577",
        "STS.input.question-question.txt": "58920c7da7dbc1b860609310782d88b7457d599c90a226819b5880262dd7f58a",
        "STS.gs.question-question.txt": "cf9ebf9d140191f73620cda0560947ad9283c910735d0d541b8a401a5e64afb0",
    },
    "STS/STSBenchmark": {
        "sts-train.csv": "4fc4924edd059a43e9c7c8927a72cb8061a87ef98afdf2026a0e0b540b458693",
        "sts-dev.csv": "c558fa95fec006608f13e3d942f153b614beabccbf33e64f36418d406a895e37",
        "sts-test.csv": "22ef3e10603b6655d7c7978c8eee26e7d5291dd5a71c5531b934fb025c108cbf",
    },
    "SICK": {
        "SICK_train.txt": "e02bd30f17ab87358f80ef079a6ef797acd244c3c7515de454301c7c257e410c",
        "SICK_trial.txt": "0d0786bd8671a0a70614f2f890b8ab24b3c24d1ccb624bcca87618091fbe4f11",
        "SICK_test_annotated.txt": "d0362afe8304c8d08166b82d76da2a8c665d5b635ac1f3f1ee82054511749f97",
    },
    "MR": {
        "rt-polarity.pos": "34e5b0da2d491e46b700b00afe735aaae0962bcfe4f7f22b2d8077e714fa370f",
        "rt-polarity.neg": "c4ac36eaa8adc8ee31c31f69594bfbe68d83ef5b6db53f1f19b28c0be52f3999",
    },
    "CR": {
        "custrev.pos": "91a20a4ffeb5d38a39a4087bb247e16538aff21e7d621ae59738379f39f21732",
        "custrev.neg": "ec94532766f6f962094841ab3bee2ad6f232f996c3756825a91e78bcc294750f",
    },
    "SUBJ": {
        "subj.objective": "d8ccd43f1674f1c17e4ab717564e3561cfb719b0db4cfb19e5677427c68ff8a1",
        "subj.subjective": "274c2ffe59c204dc4df779848561786f59a98cc20dda3cfdd7d9f76a4f730710",
    },
    "MPQA": {
        "mpqa.pos": "7487dbb74c77383e60b292845495163a9e21fb70a4fdacdda933413e43163f0d",
        "mpqa.neg": "8da6e035fa4cea02f0555091096b29a6b3995ff0adf41fad25008dcee066b79e",
    },
    "SST/binary": {
        "sentiment-train": "10a92a297ec38e262386e5a2713b4bc70e5d18ced88b7f54bd171a26e5b34ab5",
        "sentiment-dev": "9a6c7403b71a9b762158387afe4431253ae10cdfb2319b5275289f3766f48291",
        "sentiment-test": "4fefd1cd67526cf87ebc7fafc3afc21cc7cfa6ae53b45e74f77f9456e3c62752",
    },
    "TREC": {
        "train_5500.label": "8bd6e79493f43bbd22c364587366a1dced54e1e31259eaa92721a0f526031116",
        "TREC_10.label": "86ad53c8fc9d397ab2f4be7c967d8efb470b260140557d3e57afad69d1b88b76",
    },
    "MRPC": {
        "msr_paraphrase_train.txt": "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89",
        "msr_paraphrase_test.txt": "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784",
    },
}

SHA256 = {f"{folder}/{name}": digest for folder, files in _BY_FOLDER.items() for name, digest in files.items()}
