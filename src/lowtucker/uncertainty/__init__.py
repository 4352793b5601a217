"""Error bars: how far the entries of a result may be from the truth."""
