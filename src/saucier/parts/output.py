"""`Output`, what a forward pass gives, with the names that published classes have for its fields."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from saucier.parts.cache import Cache


@dataclass(slots=True)
class Output:
    """What a forward pass gives; a field is None where the model or the call has no such thing.

    For one stack the records are `hidden_states` and `attentions`; an encoder-decoder has `encoder_…` and `decoder_…`.
    `hidden_states[0]` is the embedding, the last is the stack's output; `attentions[i]` is [B, H, Q, K].
    """

    logits: Tensor | None = None
    backward_logits: Tensor | None = None
    """[B, L, V], of the token before each, by a bidirectional head."""
    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    sentence_logits: Tensor | None = None
    """[B, C], of a pretraining head."""
    length_logits: Tensor | None = None
    """[B, longest + 1], of a head that predicts how long the target is."""
    start_logits: Tensor | None = None
    """[B, L], of a span head."""
    end_logits: Tensor | None = None
    mc_logits: Tensor | None = None
    """[B, N], of a double head."""
    embeddings: Tensor | None = None
    """[B, E], of a head that gives one vector for each text."""
    relevance_logits: Tensor | None = None
    """[B], of a reader: the text holds the answer."""
    candidate_embeddings: Tensor | None = None
    """[B, N, E], of the candidates that the batch holds."""
    relevance_score: Tensor | None = None
    """[B, N], the inner product of each candidate's vector with the text's."""
    cache: Cache | None = None
    mems: list[Tensor] | None = None
    """[M, B, D] for each block: the memory for the next segment."""
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    global_attentions: tuple[Tensor, ...] | None = None
    """Of sliding windows with global tokens: what these give to every key, [B, H, K, most global tokens of a row];
    `attentions` then holds what the others give to global keys and to their neighbours (see `parts.global_attention`).
    """
    router_logits: tuple[Tensor, ...] | None = None
    """[B·L, experts] for each layer with experts, before the softmax (see `parts.experts.balance`)."""
    encoder_last_hidden_state: Tensor | None = None
    encoder_hidden_states: tuple[Tensor, ...] | None = None
    encoder_attentions: tuple[Tensor, ...] | None = None
    encoder_global_attentions: tuple[Tensor, ...] | None = None
    encoder_router_logits: tuple[Tensor, ...] | None = None
    encoder_states: tuple[tuple[Tensor, ...], ...] | None = None
    """[B, W] each: for every recurrent layer of the encoder its last output, and an LSTM's memory behind it."""
    decoder_hidden_states: tuple[Tensor, ...] | None = None
    decoder_attentions: tuple[Tensor, ...] | None = None
    cross_attentions: tuple[Tensor, ...] | None = None
    decoder_router_logits: tuple[Tensor, ...] | None = None

    @property
    def prediction_scores(self) -> Tensor | None:
        """The log probabilities of an adaptive head, under the name that Transformer-XL's class has for them."""
        return self.logits

    @property
    def prediction_logits(self) -> Tensor | None:
        """The token logits, under the name that BERT's pretraining class has for them."""
        return self.logits

    @property
    def seq_relationship_logits(self) -> Tensor | None:
        """The sentence logits, likewise."""
        return self.sentence_logits

    @property
    def sop_logits(self) -> Tensor | None:
        """The sentence logits, under ALBERT's name."""
        return self.sentence_logits

    @property
    def projected_score(self) -> Tensor | None:
        """The text's vector, under REALM's name."""
        return self.embeddings

    @property
    def query_score(self) -> Tensor | None:
        """The same, where there are candidates."""
        return self.embeddings

    @property
    def candidate_score(self) -> Tensor | None:
        """The candidates' vectors, under REALM's name."""
        return self.candidate_embeddings
