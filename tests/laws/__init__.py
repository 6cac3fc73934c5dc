"""Laws: what must hold of every model, whatever its parts."""
