"""The families: one short function each, from hyper-parameters to a config. `FAMILIES` is the whole list."""

from collections.abc import Callable

from saucier.config import Transformer
from saucier.families.albert import albert
from saucier.families.bart import bart, mbart
from saucier.families.bert import bert
from saucier.families.bert_generation import bert_generation
from saucier.families.big_bird import big_bird
from saucier.families.bloom import bloom
from saucier.families.ctrl import ctrl
from saucier.families.deberta import deberta
from saucier.families.deberta_v2 import deberta_v2
from saucier.families.deep_char import deep_char
from saucier.families.distilbert import distilbert
from saucier.families.dpr import dpr
from saucier.families.electra import electra, electra_generator
from saucier.families.elmo import elmo
from saucier.families.encoder_decoder import bert2bert
from saucier.families.etc import etc
from saucier.families.fnet import fnet
from saucier.families.gpt import gpt
from saucier.families.gpt2 import gpt2
from saucier.families.gpt_neo import gpt_neo
from saucier.families.gpt_neox import gpt_neox
from saucier.families.gptj import gptj
from saucier.families.led import led
from saucier.families.llama import llama
from saucier.families.longformer import longformer
from saucier.families.marian import m2m_100, marian, pegasus
from saucier.families.mask_predict import mask_predict
from saucier.families.mistral import mistral
from saucier.families.mixtral import mixtral
from saucier.families.mobilebert import mobilebert
from saucier.families.modernbert import modernbert
from saucier.families.mpnet import mpnet
from saucier.families.opt import opt
from saucier.families.realm import realm
from saucier.families.reformer import reformer
from saucier.families.roberta import camembert, roberta, xlm_roberta
from saucier.families.roformer import roformer
from saucier.families.seq2seq import seq2seq
from saucier.families.sparse_transformer import sparse_transformer
from saucier.families.switch import switch_transformers
from saucier.families.t5 import mt5, t5, t5_decoder, t5_shared
from saucier.families.transfo_xl import transfo_xl
from saucier.families.transformer import transformer
from saucier.families.xlm import xlm
from saucier.families.xlnet import xlnet

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
    "mobilebert": mobilebert, "seq2seq": seq2seq, "elmo": elmo, "mask_predict": mask_predict,
    "sparse_transformer": sparse_transformer, "etc": etc,
}
"""Family name -> function from hyper-parameters to a config."""
