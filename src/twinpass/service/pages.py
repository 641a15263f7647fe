"""The page at `/`: its files, served with a policy that lets nothing run but our own scripts."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, HTTPException
from fastapi.responses import Response

from twinpass.analysis.drawing import DARK, LIGHT

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing from elsewhere, nothing inline, no frame around it; trusted types make even innerHTML a refusal.
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
    "cache-control": "no-cache",  # a newer version of the package is a newer page at once
}


def page_router() -> APIRouter:
    """Return the routes `/` and `/page/...`, which need no key: they hold no one's data."""
    router = APIRouter(include_in_schema=False)
    assets = _read_assets()

    @router.get("/")
    def index() -> Response:
        return _answer("index.html", assets)

    @router.get("/page/{name}")
    def asset(name: str) -> Response:
        return _answer(name, assets)

    return router


def _read_assets() -> dict[str, bytes]:
    folder = files(__package__).joinpath("page")
    assets = {each.name: each.read_bytes() for each in folder.iterdir() if _ending(each.name) in TYPES}
    return assets | {"colours.css": _colours().encode()}


def _answer(name: str, assets: dict[str, bytes]) -> Response:
    if name not in assets:  # a table, not the disk: no path leads out of it
        raise HTTPException(status_code=404, detail=f"The page has no file {name!r}.")
    return Response(assets[name], media_type=TYPES[_ending(name)], headers=HEADERS)


def _ending(name: str) -> str:
    return name[name.rfind(".") :]


def _colours() -> str:
    """Return the colours of our figures as variables that know both themes."""
    dark = DARK.colours()
    pairs = (f"--{name}: light-dark({colour}, {dark[name]});" for name, colour in LIGHT.colours().items())
    return ":root { " + " ".join(pairs) + " }\n"
