"""The published layouts that can be read and written: `LAYOUTS` is the whole list, by `model_type`."""

from __future__ import annotations

from saucier.checkpoints.keys import Layout
from saucier.families.albert import ALBERT_LAYOUT
from saucier.families.bart import BART_LAYOUT, MBART_LAYOUT
from saucier.families.bert import BERT_LAYOUT
from saucier.families.bert_generation import BERT_GENERATION_LAYOUT
from saucier.families.big_bird import BIG_BIRD_LAYOUT
from saucier.families.bloom import BLOOM_LAYOUT
from saucier.families.ctrl import CTRL_LAYOUT
from saucier.families.deberta import DEBERTA_LAYOUT
from saucier.families.deberta_v2 import DEBERTA_V2_LAYOUT
from saucier.families.distilbert import DISTILBERT_LAYOUT
from saucier.families.dpr import DPR_LAYOUT
from saucier.families.electra import ELECTRA_LAYOUT
from saucier.families.encoder_decoder import ENCODER_DECODER_LAYOUT
from saucier.families.fnet import FNET_LAYOUT
from saucier.families.gpt import GPT_LAYOUT
from saucier.families.gpt2 import GPT2_LAYOUT
from saucier.families.gpt_neo import GPT_NEO_LAYOUT
from saucier.families.gpt_neox import GPT_NEOX_LAYOUT
from saucier.families.gptj import GPTJ_LAYOUT
from saucier.families.led import LED_LAYOUT
from saucier.families.llama import LLAMA_LAYOUT
from saucier.families.longformer import LONGFORMER_LAYOUT
from saucier.families.marian import M2M_100_LAYOUT, MARIAN_LAYOUT, PEGASUS_LAYOUT
from saucier.families.mistral import MISTRAL_LAYOUT
from saucier.families.mixtral import MIXTRAL_LAYOUT
from saucier.families.mobilebert import MOBILEBERT_LAYOUT
from saucier.families.modernbert import MODERNBERT_LAYOUT
from saucier.families.mpnet import MPNET_LAYOUT
from saucier.families.opt import OPT_LAYOUT
from saucier.families.realm import REALM_LAYOUT
from saucier.families.reformer_tables import REFORMER_LAYOUT
from saucier.families.roberta import CAMEMBERT_LAYOUT, ROBERTA_LAYOUT, XLM_ROBERTA_LAYOUT
from saucier.families.roformer import ROFORMER_LAYOUT
from saucier.families.switch import SWITCH_LAYOUT
from saucier.families.t5 import MT5_LAYOUT, T5_LAYOUT
from saucier.families.transfo_xl import TRANSFO_XL_LAYOUT
from saucier.families.xlm import XLM_LAYOUT
from saucier.families.xlnet import XLNET_LAYOUT

LAYOUTS: dict[str, Layout] = {layout.model_type: layout for layout in (
    ALBERT_LAYOUT, BART_LAYOUT, MBART_LAYOUT, BERT_LAYOUT, BERT_GENERATION_LAYOUT, BIG_BIRD_LAYOUT, DEBERTA_LAYOUT,
    DEBERTA_V2_LAYOUT, DISTILBERT_LAYOUT, DPR_LAYOUT, ELECTRA_LAYOUT, ENCODER_DECODER_LAYOUT, FNET_LAYOUT, GPT2_LAYOUT,
    GPT_LAYOUT, GPT_NEO_LAYOUT, GPT_NEOX_LAYOUT, GPTJ_LAYOUT, LED_LAYOUT, LLAMA_LAYOUT, MISTRAL_LAYOUT,
    LONGFORMER_LAYOUT, M2M_100_LAYOUT, MARIAN_LAYOUT, PEGASUS_LAYOUT, MIXTRAL_LAYOUT, MODERNBERT_LAYOUT, MPNET_LAYOUT,
    REALM_LAYOUT, CAMEMBERT_LAYOUT, ROBERTA_LAYOUT, XLM_ROBERTA_LAYOUT, ROFORMER_LAYOUT, MT5_LAYOUT, T5_LAYOUT,
    SWITCH_LAYOUT, TRANSFO_XL_LAYOUT, XLM_LAYOUT, XLNET_LAYOUT, REFORMER_LAYOUT,
    BLOOM_LAYOUT, CTRL_LAYOUT, OPT_LAYOUT,
    MOBILEBERT_LAYOUT,
)}
"""`model_type` of a config.json -> layout."""
