"""Changes of a session while the server computes for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alfa.serve._limits import Limits
from alfa.serve._model import Model, open_models
from alfa.serve._photo import Upload, decode_upload
from alfa.serve._service import Service
from alfa.serve._session import Session

Files = list[list[bytes]]


@pytest.fixture(scope="module")
def models(photo_run: Path) -> list[Model]:
    own, *rest = open_models(photo_run)
    return [own, next(model for model in rest if model.name == "cifar-fs")]


@pytest.fixture
def service(models: list[Model]) -> Any:
    made = Service(models, Limits())
    yield made
    made.close()


async def add(service: Service, session: Session, contents: list[bytes]) -> list[str]:
    photos, refused = await service.receive(session, [Upload("a.jpg", c) for c in contents])
    assert refused == []
    session.add_photos(None, photos)
    return [photo.id for photo in photos]


def test_a_photo_that_is_deleted_during_the_ranking_stays_deleted(
    service: Service, photos: Files
) -> None:
    async def run() -> None:
        session = service.sessions.create(await service.load_model(None))
        first, second, third = await add(service, session, photos[0][:3])
        session.delete_photo(second)
        session.rank([third, second])
        found = [(photo.id, photo.usefulness) for photo in session.unlabeled]
        assert found == [(third, 1.0), (first, None)]

    asyncio.run(run())


def test_changes_during_a_change_of_the_model_are_kept(
    service: Service, models: list[Model], photos: Files
) -> None:
    async def run() -> None:
        session = service.sessions.create(await service.load_model(None))
        await service.load_model("cifar-fs")
        first, second = await add(service, session, photos[0][:2])
        change = asyncio.create_task(service.change_model(session, "cifar-fs"))
        while not session.lock.locked():
            await asyncio.sleep(0)
        # These need no lock.
        cat = session.add_class("cat")
        session.move(first, cat.id)
        session.delete_photo(second)
        await change
        assert session.model is models[1]
        assert [photo.id for photo in session.get_class(cat.id).examples] == [first]
        session.undo()
        assert [photo.id for photo in session.unlabeled] == [second]
        formats = {id(photo.images.format) for photo in session.all_photos().values()}
        assert formats == {id(models[1].image_format)}

    asyncio.run(run())


def test_the_levels_of_a_photo_are_those_of_the_model(models: list[Model], photos: Files) -> None:
    for model in models:
        found = decode_upload(Upload("a.jpg", photos[0][0]), model, side_pixels=1000)
        assert (found.levels == model.image_format.decode(photos[0][0])[0]).all()
        assert found.levels.dtype == np.uint8
