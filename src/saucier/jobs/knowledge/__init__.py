"""Knowledge: documents indexed, searched, and asked."""
