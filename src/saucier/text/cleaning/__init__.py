"""From a crawl to a corpus: rules as data, what each takes counted and shown, in little memory.

`config` says the rules, `pages` and `quality` judge one document, `piece` cleans one file, `corpus` joins the pieces
and removes what stands in them twice. Nothing here knows of recipes, reports or the command line.
"""
