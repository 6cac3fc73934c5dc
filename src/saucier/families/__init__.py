"""The families: one short function each, from hyper-parameters to a config, and the published layouts that can be read
and written. `FAMILIES` and `LAYOUTS` are the whole lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from saucier.checkpoints.layout import MODEL_TYPE, Layout
from saucier.config import Transformer
from saucier.errors import InputError, suggest_name
from saucier.families.albert import ALBERT_LAYOUT, albert
from saucier.families.bart import BART_LAYOUT, MBART_LAYOUT, bart, mbart
from saucier.families.bert import BERT_GENERATION_LAYOUT, BERT_LAYOUT, bert, bert_generation
from saucier.families.big_bird import BIG_BIRD_LAYOUT, big_bird
from saucier.families.bloom import BLOOM_LAYOUT, bloom
from saucier.families.ctrl import CTRL_LAYOUT, ctrl
from saucier.families.deberta import DEBERTA_LAYOUT, DEBERTA_V2_LAYOUT, deberta, deberta_v2
from saucier.families.distilbert import DISTILBERT_LAYOUT, distilbert
from saucier.families.dpr import DPR_LAYOUT, dpr
from saucier.families.electra import ELECTRA_LAYOUT, electra, electra_generator
from saucier.families.encoder_decoder import ENCODER_DECODER_LAYOUT, bert2bert
from saucier.families.fnet import FNET_LAYOUT, fnet
from saucier.families.funnel import FUNNEL_LAYOUT, funnel
from saucier.families.gpt import GPT_LAYOUT, gpt
from saucier.families.gpt2 import GPT2_LAYOUT, gpt2
from saucier.families.gpt_neo import GPT_NEO_LAYOUT, gpt_neo
from saucier.families.gpt_neox import GPT_NEOX_LAYOUT, GPTJ_LAYOUT, gpt_neox, gptj
from saucier.families.led import LED_LAYOUT, led
from saucier.families.llama import LLAMA_LAYOUT, llama
from saucier.families.longformer import LONGFORMER_LAYOUT, longformer
from saucier.families.marian import M2M_100_LAYOUT, MARIAN_LAYOUT, PEGASUS_LAYOUT, m2m_100, marian, pegasus
from saucier.families.mistral import MISTRAL_LAYOUT, MIXTRAL_LAYOUT, mistral, mixtral
from saucier.families.mobilebert import MOBILEBERT_LAYOUT, ib_bert, mobilebert
from saucier.families.modernbert import MODERNBERT_LAYOUT, modernbert
from saucier.families.mpnet import MPNET_LAYOUT, mpnet
from saucier.families.nystromformer import NYSTROMFORMER_LAYOUT, nystromformer
from saucier.families.opt import OPT_LAYOUT, opt
from saucier.families.realm import REALM_LAYOUT, realm
from saucier.families.reformer import reformer
from saucier.families.reformer_tables import REFORMER_LAYOUT
from saucier.families.roberta import (
    CAMEMBERT_LAYOUT,
    ROBERTA_LAYOUT,
    XLM_ROBERTA_LAYOUT,
    camembert,
    roberta,
    xlm_roberta,
)
from saucier.families.roformer import ROFORMER_LAYOUT, roformer
from saucier.families.seq2seq import mask_predict, seq2seq, transformer
from saucier.families.switch import SWITCH_LAYOUT, switch_transformers
from saucier.families.t5 import MT5_LAYOUT, T5_LAYOUT, mt5, t5, t5_decoder, t5_shared
from saucier.families.transfo_xl import TRANSFO_XL_LAYOUT, transfo_xl
from saucier.families.unpublished import deep_char, elmo, etc, sparse_transformer
from saucier.families.xlm import XLM_LAYOUT, xlm
from saucier.families.xlnet import XLNET_LAYOUT, xlnet

FAMILIES: dict[str, Callable[..., Transformer]] = {
    "deberta": deberta, "deberta_v2": deberta_v2, "modernbert": modernbert, "transformer": transformer, "gpt": gpt,
    "gpt2": gpt2, "llama": llama, "mistral": mistral, "bert": bert, "t5": t5, "longformer": longformer,
    "roformer": roformer, "dpr": dpr, "realm": realm, "led": led, "bert_generation": bert_generation,
    "bert2bert": bert2bert, "bart": bart, "mbart": mbart, "marian": marian, "pegasus": pegasus, "m2m_100": m2m_100,
    "roberta": roberta, "xlm_roberta": xlm_roberta, "camembert": camembert, "big_bird": big_bird, "xlm": xlm,
    "xlnet": xlnet, "distilbert": distilbert, "electra": electra, "electra_generator": electra_generator,
    "mpnet": mpnet, "mt5": mt5, "albert": albert, "transfo_xl": transfo_xl, "fnet": fnet, "gpt_neo": gpt_neo,
    "gpt_neox": gpt_neox, "gptj": gptj, "switch_transformers": switch_transformers, "mixtral": mixtral,
    "reformer": reformer,
    "t5_shared": t5_shared, "t5_decoder": t5_decoder, "bloom": bloom, "ctrl": ctrl, "deep_char": deep_char, "opt": opt,
    "mobilebert": mobilebert, "ib_bert": ib_bert, "seq2seq": seq2seq, "elmo": elmo, "mask_predict": mask_predict,
    "sparse_transformer": sparse_transformer, "etc": etc, "nystromformer": nystromformer, "funnel": funnel,
}
"""Family name -> function from hyper-parameters to a config."""

LAYOUTS: dict[str, Layout] = {layout.model_type: layout for layout in (
    ALBERT_LAYOUT, BART_LAYOUT, MBART_LAYOUT, BERT_LAYOUT, BERT_GENERATION_LAYOUT, BIG_BIRD_LAYOUT, DEBERTA_LAYOUT,
    DEBERTA_V2_LAYOUT, DISTILBERT_LAYOUT, DPR_LAYOUT, ELECTRA_LAYOUT, ENCODER_DECODER_LAYOUT, FNET_LAYOUT, GPT2_LAYOUT,
    GPT_LAYOUT, GPT_NEO_LAYOUT, GPT_NEOX_LAYOUT, GPTJ_LAYOUT, LED_LAYOUT, LLAMA_LAYOUT, MISTRAL_LAYOUT,
    LONGFORMER_LAYOUT, M2M_100_LAYOUT, MARIAN_LAYOUT, PEGASUS_LAYOUT, MIXTRAL_LAYOUT, MODERNBERT_LAYOUT, MPNET_LAYOUT,
    REALM_LAYOUT, CAMEMBERT_LAYOUT, ROBERTA_LAYOUT, XLM_ROBERTA_LAYOUT, ROFORMER_LAYOUT, MT5_LAYOUT, T5_LAYOUT,
    SWITCH_LAYOUT, TRANSFO_XL_LAYOUT, XLM_LAYOUT, XLNET_LAYOUT, REFORMER_LAYOUT,
    BLOOM_LAYOUT, CTRL_LAYOUT, OPT_LAYOUT,
    MOBILEBERT_LAYOUT, NYSTROMFORMER_LAYOUT, FUNNEL_LAYOUT,
)}
"""`model_type` of a config.json -> layout."""


def find_layout(document: Mapping[str, Any], where: Path) -> Layout:
    """Return the layout that a config's `model_type` names. Raises `InputError` for one that no family has."""
    model_type = document.get("model_type")
    layout = LAYOUTS.get(str(model_type))
    if layout is None:
        raise InputError(f"model_type {repr(model_type)[:80]} is not known", where=str(where),
                         remedy=suggest_name(str(model_type), [MODEL_TYPE, *LAYOUTS]))
    return layout
