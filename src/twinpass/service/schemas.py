"""Requests as they are checked, answers as they are documented."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Texts = Annotated[list[str], Field(min_length=1)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Input = str | Texts | TokenIds | Annotated[list[TokenIds], Field(min_length=1)]
Id = Annotated[int, Field(ge=0, lt=1 << 63)] | str
Number = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | Annotated[float, Field(allow_inf_nan=False)]
Metadata = dict[str, str | bool | Number | None]
ABOUT_INPUT = "A text, texts, the token ids of a text (special tokens included), or of several."
ABOUT_MODEL = "The name of a served model; the first one if it is left out."
ABOUT_DIMENSIONS = "Keep only the first N numbers, scaled to length one again."


class _Request(BaseModel):
    """No value is converted, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class EmbeddingsRequest(_Request):
    """What to embed, as OpenAI's clients send it."""

    input: Input = Field(description=ABOUT_INPUT)
    model: str | None = Field(None, description=ABOUT_MODEL)
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="Numbers, or little-endian float32 as base64."
    )
    dimensions: int | None = Field(None, ge=1, description=ABOUT_DIMENSIONS)
    user: str | None = Field(None, description="Accepted and ignored.")


class EmbedRequest(_Request):
    """What to embed, as clients of text-embeddings-inference (TEI) send it."""

    inputs: Input = Field(description=ABOUT_INPUT)
    truncate: bool | None = Field(None, description="false: refuse a text that is longer than the model reads.")
    truncation_direction: Literal["left", "right", "Left", "Right"] = Field(
        "right", description="Where a text that is too long loses tokens."
    )
    normalize: bool = Field(True, description="Scale every vector to length one.")
    dimensions: int | None = Field(None, ge=1, description=ABOUT_DIMENSIONS)
    prompt_name: str | None = Field(None, description="Not supported: a model's own prompt is always used.")
    model: str | None = Field(None, description=ABOUT_MODEL)


class SimilarityRequest(_Request):
    """Texts to compare: each of `a` with each of `b`, or `sentences` with themselves."""

    a: Texts | None = None
    b: Texts | None = None
    sentences: Texts | None = None
    model: str | None = Field(None, description=ABOUT_MODEL)

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
    mode: Literal["dense", "keyword", "hybrid"] = Field(
        "dense", description="By meaning (cosine), by words (BM25), or by both (fused ranks)."
    )
    group: bool | None = Field(None, description="Whether equal texts are one hit with their number; the default.")


class AddRequest(_Request):
    """Texts for the index, and optionally a dictionary of metadata for each."""

    texts: Texts
    metadata: list[Metadata] | None = None
    unique: bool = Field(False, description="Skip texts that are in the index already.")

    @model_validator(mode="after")
    def _one_for_each(self) -> AddRequest:
        if self.metadata is not None and len(self.metadata) != len(self.texts):
            raise ValueError(f"expected metadata for each of {len(self.texts)} texts, got {len(self.metadata)}")
        return self


class DeleteRequest(_Request):
    """Which texts to remove from the index: by id, by the text itself, or by a filter on metadata."""

    ids: Annotated[list[Id], Field(min_length=1)] | None = None
    texts: Texts | None = None
    where: str | Texts | None = None

    @model_validator(mode="after")
    def _one_of_three(self) -> DeleteRequest:
        if len(self.chosen()) != 1:
            raise ValueError("expected one of `ids`, `texts` and `where`")
        return self

    def chosen(self) -> dict[str, Any]:
        """Return what was given, by name."""
        return self.model_dump(exclude_none=True)


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


class TeiInfo(BaseModel):
    """The first model and the limits, as TEI describes itself."""

    model_id: str
    model_sha: str
    model_dtype: str
    model_type: dict[str, dict[str, str]]
    max_concurrent_requests: int
    max_input_length: int | None
    max_batch_tokens: int
    max_client_batch_size: int
    auto_truncate: bool
    version: str


class Similarity(BaseModel):
    """Cosines: a row for each text of `a`, a column for each of `b`."""

    matrix: list[list[float]]
    model: str
    usage: Usage


class Found(BaseModel):
    """A text of the index that is near a query."""

    id: int | str
    score: float
    text: str
    metadata: dict[str, Any]
    copies: int = Field(description="Texts that are equal to this one, itself included.")


class QueryHits(BaseModel):
    """What was found for one query, best first."""

    query: str
    hits: list[Found]


class SearchResults(BaseModel):
    """What was found for each query, in their order."""

    results: list[QueryHits]
    model: str
    usage: Usage


class Added(BaseModel):
    """How many texts were added, skipped, replaced or truncated, and how many the index holds now."""

    added: int
    skipped: int
    replaced: int
    truncated: int
    rows: int


class Removed(BaseModel):
    """How many texts were removed, and how many the index holds now."""

    removed: int
    rows: int


class Model(BaseModel):
    """A served model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    dimensions: int
    max_tokens: int | None
    precision: str
    fingerprint: str


class Models(BaseModel):
    """The served models; the first is used where a request names none."""

    object: Literal["list"]
    data: list[Model]


class IndexInfo(BaseModel):
    """The served index."""

    rows: int
    distinct: int | None = Field(description="Texts; not counted on Milvus.")
    dimensions: int
    kind: str
    id_column: str | None
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


class TeiErrorBody(BaseModel):
    """The body of an error of TEI's routes."""

    error: str
    error_type: str


class ErrorBody(BaseModel):
    """The body of every other error."""

    error: Error
