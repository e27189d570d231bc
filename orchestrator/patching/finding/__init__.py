"""From an anchor to the places that it describes, or to what would fit instead."""
