"""Table 8: the three captions nearest to a query."""

from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.tables.shared import SBERT, SUP_SIMCSE

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

RECIPE = Recipe(
    name="table-8",
    title="Retrieved captions",
    measure="retrieval",
    columns={"shared": "of the paper's six captions, found"},
    protocol="the three captions of Flickr30k (150k) with the highest cosine, the query itself excluded",
    rows=(
        one_model("sbert", "SBERT-base", SBERT, 6),
        one_model("simcse", "Supervised SimCSE-BERT-base", SUP_SIMCSE, 6),
    ),
    figure="none",
)
