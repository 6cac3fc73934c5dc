"""Parts of one's own: what packages outside register for the open slots, and how the union of a slot takes them in.

A kind from outside is `package:name`. An entry point `package` in the group `saucier.parts` names the module that
registers the kinds of a package; it is imported when such a kind is first met, in whichever process that is. A file
can only name a kind: what is not installed, or not registered by the program itself, is refused and never imported.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, TypeGuard, get_args

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SerializerFunctionWrapHandler
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, SchemaValidator, core_schema

from saucier.config.base import Config
from saucier.errors import InputError, shorten_text

GROUP = "saucier.parts"
"""The group of entry points."""
MARK = ":"
"""Between the package and the name of a kind from outside."""
PACKAGES = "packages"
"""The key under which a document names the packages of its kinds."""


@dataclass(frozen=True, slots=True)
class Extension:
    """A kind from outside."""

    config: type[Config]
    build: Callable[..., Any]
    """Builds the part that a config of this class describes; with which arguments, its slot says."""
    validator: SchemaValidator
    """Of one value, as a union with this one member: faults then have the place that they have in a closed union."""

    @property
    def slot(self) -> str:
        """The slot that it is for."""
        return str(self.config.slot)  # type: ignore[attr-defined]  # `register` looked


REGISTERED: dict[str, Extension] = {}
"""Kind -> what was registered for it in this process."""


def register(config: type[Config], build: Callable[..., Any]) -> None:
    """Let a recipe choose a part of one's own by its kind, `package:name`.

    `config` is a class that inherits the base of a slot (such as `AttentionKernel`), whose field `kind` is
    `Literal["package:name"]` with that default; `build` makes the part. Raises `InputError` for anything else, and for
    a kind that another class has.
    """
    named = getattr(config, "__name__", repr(config))
    if not (isinstance(config, type) and issubclass(config, Config) and isinstance(getattr(config, "slot", None), str)):
        raise InputError("is of no slot", where=named, remedy="inherit the base class of the slot, such as "
                         "saucier.config.AttentionKernel")
    kind = config.model_fields["kind"].default
    if get_args(config.model_fields["kind"].annotation) != (kind,) or not is_outside(kind):
        raise InputError(f"has the kind {kind!r}", where=named,
                         remedy='write kind: Literal["package:name"] = "package:name"')
    if not callable(build):
        raise InputError(f"{type(build).__name__} builds nothing", where=named, remedy="give a function or a class")
    known = REGISTERED.get(kind)
    if known is not None and (known.config.__module__, known.config.__qualname__) != (config.__module__,
                                                                                     config.__qualname__):
        raise InputError(f"{kind} is already {known.config.__module__}.{known.config.__qualname__}", where=named,
                         remedy="give it another name")
    schema = core_schema.tagged_union_schema({kind: core_schema_of(config)}, discriminator="kind")
    REGISTERED[kind] = Extension(config, build, SchemaValidator(schema))


def is_outside(kind: object) -> TypeGuard[str]:
    """Say whether a kind has the form of one from outside."""
    package, mark, name = kind.partition(MARK) if isinstance(kind, str) else ("", "", "")
    return bool(mark) and package.replace("-", "_").isidentifier() and name.replace("-", "_").isidentifier()


def find_builder(config: Config) -> Callable[..., Any]:
    """Return what builds the part that a registered config describes."""
    return REGISTERED[config.kind].build  # type: ignore[attr-defined]  # every member of a slot has one


def find_extension(kind: str) -> Extension | None:
    """Return what is registered for a kind from outside; its package is imported if need be. None: nothing is.

    Raises `InputError` for a package that cannot be imported.
    """
    if kind not in REGISTERED:
        import_package(kind.partition(MARK)[0])
    return REGISTERED.get(kind)


def import_package(package: str | None = None) -> None:
    """Import the modules that register the kinds of a package; None: those of all packages.

    Raises `InputError` for one that cannot be imported.
    """
    for entry in metadata.entry_points(group=GROUP):
        if package not in (None, entry.name):
            continue
        try:
            entry.load()
        except (ImportError, AttributeError) as error:
            raise InputError(f"the parts of {entry.name!r} cannot be imported: {error}", where=entry.value,
                             remedy=f"install the package {describe_package(entry.name)['package']} again") from error


def registered_kinds(slot: str | None = None) -> tuple[str, ...]:
    """Return the kinds that are registered for a slot, in order; None: for any."""
    return tuple(sorted(kind for kind, one in REGISTERED.items() if slot in (None, one.slot)))


def describe_package(package: str) -> dict[str, str]:
    """Return the name and the version of what provides the kinds of a package; empty where a program did itself."""
    entries = [one.dist for one in metadata.entry_points(group=GROUP, name=package) if one.dist is not None]
    return {"package": entries[0].name, "version": entries[0].version} if entries else {"package": "", "version": ""}


def list_outside_kinds(values: object) -> Iterator[str]:
    """Yield every kind from outside in plain values."""
    if isinstance(values, Mapping):
        if is_outside(kind := values.get("kind")):
            yield str(kind)
        yield from (found for one in values.values() for found in list_outside_kinds(one))
    elif isinstance(values, list | tuple):
        yield from (found for one in values for found in list_outside_kinds(one))


def name_packages(values: object) -> dict[str, Any]:
    """Return what a document with these values says of the packages that it needs: nothing where it needs none."""
    kinds = sorted({*list_outside_kinds(values)})
    return {PACKAGES: {kind: describe_package(kind.partition(MARK)[0]) for kind in kinds}} if kinds else {}


def list_versions(values: object) -> dict[str, str]:
    """Return the packages that provide the kinds in plain values, with their versions."""
    found = [describe_package(kind.partition(MARK)[0]) for kind in list_outside_kinds(values)]
    return {one["package"]: one["version"] for one in found if one["package"]}


def list_local_kinds(values: object) -> list[str]:
    """Return the kinds in plain values that this program registered itself, so that no other process knows them."""
    kinds = sorted({*list_outside_kinds(values)})
    return [kind for kind in kinds if not describe_package(kind.partition(MARK)[0])["package"]]


def require_packages(document: Mapping[str, Any], where: str) -> None:
    """Raise `InputError` where a document needs a kind whose package is missing; warn where it has another version."""
    needed = document.get(PACKAGES)
    for kind, made in needed.items() if isinstance(needed, Mapping) else ():
        made = made if isinstance(made, Mapping) else {}
        package, version = (shorten_text(str(made.get(key, ""))) for key in ("package", "version"))
        if not is_outside(kind) or find_extension(kind) is None:
            what, remedy = explain_missing(str(kind), package, version)
            raise InputError(what, where=where, remedy=remedy)
        found = describe_package(kind.partition(MARK)[0])["version"]
        if version and found and found != version:
            warnings.warn(f"{where}: {kind} was saved with {package} {version}, and {found} is installed", stacklevel=2)


def explain_missing(kind: str, package: str = "", version: str = "") -> tuple[str, str]:
    """Return what is wrong with a kind that nothing registers, and the remedy."""
    prefix = kind.partition(MARK)[0]
    if package:
        return (f"{kind!r} is a part of the package {package} {version}, which is not installed",
                f"pip install {package}=={version}")
    return (f"{kind!r} is a part of the package {prefix!r}, which is not installed",
            f"pip install the package with the entry point {prefix!r} of {GROUP}, or call saucier.register first")


def core_schema_of(config: type[Config]) -> CoreSchema:
    """Return what Pydantic makes validators of a config from; it is made at the first use of the config."""
    config.model_rebuild()
    return config.__pydantic_core_schema__


@dataclass(frozen=True, slots=True)
class OpenSlot:
    """Opens a union of configs, told apart by `kind`, for kinds from outside; put it into `Annotated`.

    The union lists its own members and, for the type checker, the base class that members from outside inherit.
    """

    slot: str

    def list_tags(self) -> tuple[str, ...]:
        """Return the kinds that are registered for the slot."""
        return registered_kinds(self.slot)

    def find_member(self, tag: str) -> type[Config]:
        """Return the class of a registered kind."""
        return REGISTERED[tag].config

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate a kind from outside by its own class, all else by the closed union; write each as it is."""
        choices = {tag: handler.generate_schema(member) for member in get_args(source)
                   for tag in get_args(member.model_fields["kind"].annotation)}  # the base class has no kind of its own
        closed = core_schema.tagged_union_schema(choices, discriminator="kind", strict=False, from_attributes=True)

        def validate(value: Any, closed_union: core_schema.ValidatorFunctionWrapHandler) -> Any:
            kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
            if not is_outside(kind):
                return closed_union(value)
            found = find_extension(kind)
            if found is not None and found.slot == self.slot:
                return found.validator.validate_python(value)
            if any(one.partition(MARK)[0] == kind.partition(MARK)[0] for one in REGISTERED):
                expected = ", ".join(f"'{one}'" for one in [*self.list_tags(), *choices])
                raise PydanticKnownError("union_tag_invalid", {"discriminator": "'kind'", "tag": kind,
                                                               "expected_tags": expected})
            what, remedy = explain_missing(kind)
            raise PydanticCustomError("package_missing", "{what}", {"what": what, "remedy": remedy})

        def serialize(value: Any, closed_union: SerializerFunctionWrapHandler,
                      info: core_schema.SerializationInfo) -> Any:
            return value.model_dump(mode=info.mode) if is_outside(value.kind) else closed_union(value)

        return core_schema.no_info_wrap_validator_function(
            validate, closed, serialization=core_schema.wrap_serializer_function_ser_schema(
                serialize, schema=closed, info_arg=True))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of the closed union, and of what is registered."""
        closed: Any = schema
        while "choices" not in closed:  # inside of what validates and writes
            closed = closed["schema"]
        outside = {kind: core_schema_of(self.find_member(kind)) for kind in self.list_tags()}
        return handler({**closed, "choices": closed["choices"] | outside})
