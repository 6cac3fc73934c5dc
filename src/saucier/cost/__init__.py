"""What a recipe costs: counted from its numbers, measured on this machine, and planned before it is cooked."""
