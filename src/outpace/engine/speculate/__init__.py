"""Results that are corrected: the history of a part of the operator, so that it can go back."""
