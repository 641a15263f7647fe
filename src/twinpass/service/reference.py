"""The description of the API as one page of HTML that needs nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 14px/1.45 ui-monospace, monospace }
pre { overflow-x: auto; padding: .75rem; background: color-mix(in srgb, currentColor 7%, transparent) }
h2 { margin-top: 2.5rem } summary { cursor: pointer } td { padding: .1rem 1rem .1rem 0; vertical-align: top }
"""


def write_reference(description: Mapping[str, Any]) -> str:
    """Return an OpenAPI description as a page."""
    info = description["info"]
    body = [f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>", f"<p>{escape(info['description'])}</p>"]
    body.append('<p>The same for programs: <a href="/openapi.json">openapi.json</a>.</p>')
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
    yield f"<details><summary>Otherwise</summary><table>{''.join(rows)}</table></details>"


def _body(what: str, content: Mapping[str, Any], description: Mapping[str, Any]) -> Iterator[str]:
    for kind, media in content.get("content", {}).items():
        schema = _resolved(media.get("schema", {}), description)
        yield f"<details><summary>{what} <code>{escape(kind)}</code></summary>"
        yield f"<pre>{escape(json.dumps(schema, indent=2))}</pre></details>"


def _resolved(schema: Any, description: Mapping[str, Any]) -> Any:
    """Put what a schema refers to in its place; ours refer to nothing that refers back."""
    if isinstance(schema, list):
        return [_resolved(each, description) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        return _resolved(description["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], description)
    return {key: _resolved(value, description) for key, value in schema.items()}
