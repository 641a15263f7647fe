"""Requests as they are checked, answers as they are documented."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Texts = Annotated[list[str], Field(min_length=1)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class _Request(BaseModel):
    """No value is converted, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class EmbeddingsRequest(_Request):
    """What to embed, as OpenAI's clients send it."""

    input: str | Texts | TokenIds | Annotated[list[TokenIds], Field(min_length=1)] = Field(
        description="A text, texts, the token ids of a text (special tokens included), or of several."
    )
    model: str | None = Field(None, description="The served model's name; optional.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="Numbers, or little-endian float32 as base64."
    )
    dimensions: int | None = Field(None, ge=1, description="Keep only the first N numbers, scaled to length one again.")
    user: str | None = Field(None, description="Accepted and ignored.")


class SimilarityRequest(_Request):
    """Texts to compare: each of `a` with each of `b`, or `sentences` with themselves."""

    a: Texts | None = None
    b: Texts | None = None
    sentences: Texts | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> SimilarityRequest:
        if [self.sentences is None, self.a is None, self.b is None] not in ([False, True, True], [True, False, False]):
            raise ValueError("expected either `sentences`, or `a` and `b`")
        return self

    def sides(self) -> tuple[list[str], list[str]]:
        """Return the texts of the rows and those of the columns."""
        if self.sentences is not None:
            return self.sentences, self.sentences
        return self.a or [], self.b or []


class SearchRequest(_Request):
    """What to look for in the index."""

    query: str | Texts
    k: int = Field(10, ge=1, le=1000)
    min_score: float | None = Field(None, allow_inf_nan=False)
    where: str | list[str] | None = Field(None, description="Filters on metadata, such as `year > 2000`.")


class Usage(BaseModel):
    """How many tokens were read, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class Embedding(BaseModel):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(BaseModel):
    """The vectors, in the order of the input."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class Similarity(BaseModel):
    """Cosines: a row for each text of `a`, a column for each of `b`."""

    matrix: list[list[float]]
    model: str
    usage: Usage


class Found(BaseModel):
    """A text of the index that is near a query."""

    id: int
    text: str
    score: float
    metadata: dict[str, Any]


class SearchResults(BaseModel):
    """A list for each query, best first."""

    results: list[list[Found]]
    model: str
    usage: Usage


class Model(BaseModel):
    """The served model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    dimensions: int
    max_tokens: int | None
    precision: str
    fingerprint: str


class Models(BaseModel):
    """The served models: one."""

    object: Literal["list"]
    data: list[Model]


class IndexInfo(BaseModel):
    """The served index."""

    count: int
    distinct: int | None = Field(description="Texts; not counted on Milvus.")
    dimensions: int
    kind: str
    columns: list[str]
    model: str
    fingerprint: str


class Histogram(BaseModel):
    """Counts, and the edges between them: one more than counts."""

    edges: list[float]
    counts: list[int]


class Analysis(BaseModel):
    """The geometry of the indexed corpus, measured on a sample drawn with a fixed seed."""

    uniformity: float
    alignment: float | None
    anisotropy: float
    effective_rank: float
    singular_values: list[float]
    cosines: Histogram
    sample: int
    of: int


class Status(BaseModel):
    """The state of the service."""

    status: str


class Error(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of every error."""

    error: Error
