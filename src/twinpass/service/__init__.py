"""The HTTP service: a model, and optionally an index, for clients of OpenAI's embeddings API."""

from twinpass.errors import MissingExtra
from twinpass.provenance import installed

if any(installed(name) is None for name in ("fastapi", "uvicorn", "prometheus-client")):
    raise MissingExtra("The HTTP service", "serve")
