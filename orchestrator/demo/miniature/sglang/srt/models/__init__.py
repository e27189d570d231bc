"""The two models of the miniature: a target and the EAGLE-3 draft that guesses for it."""
