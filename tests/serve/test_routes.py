"""The endpoints for sessions, classes, and examples."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from alfa.serve import serving
from alfa.serve._limits import Limits

Files = list[list[bytes]]


JSON = {"content-type": "application/json"}


def png(side: int, value: int = 0) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (side, side), value).save(buffer, "PNG")
    return buffer.getvalue()


def code(answer: Any) -> str:
    assert set(answer) == {"status", "code", "title", "detail", "field"}
    assert re.search(r"[.]$", answer["detail"])
    return str(answer["code"])


def test_health_and_models(client: Any) -> None:
    health = client.web.get("/health").json()
    assert health["status"] == "ok"
    assert health["models_loaded"] == ["classes"]
    assert health["num_sessions"] >= 1
    found = client.web.get("/models").json()
    assert found["default"] == "classes"
    models = {model["name"]: model for model in found["models"]}
    assert next(iter(models)) == "classes"
    assert models["classes"]["input"] == models["strokes"]["input"] == "drawing"
    assert (models["photos"]["input"], models["photos"]["adapts"]) == ("photo", False)
    assert models["strokes"]["adapts"]
    assert found["limits"]["uploads"] == Limits().uploads


def test_a_model_without_its_backbone_is_not_available(
    client: Any, monkeypatch: pytest.MonkeyPatch, run: Path
) -> None:
    monkeypatch.setattr("alfa.backbones.BackboneCard.is_installed", False)
    with serving(run) as other:
        url = f"{other.address}/api/v1"
        models = {m["name"]: m for m in client.web.get(f"{url}/models").json()["models"]}
        assert not models["photos"]["available"]
        assert "pip install" in models["photos"]["reason"]
        answer = client.web.post(f"{url}/sessions", json={"model": "photos"})
    assert (answer.status_code, code(answer.json())) == (409, "model-unavailable")


def test_a_session_is_found_until_it_is_deleted(client: Any) -> None:
    answer = client.web.post("/sessions")
    state = answer.json()
    assert answer.headers["location"] == f"/api/v1/sessions/{state['id']}"
    assert state["classes"] == state["unlabeled"] == state["warnings"] == []
    assert (state["model"], state["learned"], state["can_undo"]) == ("classes", None, False)
    path = f"/sessions/{state['id']}"
    assert client.web.get(path).json() == state
    assert client.web.delete(path).status_code == 204
    answer = client.web.get(path)
    assert (answer.status_code, code(answer.json())) == (404, "unknown-session")
    answer = client.web.post("/sessions", json={"model": "none"})
    assert (answer.status_code, answer.json()["field"]) == (422, "model")
    assert "must be one of classes, cifar-fs" in answer.json()["detail"]


def test_classes_are_added_renamed_and_deleted(client: Any) -> None:
    answer = client.web.post(f"{client.path}/classes", json={"name": "  a   new\tname "})
    [made] = answer.json()["classes"]
    assert made["name"] == "a new name"
    assert answer.headers["location"].endswith(f"/classes/{made['id']}")
    path = f"/classes/{made['id']}"
    assert client.call("PATCH", path, json={"name": "cat"})["classes"][0]["name"] == "cat"
    version = client.state()["version"]
    # The same name again is no change.
    assert client.call("PATCH", path, json={"name": "cat"})["version"] == version
    assert client.call("DELETE", path)["classes"] == []
    assert code(client.call("DELETE", path, status=404)) == "unknown-class"


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("", "a class needs a name"),
        (" .. ", "a class needs a name"),
        ("a/b", "must not contain"),
        ("..\\b", "must not contain"),
        ("b.", "end with a dot"),
        ("a\x00b", "must not contain"),
        ("a\u202eb", "must not contain"),
        ("<b>", "must not contain"),
        ("x" * 41, "at most 40 characters, got 41"),
        (None, "`name` is invalid"),
        (3, "`name` is invalid"),
    ],
)
def test_invalid_names_are_refused(client: Any, name: Any, detail: str) -> None:
    answer = client.call("POST", "/classes", json={"name": name}, status=422)
    assert detail in answer["detail"]
    assert answer["field"] == "name"


def test_names_differ_by_more_than_case(client: Any) -> None:
    client.add_class("Cat")
    answer = client.call("POST", "/classes", json={"name": "cAT"}, status=409)
    assert answer["detail"] == "`name` 'cAT' is already a class; choose another name."
    assert (code(answer), answer["field"]) == ("class-name-taken", "name")


def test_photos_are_added_moved_and_deleted(client: Any, files: Files) -> None:
    cat, dog = client.add_class("cat"), client.add_class("dog")
    added = client.send(f"/classes/{cat}/examples", *files[0][:2], name="dir/IMG 1.png")
    first, second = added["added"]
    [own, _] = added["session"]["classes"]
    assert own["examples"][0] == {
        "id": first,
        "name": "IMG 1.png",
        "width": 40,
        "height": 40,
        "kind": "photo",
    }
    state = client.call("PATCH", f"/examples/{first}", json={"class_id": dog})
    assert [[e["id"] for e in each["examples"]] for each in state["classes"]] == [[second], [first]]
    # Moving to the same class is no change.
    again = client.call("PATCH", f"/examples/{first}", json={"class_id": dog})
    assert again["version"] == state["version"]
    state = client.call("DELETE", f"/examples/{second}")
    assert state["classes"][0]["examples"] == []
    [unlabeled] = client.send("/unlabeled", files[1][0])["added"]
    state = client.call("PATCH", f"/examples/{unlabeled}", json={"class_id": cat})
    assert [e["id"] for e in state["classes"][0]["examples"]] == [unlabeled]
    assert state["unlabeled"] == []
    for method, path, body in (
        ("DELETE", f"/examples/{second}", None),
        ("PATCH", f"/examples/{first}", {"class_id": "c99"}),
    ):
        assert code(client.call(method, path, json=body, status=404)).startswith("unknown-")


def test_images_are_original_or_small(client: Any) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "Secret"
    buffer = io.BytesIO()
    Image.new("RGB", (1000, 600), "red").save(buffer, "JPEG", exif=exif)
    [photo] = client.send("/unlabeled", buffer.getvalue())["added"]
    [view] = client.state()["unlabeled"]
    # Upright, as the EXIF orientation says.
    assert (view["width"], view["height"]) == (600, 1000)
    path = f"{client.path}/examples/{photo}/image"
    original = client.web.get(path, params={"size": "original"})
    assert original.content == buffer.getvalue()
    assert original.headers["content-type"] == "image/jpeg"
    small = client.web.get(path)
    assert Image.open(io.BytesIO(small.content)).size == (192, 320)
    assert b"Secret" not in small.content
    # The browser must not keep photos after the session.
    assert small.headers["cache-control"] == original.headers["cache-control"] == "no-store"
    assert client.web.get(path, params={"size": "huge"}).status_code == 422


def test_unusable_files_do_not_affect_others(client: Any, files: Files) -> None:
    good = files[0][0]
    parts = [
        ("files", ("a.png", good)),
        ("files", ("notes.txt", b"hello")),
        ("files", ("b.png", good[:60])),
        ("files", ("c.png", b"")),
        ("files", ("bomb.pgm", b"P5 100000 100000 255\n")),
        ("files", ("wide.png", as_wide_png())),
    ]
    answer = client.call("POST", "/unlabeled", files=parts, status=201)
    assert len(answer["added"]) == len(answer["session"]["unlabeled"]) == 1
    details = {each["name"]: each["detail"] for each in answer["refused"]}
    assert details["notes.txt"] == "“notes.txt” is not an image, or its format is not supported."
    assert details["b.png"].startswith("“b.png” is damaged or truncated")
    assert details["c.png"] == "“c.png” is an empty file."
    assert "pixels (the limit is 64,000,000)" in details["bomb.pgm"]
    assert "a side may have at most 20,000" in details["wide.png"]
    assert {each["code"] for each in answer["refused"]} == {"not-an-image"}


def as_wide_png() -> bytes:
    buffer = io.BytesIO()
    Image.new("1", (20_001, 1)).save(buffer, "PNG")
    return buffer.getvalue()


def test_bodies_other_than_files_are_refused(client: Any) -> None:
    answer = client.call("POST", "/unlabeled", json={}, status=415)
    assert "multipart/form-data" in answer["detail"]
    for options in (
        {"files": [("other", ("a.png", b"x"))]},
        {"headers": {"content-type": "multipart/form-data"}, "content": b"x"},
        {"headers": {"content-type": "multipart/form-data; boundary=x"}, "content": b"--y"},
        {"files": [("files", (f"{n}.png", b"x")) for n in range(51)]},
        {"files": [("files", (f"{n}.png", b"x")) for n in range(60)]},
    ):
        answer = client.call("POST", "/unlabeled", status=422, **options)
        assert code(answer) == "invalid-multipart"
    answer = client.web.post(f"{client.path}/classes", content=b"{", headers=JSON)
    assert (answer.status_code, code(answer.json())) == (422, "invalid")
    assert client.web.put("/sessions").status_code == 405
    assert code(client.web.get("/nothing").json()) == "not-found"


def test_drawings_are_rendered_for_the_model(client: Any, server: Any) -> None:
    ring = client.add_class("ring")
    [own] = client.draw(f"/classes/{ring}/examples")["added"]
    [example] = client.state()["classes"][0]["examples"]
    assert (example["kind"], example["width"]) == ("drawing", 128)
    image = client.web.get(f"{client.path}/examples/{own}/image")
    assert image.headers["content-type"] == "image/png"
    assert np.asarray(Image.open(io.BytesIO(image.content))).min() < 60
    for strokes, reason in (
        ([], "the pad is empty"),
        ([[[1, 2, 3]]], "is invalid"),
        ([[[0.0, 0.0]] * 5_001], "more than the limit of 5,000"),
    ):
        [refused] = client.draw("/unlabeled", strokes)["refused"]
        assert reason in refused["detail"]
    [refused] = client.draw("/unlabeled", [[[0, 0]]] * 300_000)["refused"]
    assert "more than 1 MB" in refused["detail"]


def test_models_of_photos_refuse_drawings(client: Any, photo_client: Any) -> None:
    [refused] = photo_client.draw("/unlabeled")["refused"]
    assert refused["code"] == "drawing-not-supported"
    client.draw("/unlabeled")
    answer = client.call("PATCH", json={"model": "cifar-fs"}, status=409)
    assert code(answer) == "model-unsuitable"


def test_changes_can_be_undone(client: Any, files: Files) -> None:
    assert code(client.call("POST", "/undo", status=409)) == "nothing-to-undo"
    states = [client.state()]
    cat = client.add_class("cat")
    states.append(client.state())
    client.send(f"/classes/{cat}/examples", *files[0])
    states.append(client.state())
    example = states[-1]["classes"][0]["examples"][0]["id"]
    client.call("PATCH", f"/classes/{cat}", json={"name": "dog"})
    states.append(client.state())
    client.call("DELETE", f"/examples/{example}")
    states.append(client.state())
    client.send("/unlabeled", files[1][0])
    states.append(client.state())
    client.call("DELETE", f"/classes/{cat}")
    labels = []
    for before in reversed(states):
        labels.append(client.state()["undo_label"])
        state = client.call("POST", "/undo")
        assert state["version"] > before["version"]
        for name in ("classes", "unlabeled", "undo_label", "warnings"):
            assert state[name] == before[name]
    assert labels == [
        "Delete “dog”",
        "Add 1 photo without a label",
        "Delete “a.png”",
        "Rename “cat” to “dog”",
        "Add 5 photos to “cat”",
        "Add class “cat”",
    ]


def test_uploads_of_a_batch_are_undone_together(client: Any, files: Files) -> None:
    cat = client.add_class("cat")
    for content in files[0]:
        client.send(f"/classes/{cat}/examples?batch=first", content)
    client.send(f"/classes/{cat}/examples?batch=other", files[1][0])
    assert client.call("POST", "/undo")["undo_label"] == "Add 5 photos to “cat”"
    state = client.call("POST", "/undo")
    assert (state["undo_label"], state["classes"][0]["examples"]) == ("Add class “cat”", [])


def test_warnings_name_the_examples(photo_client: Any, photos: Files) -> None:
    rng = np.random.default_rng(3)
    scene = rng.integers(0, 255, (40, 50, 3), np.uint8)
    buffers = [io.BytesIO(), io.BytesIO()]
    Image.fromarray(scene).resize((200, 160)).save(buffers[0], "PNG")
    Image.fromarray(scene).resize((300, 240)).save(buffers[1], "JPEG")
    first, second = (photo_client.add_class(name) for name in ("terrier", "terriers"))
    [copy] = photo_client.send(f"/classes/{first}/examples", buffers[0].getvalue())["added"]
    assert {w["code"] for w in photo_client.state()["warnings"]} == {"one-photo", "similar-names"}
    [other] = photo_client.send(f"/classes/{second}/examples", buffers[1].getvalue())["added"]
    photo_client.send(f"/classes/{second}/examples", *photos[0], png(8))
    photo_client.send(f"/classes/{first}/examples", photos[1][0])
    found = {w["code"]: w for w in photo_client.state()["warnings"]}
    assert found["duplicate"]["examples"] == [copy, other]
    assert "is in “terrier” and “terriers”" in found["duplicate"]["text"]
    assert found["imbalance"]["text"].startswith("“terrier” has 2 photos, but “terriers” has 8")
    assert "is smaller than half" in found["small-photo"]["text"]
    assert "nearly the same name" in found["similar-names"]["text"]
    photo_client.call("DELETE", f"/examples/{copy}")
    assert "duplicate" not in {w["code"] for w in photo_client.state()["warnings"]}


def test_another_model_embeds_all_photos_again(photo_client: Any, photos: Files) -> None:
    ids = photo_client.teach([own[:3] for own in photos])
    photo_client.call("POST", "/learn")
    photo_client.call("DELETE", f"/classes/{ids[2]}")
    before = photo_client.state()
    state = photo_client.call("PATCH", json={"model": "cifar-fs"})
    assert (state["model"], state["learned"]) == ("cifar-fs", None)
    assert state["classes"] == before["classes"]
    # Deleted photos were embedded, too.
    photo_client.call("POST", "/undo")
    assert photo_client.call("POST", "/learn")["learned"]["class_ids"] == ids


def zipped(files: dict[str, bytes], *, packed: bool = False) -> bytes:
    buffer = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", kind) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return buffer.getvalue()


def test_saved_examples_are_the_original_files(
    client: Any, server: Any, open_client: Callable[..., Any], files: Files
) -> None:
    client.teach(files, ("ålef & co. 'x'", "bet", "gimel"))
    client.draw(f"/classes/{client.add_class('ring')}/examples")
    answer = client.web.get(f"{client.path}/export", params={"format": "examples"})
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''examples.zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert names[:2] == ["ålef & co. 'x'/a.png", "ålef & co. 'x'/a 2.png"]
        assert names[-1] == "ring/drawing.png"
        assert [archive.read(name) for name in names[:5]] == files[0]
    other = open_client(server.address)
    unlabeled = other.send("/unlabeled", files[0][0])["session"]["unlabeled"]
    loaded = other.send("/import", answer.content, status=200, name="examples.zip")
    assert (len(loaded["added"]), loaded["refused"]) == (16, [])
    assert [each["name"] for each in loaded["session"]["classes"]][-1] == "ring"
    assert loaded["session"]["unlabeled"] == unlabeled
    assert other.call("POST", "/undo")["classes"] == []


def test_zips_of_class_folders_can_be_loaded(client: Any, files: Files) -> None:
    client.add_class("old")
    content = zipped(
        {
            "pets/my  cats/1.png": files[0][0],
            "pets/dog/a.png": files[1][0],
            "pets/dog/b.txt": b"hello",
            "pets/.DS_Store": b"x",
            "__MACOSX/pets/cat/._1.png": b"x",
        }
    )
    loaded = client.send("/import", content, status=200)
    classes = [(each["name"], len(each["examples"])) for each in loaded["session"]["classes"]]
    assert classes == [("my cats", 1), ("dog", 1)]
    assert [each["name"] for each in loaded["refused"]] == ["b.txt"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is damaged or has the wrong type"),
        (b"hello", "is damaged or has the wrong type"),
        (zipped({}), "1 to 200 folders of photos, got 0"),
        (zipped({"1.png": b"x"}), "is not in a class folder"),
        (zipped({"../cat/1.png": b"x"}), "outside the target folder"),
        (zipped({"/cat/1.png": b"x"}), "outside the target folder"),
        (zipped({"..\\..\\cat\\1.png": b"x"}), "outside the target folder"),
        (zipped({"C:/cat/1.png": b"x"}), "outside the target folder"),
        (zipped({"a?b/1.png": b"x"}), "a class name must not contain"),
        (zipped({"cat/1.png": b"x", "Cat/1.png": b"x"}), "'Cat' is already a class"),
        (zipped({f"c{n}/1.png": b"" for n in range(201)}), "1 to 200 folders of photos, got 201"),
        (zipped({f".{n}": b"" for n in range(1101)}), "more than 1,100 files"),
    ],
)
def test_invalid_zips_change_nothing(client: Any, content: bytes, reason: str) -> None:
    client.add_class("old")
    before = client.state()
    answer = client.web.post(f"{client.path}/import", files={"files": ("x.zip", content)})
    assert 400 <= answer.status_code < 500
    assert reason in answer.json()["detail"]
    assert client.state() == before


def test_photos_and_memory_have_limits(
    run: Path, files: Files, open_client: Callable[..., Any]
) -> None:
    photo = files[0][0]
    limits = Limits(photos=3, classes=1, file_bytes=len(photo))
    with serving(run, limits=limits) as server:
        client = open_client(server.address)
        client.add_class("cat")
        answer = client.call("POST", "/classes", json={"name": "dog"}, status=409)
        assert code(answer) == "too-many-classes"
        [refused] = client.send("/unlabeled", photo + b"x")["refused"]
        assert refused["code"] == "too-large"
        answer = client.send("/unlabeled", *[png(16, n) for n in range(4)])
        assert [each["code"] for each in answer["refused"]] == ["too-many-photos"]
        size = 2 * (len(png(320)) + len(png(16))) + 100
    with serving(run, limits=Limits(session_bytes=size)) as server:
        client = open_client(server.address)
        first, second, third = (png(16, n) for n in range(3))
        [own] = client.send("/unlabeled", first)["added"]
        client.send("/unlabeled", second)
        while (
            "refused" not in (answer := client.send("/unlabeled", third)) or not answer["refused"]
        ):
            pass
        assert answer["refused"][0]["code"] == "session-full"
        # Room for a photo is more useful than a deleted one that could be restored.
        client.call("DELETE", f"/examples/{own}")
        assert client.send("/unlabeled", third)["refused"] == []
        assert client.state()["undo_label"] == "Add 1 photo without a label"
