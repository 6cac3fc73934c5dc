"""Character networks that do not fit their tokens, or what reads their vectors."""

from __future__ import annotations

from saucier.config.adaptive import ProjectClusters
from saucier.config.model import ProjectTrigram, Transformer
from saucier.errors import InputError


def check_characters(config: Transformer) -> None:
    """Raise `InputError` where token vectors cannot be made of characters."""
    later = (("decoder_embed", config.decoder_embed), ("source.embed", config.source.embed if config.source else None))
    both = config.encoder is not None and config.decoder is not None
    for name, embed in (("embed", config.embed), *later):
        if embed is None or embed.characters is None:
            continue
        if both or name != "embed":
            raise InputError("characters are read by a model of one stack", where=f"{name}.characters",
                             remedy="leave it out, or remove the other stack")
        if isinstance(embed.projection, ProjectClusters | ProjectTrigram):
            raise InputError(f"a token's vector comes from its characters, and from {embed.projection.kind} too",
                             where=f"{name}.characters", remedy="leave one of them out")
        if (widest := max(size for size, _ in embed.characters.filters)) > embed.characters.longest:
            raise InputError(f"a filter of {widest} characters over tokens of {embed.characters.longest}",
                             where=f"{name}.characters.filters", remedy="use narrower filters, or raise longest")
        if config.output_layer is not None and config.output_layer.tied:
            raise InputError("an output matrix cannot be tied to vectors that are made of characters", where="head",
                             remedy="use tied: false")
