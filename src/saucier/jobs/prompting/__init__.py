"""In-context evaluation: a model answers with no, one or a few solved examples in front; nothing is trained.

Source: Brown et al. 2020 (GPT-3), §2, arXiv:2005.14165. Import from the submodules.
"""
