"""The files of the page: served from a table, under a strict policy, and all of them packaged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the service (pip install 'twinpass[serve]')")

from fastapi import FastAPI
from fastapi.testclient import TestClient

from twinpass.service.pages import page_router

FOLDER = Path(__file__).parents[2] / "src" / "twinpass" / "service" / "page"


@pytest.fixture(scope="module")
def client() -> TestClient:
    app = FastAPI()
    app.include_router(page_router())
    return TestClient(app)


def test_every_file_has_its_type_and_the_policy(client: TestClient) -> None:
    for name in ["", *(f"page/{path.name}" for path in FOLDER.iterdir()), "page/colours.css"]:
        answer = client.get(f"/{name}")
        assert answer.status_code == 200, name
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/page/app.js").headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("name", ["nothing.js", "..%2Fpages.py", "..%2f..%2ferrors.py", "%2Fetc%2Fpasswd", "."])
def test_no_path_leads_out_of_the_folder(client: TestClient, name: str) -> None:
    assert client.get(f"/page/{name}").status_code == 404


def test_what_one_file_names_is_there(client: TestClient) -> None:
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r'from "\./([^"]+)"|(?:src|href)="page/([^"]+)"', text):
            assert client.get(f"/page/{''.join(name)}").status_code == 200, (path.name, name)


def test_nothing_comes_from_elsewhere_and_nothing_is_made_from_markup() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text and "//cdn" not in text, path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), path.name
        assert len(text.splitlines()) <= 320, path.name


def test_colours_are_those_of_our_figures_in_both_themes(client: TestClient) -> None:
    from twinpass.analysis.drawing import DARK, LIGHT

    colours = client.get("/page/colours.css").text
    for name, colour in LIGHT.colours().items():
        assert f"--{name}: light-dark({colour}, {DARK.colours()[name]});" in colours


def test_the_page_is_not_part_of_the_described_interface(client: TestClient) -> None:
    assert client.get("/openapi.json").json()["paths"] == {}
