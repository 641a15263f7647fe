"""Table 8: the three captions nearest to a query."""

from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.tables.shared import SBERT, SUP_SIMCSE
from twinpass.text.rows import text_key

# What the paper's models found, the nearest first.
PAPER_ANSWERS = {
    "A man riding a small boat in a harbor.": {
        "sbert": (
            "A group of men traveling over the ocean in a small boat.",
            "Two men sit on the bow of a colorful boat.",
            "A man wearing a life jacket is in a small boat on a lake.",
        ),
        "simcse": (
            "A man on a moored blue and white boat.",
            "A man is riding in a boat on the water.",
            "A man in a blue boat on the water.",
        ),
    },
    "A dog runs on the green grass near a wooden fence.": {
        "sbert": (
            "A dog runs on the green grass near a grove of trees.",
            "A brown and white dog runs through the green grass.",
            "The dogs run in the green field.",
        ),
        "simcse": (
            "The dog by the fence is running on the grass.",
            "Dog running through grass in fenced area.",
            "A dog runs on the green grass near a grove of trees.",
        ),
    },
}
QUERIES = tuple(PAPER_ANSWERS)
# Captions that the paper prints shorter than Flickr30k's file has them.
IN_FLICKR = {
    "A man riding a small boat in a harbor.": (
        "A man riding a small boat in a harbor, with fog and mountains in the background."
    ),
    "A group of men traveling over the ocean in a small boat.": (
        "A group of men in hard hats traveling over the ocean in a small boat."
    ),
    "Two men sit on the bow of a colorful boat.": (
        "Two men sit on the bow of a colorful boat as it travels through a narrow waterway."
    ),
    "A man wearing a life jacket is in a small boat on a lake.": (
        "A man wearing a life jacket is in a small boat on a lake with a ferry in view."
    ),
    "A man on a moored blue and white boat.": (
        "A man on a moored blue and white boat with hills and mist in the background."
    ),
    "Dog running through grass in fenced area.": "Dog running through grass in fenced in area.",
}
_WHOLE = {text_key(printed): text_key(whole) for printed, whole in IN_FLICKR.items()}


def caption_key(text: str) -> bytes:
    """Return what equal captions share: their letters and digits, of a shortened one those of the whole.

    Flickr30k is released in tokens ("the yard ."), and the paper prints captions as usual ("the yard.").
    """
    key = text_key(text)
    return _WHOLE.get(key, key)


RECIPE = Recipe(
    name="table-8",
    title="Retrieved captions",
    measure="retrieval",
    columns={"shared": "captions that the paper's model found too, of 6"},
    protocol="the three captions of Flickr30k with the highest cosine, the query itself excluded",
    counts=True,
    rows=(one_model("sbert", "SBERT-base", SBERT), one_model("simcse", "Supervised SimCSE-BERT-base", SUP_SIMCSE)),
    figure="none",
)
