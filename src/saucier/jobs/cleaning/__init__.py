"""Cleaning: from a crawl to a corpus."""
