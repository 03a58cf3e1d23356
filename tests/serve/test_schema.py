"""The whole API, with requests that schemathesis generates from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

from alfa.serve import create_app
from alfa.serve._limits import Limits

_settings = settings(
    max_examples=6,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
schemathesis = pytest.importorskip("schemathesis", reason="needs pip install 'alfa[dev]'")


@pytest.fixture(scope="module")
def api(run: Path, files: list[list[bytes]]) -> Any:
    """The application with a session, whose identifiers replace those of some requests."""
    from starlette.testclient import TestClient

    app = create_app(run, hosts=["testserver"], limits=Limits(sessions=1_000_000))
    with TestClient(app) as web:
        path = web.post("/api/v1/sessions").headers["location"]
        ids = {"session_id": path.rpartition("/")[2]}
        for number, name in enumerate(("cat", "dog")):
            made = web.post(f"{path}/classes", json={"name": name}).json()
            ids["class_id"] = made["classes"][-1]["id"]
            parts = [("files", ("a.png", content)) for content in files[number]]
            added = web.post(f"{path}/classes/{ids['class_id']}/examples", files=parts).json()
            ids["example_id"] = added["added"][0]
        assert web.post(f"{path}/learn").status_code == 200
        yield app, ids


@pytest.fixture
def denormals() -> Iterator[None]:
    """Keep denormals, which hypothesis generates; commands that ran before may flush them."""
    flushed = (torch.full((4,), 1e-39) * 1.0).count_nonzero().item() == 0
    torch.set_flush_denormal(False)
    yield
    torch.set_flush_denormal(flushed)


@pytest.mark.usefixtures("denormals")
def test_no_request_makes_the_server_fail(api: Any) -> None:
    app, ids = api
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) == 20
    # Deletions come last, because the other requests need the session.
    operations.sort(key=lambda operation: operation.method.upper() == "DELETE")
    statuses: set[int] = set()

    def check(case: Any) -> None:
        answer = case.call(base_url="http://testserver")
        statuses.add(answer.status_code)
        assert answer.status_code < 500, (case.as_curl_command(), answer.text)

    for operation in operations:

        @_settings
        @given(case=operation.as_strategy())
        def check_known(case: Any) -> None:
            case.path_parameters = {**(case.path_parameters or {}), **ids}
            check(case)

        @_settings
        @given(case=operation.as_strategy())
        def check_any(case: Any) -> None:
            check(case)

        check_any()
        check_known()
    assert {200, 201, 204, 404, 409, 422} <= statuses, statuses
