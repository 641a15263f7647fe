"""The pages: `/`, whose policy lets nothing run but its own scripts, and `/docs`, the API described for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, Response

from twinpass.analysis.drawing import DARK, LIGHT

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing from other origins, nothing inline, no frame around it; trusted types forbid even innerHTML.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",  # a new version of the package shows its new page at once
}
DOCS_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"  # no scripts at all
STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 14px/1.45 ui-monospace, monospace }
pre { overflow-x: auto; padding: .75rem; background: color-mix(in srgb, currentColor 7%, transparent) }
h2 { margin-top: 2.5rem } summary { cursor: pointer } td { padding: .1rem 1rem .1rem 0; vertical-align: top }
"""


def page_router() -> APIRouter:
    """Return the routes `/`, `/page/...` and `/docs`, which need no key: they hold no data of users."""
    router = APIRouter(include_in_schema=False)
    assets = _read_assets()

    @router.get("/")
    async def index() -> Response:
        return _answer("index.html", assets)

    @router.get("/page/{name}")
    async def asset(name: str) -> Response:
        return _answer(name, assets)

    @router.get("/docs")
    async def docs(request: Request) -> Response:
        return HTMLResponse(_reference(request.app.openapi()), headers={"Content-Security-Policy": DOCS_POLICY})

    return router


def _read_assets() -> dict[str, bytes]:
    folder = files(__package__).joinpath("page")
    assets = {each.name: each.read_bytes() for each in folder.iterdir() if _ending(each.name) in TYPES}
    return assets | {"colours.css": _colours().encode()}


def _answer(name: str, assets: dict[str, bytes]) -> Response:
    if name not in assets:  # looked up in a table, not on the disk: no path leads out of it
        raise HTTPException(status_code=404, detail=f"The page has no file {name!r}.")
    return Response(assets[name], media_type=TYPES[_ending(name)], headers=HEADERS)


def _ending(name: str) -> str:
    return name[name.rfind(".") :]


def _colours() -> str:
    """Return the colours of our figures as CSS variables for both themes."""
    dark = DARK.colours()
    pairs = (f"--{name}: light-dark({colour}, {dark[name]});" for name, colour in LIGHT.colours().items())
    return ":root { " + " ".join(pairs) + " }\n"


def _reference(description: Mapping[str, Any]) -> str:
    """Return an OpenAPI description as one page of HTML that loads nothing."""
    info = description["info"]
    body = [f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>", f"<p>{escape(info['description'])}</p>"]
    body.append('<p>For programs: <a href="openapi.json">openapi.json</a>.</p>')
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            body += _operation(path, method, operation, description)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>twinpass API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body>{''.join(body)}</body></html>"
    )


def _operation(path: str, method: str, operation: Mapping[str, Any], description: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation.get('summary', ''))}.</p>"
    if "requestBody" in operation:
        yield from _body("Send", operation["requestBody"], description)
    if "200" in operation["responses"]:
        yield from _body("Receive", operation["responses"]["200"], description)
    rows = (
        f"<tr><td>{status}<td>{escape(answer['description'])}"
        for status, answer in operation["responses"].items()
        if status != "200"
    )
    yield f"<details><summary>Errors</summary><table>{''.join(rows)}</table></details>"


def _body(what: str, content: Mapping[str, Any], description: Mapping[str, Any]) -> Iterator[str]:
    for kind, media in content.get("content", {}).items():
        schema = _resolved(media.get("schema", {}), description)
        yield f"<details><summary>{what} <code>{escape(kind)}</code></summary>"
        yield f"<pre>{escape(json.dumps(schema, indent=2))}</pre></details>"


def _resolved(schema: Any, description: Mapping[str, Any]) -> Any:
    """Replace references by what they refer to; none of ours is recursive."""
    if isinstance(schema, list):
        return [_resolved(each, description) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        return _resolved(description["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], description)
    return {key: _resolved(value, description) for key, value in schema.items()}
