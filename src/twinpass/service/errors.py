"""Errors as HTTP answers: in the shape that OpenAI's clients read, and in TEI's for the routes of TEI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import Scope

from twinpass.errors import TwinpassError, UserError

# OpenAI's names for kinds of errors; any other status below 500 is an invalid request.
TYPES = {429: "rate_limit_error", 401: "authentication_error"}
CODES = {
    404: "unknown_url",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "request_too_large",
    500: "internal_error",
}


TEI = {("POST", "/embed"), ("POST", "/"), ("GET", "/info")}  # the routes of text-embeddings-inference
TEI_TYPES = {429: "Overloaded", 503: "Unhealthy"}  # its names for kinds of errors


def path_of(scope: Scope) -> str:
    """Return the path within the app, which has a prefix where it is mounted in another one."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class Refusal(TwinpassError):
    """A refused request: the status and the message to answer it with."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.headers = status, code, param, headers

    def response(self, scope: Scope) -> Response:
        """Return {"error": {"message", "type", "param", "code"}}, or TEI's {"error", "error_type"}, with the status."""
        message = str(self).encode("utf-8", "backslashreplace").decode()  # it may quote a lone surrogate
        body: dict[str, Any]
        if (scope["method"], path_of(scope)) in TEI:
            kind = TEI_TYPES.get(self.status, "Backend" if self.status >= 500 else "Validation")
            body = {"error": message, "error_type": kind}
        else:
            kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
            code = self.code or CODES.get(self.status)
            body = {"error": {"message": message, "type": kind, "param": self.param, "code": code}}
        return JSONResponse(body, status_code=self.status, headers=dict(self.headers or {}))


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error of the app in the one shape."""

    async def answer(request: Request, error: Exception) -> Response:
        return _refusal(request, error).response(request.scope)

    for kind in (RequestValidationError, HTTPException, TwinpassError, Exception):
        app.add_exception_handler(kind, answer)


def _refusal(request: Request, error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        message = str(error.detail)
        if error.status_code == 404 and message == "Not Found":
            message = f"nothing is served at {ascii(request.url.path)[1:-1]}. GET /docs lists all paths."
        elif error.status_code == 405:
            message = f"{request.method} is not allowed here. Use {(error.headers or {}).get('Allow')}."
        return Refusal(error.status_code, message, headers=error.headers)
    if isinstance(error, TwinpassError):
        return Refusal(400 if isinstance(error, UserError) else 500, str(error))
    return Refusal(500, f"unexpected error: {type(error).__name__}. See the server's log.")


def _invalid(error: RequestValidationError) -> Refusal:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return Refusal(400, f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}.")
    if first["type"] == "value_error":
        return Refusal(400, f"{first['ctx']['error']}.", code="invalid_value")
    if first["loc"] == ("body",):
        return Refusal(400, "the body is missing, is not a JSON object, or is not sent as application/json.")
    param = _field(first["loc"])
    # What each alternative of a union expected, without repeats.
    expected = dict.fromkeys(each["msg"] for each in error.errors() if _field(each["loc"]) == param)
    return Refusal(400, f"{param}: {'; or: '.join(expected)}.", param=param, code="invalid_value")


def _field(loc: Sequence[int | str]) -> str:
    """Return the field's own name, without its place in a union."""
    return str(loc[1] if len(loc) > 1 else loc[0])
