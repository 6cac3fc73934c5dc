"""From a crawl to a corpus: rules as data, what each removes counted and shown, in little memory.

`config` holds the rules, `rules` applies them to a document, `pieces` cleans one file, `corpus` joins
the pieces without duplicates. Nothing here knows of recipes, reports or the command line.
"""
