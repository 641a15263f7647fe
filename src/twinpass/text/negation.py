"""Negate English sentences by rules, without a parser: the soft negatives of SNCSE (Wang et al., 2022).

The first rule that applies decides:

1. A negation is taken out: "not", "n't", "cannot", "never". "It is not new." -> "It is new."
2. An auxiliary or modal verb gets a "not": is, was, can, would, does ... "It was new." -> "It was not new."
   So does a form of "have" before a participle ("has been", "had ended"); before anything else it is a full verb.
3. The first of some frequent full verbs, in the past or with an -s, is negated with "did not" or "does not".
   "He became king." -> "He did not become king."
4. Any other sentence gets "It is not true that" before it.

The authors find the verb with a dependency parser. Without one, rule 2 may negate the verb of a clause before the main
verb, and rule 3 may take a noun for a verb ("plays"). Sentences in other languages only get rule 4's English words.
"""

from __future__ import annotations

import re

_AUXILIARIES = {"am", "is", "are", "was", "were", "can", "could", "will", "would", "shall", "should", "may", "might"}
_AUXILIARIES |= {"must", "do", "does", "did"}
_HAVE = {"have": "do not have", "has": "does not have", "had": "did not have"}
_PARTICIPLES = "made|had|led|won|held|set|put|lost|left|gone|done|become|come|run|met|sold"  # without a usual ending
_PARTICIPLE = re.compile(rf"\w+(?:ed|en|wn|ught)|{_PARTICIPLES}")
_CONTRACTED = {"won't": "will", "can't": "can", "shan't": "shall", "cannot": "can"}
_REGULAR = "use call name include play move live die join serve work receive appear contain remain follow start return"
_REGULAR += " require provide produce release continue create describe feature form help like love need want show seem"
_IRREGULAR = {"become": "became", "begin": "began", "make": "made", "take": "took", "go": "went", "give": "gave"}
_IRREGULAR |= {"win": "won", "lead": "led", "say": "said", "come": "came", "get": "got", "know": "knew", "see": "saw"}
_IRREGULAR |= {"write": "wrote", "hold": "held", "leave": "left", "lose": "lost", "run": "ran", "find": "found"}
_IRREGULAR |= {"think": "thought", "tell": "told", "meet": "met", "grow": "grew", "fall": "fell", "keep": "kept"}


def _forms() -> dict[str, str]:
    """Return what replaces each form of the frequent verbs."""
    forms = {}
    for verb in (*_REGULAR.split(), *_IRREGULAR):
        past = _IRREGULAR.get(verb, f"{verb.removesuffix('e')}ed")
        forms[past] = f"did not {verb}"
        forms["goes" if verb == "go" else f"{verb}s"] = f"does not {verb}"
    return forms


_VERBS = _forms()
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


def negate(sentence: str) -> str:
    """Return the negation of an English sentence; see the rules above."""
    words = [(match.start(), match.end(), match[0].lower().replace("’", "'")) for match in _WORD.finditer(sentence)]
    for start, end, word in words:  # rule 1
        if word in ("not", "never"):
            return sentence[:start] + sentence[end:].lstrip(" ") if start else sentence[end:].lstrip(" ")
        if word in _CONTRACTED or word.endswith("n't"):
            return sentence[:start] + _as(sentence[start:end], _CONTRACTED.get(word, word[:-3])) + sentence[end:]
    for place, (start, end, word) in enumerate(words):  # rule 2
        following = words[place + 1][2] if place + 1 < len(words) else ""
        if word in _AUXILIARIES or (word in _HAVE and _PARTICIPLE.fullmatch(following)):
            return f"{sentence[:end]} not{sentence[end:]}"
        if word in _HAVE:
            return sentence[:start] + _as(sentence[start:end], _HAVE[word]) + sentence[end:]
    for start, end, word in words[1:]:  # rule 3; the first word is hardly ever the verb
        if word in _VERBS:
            return sentence[:start] + _VERBS[word] + sentence[end:]
    return f"It is not true that {sentence}"


def _as(before: str, after: str) -> str:
    """Return a word with a capital where the word that it replaces has one."""
    return after.capitalize() if before[:1].isupper() else after
