"""Errors as HTTP answers, all in the one shape that OpenAI's clients read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

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

    def response(self) -> Response:
        """Return the refusal as an answer."""
        return error_response(self.status, str(self), code=self.code, param=self.param, headers=self.headers)


def error_response(
    status: int,
    message: str,
    *,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return {"error": {"message", "type", "param", "code"}} with this status."""
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    encodable = message.encode("utf-8", "backslashreplace").decode()  # it may quote a lone surrogate
    error = {"message": encodable, "type": kind, "param": param, "code": code or CODES.get(status)}
    return JSONResponse({"error": error}, status_code=status, headers=dict(headers or {}))


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error of the app in the one shape."""
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(UserError, _user)
    app.add_exception_handler(TwinpassError, _failed)
    app.add_exception_handler(Exception, _unexpected)


def _refused(request: Request, error: Any) -> Response:
    response: Response = error.response()
    return response


def _user(request: Request, error: Exception) -> Response:
    return error_response(400, str(error))


def _failed(request: Request, error: Exception) -> Response:
    return error_response(500, str(error))


def _unexpected(request: Request, error: Exception) -> Response:
    return error_response(500, f"unexpected error: {type(error).__name__}. See the server's log.")


def _http(request: Request, error: Any) -> Response:
    message = str(error.detail)
    if error.status_code == 404 and message == "Not Found":
        message = f"nothing is served at {ascii(request.url.path)[1:-1]}. GET /docs lists all paths."
    elif error.status_code == 405:
        message = f"{request.method} is not allowed here. Use {(error.headers or {}).get('Allow')}."
    return error_response(error.status_code, message, headers=error.headers)


def _invalid(request: Request, error: Any) -> Response:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return error_response(400, f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}.")
    if first["type"] == "value_error":
        return error_response(400, f"{first['ctx']['error']}.", code="invalid_value")
    if first["loc"] == ("body",):
        return error_response(400, "the body is missing, or is not a JSON object sent as application/json.")
    param = _place(first["loc"])
    return error_response(400, f"{param}: {_messages(param, error.errors())}", param=param, code="invalid_value")


def _place(loc: Sequence[int | str]) -> str:
    """Return the field's own name, without its place in a union."""
    return str(loc[1] if len(loc) > 1 else loc[0])


def _messages(param: str, errors: Sequence[Mapping[str, Any]]) -> str:
    """Return what each alternative of a union expected, without repeats."""
    found = [each["msg"] for each in errors if _place(each["loc"]) == param]
    return "; or: ".join(dict.fromkeys(found)) + "."
