"""Reading text: sources and tables on the disk, documents and pairs, corpora and what is held out of them."""
