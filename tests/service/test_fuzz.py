"""Our own OpenAPI description, fuzzed: no 5xx, and every answer is as described."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from tests.tiny import SENTENCES

from twinpass.encoder.encoder import Encoder
from twinpass.search.index import Block, Index
from twinpass.service.app import create_app
from twinpass.service.limits import Limits
from twinpass.service.server import address, listen

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
KEY = "sesame"  # with which the index may be changed, too
OPERATIONS = {
    "POST /v1/embeddings",
    "GET /v1/models",
    "GET /v1/models/{name}",
    "POST /similarity",
    "POST /embed",
    "GET /info",
    "POST /search",
    "GET /index",
    "GET /analysis",
    "POST /index/texts",
    "POST /index/texts/delete",
    "GET /index/texts/{text_id}",
    "DELETE /index/texts/{text_id}",
    "GET /metrics",
    "GET /health",
    "GET /ready",
}
FEW = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def api(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The description of a service with an index, which runs in a thread meanwhile."""
    encoder = Encoder.load(folder, device="cpu")
    model = {"name": "tiny", "fingerprint": encoder.fingerprint}
    block = Block(SENTENCES, encoder.encode(SENTENCES, normalize=True), [{"place": 1}] * len(SENTENCES))
    index = Index.from_blocks(tmp_path_factory.mktemp("index") / "index", [block], model=model)
    limits = Limits(max_inputs=16, max_chars=1000, max_body=10_000)
    app = create_app(encoder, index, name="tiny", limits=limits, api_key=KEY)
    with listen("127.0.0.1", 0) as bound:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        yield schemathesis.openapi.from_url(f"{address(bound)}/openapi.json")
        server.should_exit = True
        thread.join(60)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
def test_every_operation_keeps_its_word(api: Any, mode: GenerationMode):
    operations = [found.ok() for found in api.get_all_operations()]
    assert {f"{each.method.upper()} {each.path}" for each in operations} == OPERATIONS
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and operation.method == "get":
            continue  # nothing to get wrong

        @FEW
        @given(case=operation.as_strategy(generation_mode=mode))
        def keeps_its_word(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=CHECKS, timeout=60, headers={"Authorization": f"Bearer {KEY}"})

        keeps_its_word()
