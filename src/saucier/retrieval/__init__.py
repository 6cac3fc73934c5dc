"""Finding passages: collections, documents and their index, retrievers and rerankers, answers with evidence."""
