"""The fingerprints of schemas: kinds may move between classes, and nothing else may change unseen."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, create_model
from tools.frozen.items import Item
from tools.frozen.surface import Parts, keys


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Ahead(Part):
    """From the first token."""

    kind: Literal["ahead"] = "ahead"


class Back(Part):
    kind: Literal["back"] = "back"


class Direction(Part):
    """Ahead or back."""

    kind: Literal["ahead", "back"]


class Wide(Part):
    kind: Literal["wide"] = "wide"
    width: int = Field(default=3, gt=0)
    inner: Direction = Direction(kind="back")


APART = Annotated[Ahead | Back, Field(discriminator="kind")]


def fingerprints(**fields: object) -> dict[str, Item]:
    """Return the keys of a document with these fields."""
    schema = create_model("Document", **fields).model_json_schema()  # type: ignore[call-overload]
    found = [*keys("x", Parts(schema.get("$defs", {})), schema)]
    assert len(dict(found)) == len(found)
    return dict(found)


BEFORE = fingerprints(way=(APART, Ahead()), start=(APART | None, None), several=(tuple[APART, ...], ()))


def test_kinds_may_be_grouped_into_classes() -> None:
    assert fingerprints(way=(Direction, Direction(kind="ahead")), start=(Direction | None, None),
                                  several=(tuple[Direction, ...], ())) == BEFORE
    assert {"x/way", "x/way[ahead].kind", "x/way[back].kind"} < BEFORE.keys()


@pytest.mark.parametrize("way", [(Direction, Direction(kind="back")), (Direction, ...), (Direction | None, None),
                                 (Ahead, Ahead()),
                                 (Annotated[Direction | Wide, Field(discriminator="kind")], Ahead())])
def test_another_default_kind_or_necessity_is_seen(way: object) -> None:
    assert fingerprints(way=way, start=(Direction | None, None), several=(tuple[Direction, ...], ())) != BEFORE


def test_a_kind_that_may_be_left_out_is_seen() -> None:
    """One class with one kind knows it; of several kinds it must be said."""
    class One(Part):
        kind: Literal["one"] = "one"

    class Told(Part):
        kind: Literal["one"]

    assert fingerprints(way=(One, ...)) != fingerprints(way=(Told, ...))


def test_a_key_deep_inside_is_seen() -> None:
    class Wider(Wide):
        width: int = Field(default=4, gt=0)

    changed = {name for name, item in fingerprints(way=(Wider, ...)).items()
               if fingerprints(way=(Wide, ...)).get(name) != item}
    assert changed == {"x/way[wide].width"}
